"""How often the set-up of a public project is found without configuration: `agent-fix setup` on each of projects.yml.

Each project is fetched by its address, or from a folder of mirrors (`--mirrors`), at its pinned commit. One project is
examined at a time, and each has a limit. Nothing of the projects is kept.
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import yaml

from bench.ground import COMMAND
from bench.project_figures import checked, keep, mark

LIST = Path(__file__).with_name("projects.yml")
SECONDS = 300.0
"""After this no further candidate is begun; a project is ended at twice as many."""
WIDTHS = (34, 12, 46, 8, 7, 7, 8, 7)
_WRITTEN = {
    "python": (r"^\s*(async )?def test\w*\(", "*.py"),
    "javascript": (r"^\s*(it|test)(\.\w+)*\(\s*(['\"`]|$)", "*.[jt]s", "*.[cm][jt]s", "*.[jt]sx"),
    "go": (r"^func (Test|Example|Fuzz)\w*\(", "*_test.go"),
    "rust": (r"^\s*#\[(\w+::)?test\b", "*.rs"),
    "java": (r"^\s*@(Test|ParameterizedTest)\b", "*.java"),
    "ruby": (r"^\s*(it|should|def test_\w+|test)\b", "*.rb"),
}


class Project(NamedTuple):
    """One entry of projects.yml."""

    repository: str
    commit: str
    date: str
    language: str
    held_back: bool

    @property
    def name(self) -> str:
        return f"{self.repository}@{self.date[:4]}"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.keep:
        keep(arguments.keep)
        return 0
    wanted = [project for project in read_projects(LIST) if not arguments.only or project.name in arguments.only]
    print(_row("project", "comparable", "candidate", "seconds", "passed", "failed", "not run", "written"), flush=True)
    comparable = 0
    with tempfile.TemporaryDirectory(prefix="projects-") as root:
        for project in wanted:
            found = examine(project, arguments.mirrors, Path(root), arguments.seconds, arguments.state)
            comparable += bool(found.get("comparable"))
            for line in shown(project, found):
                print(line, flush=True)
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps({"project": project.name, **found}) + "\n")
    print(f"\n{comparable} of {len(wanted)} projects have a comparable suite without configuration.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.projects", description=__doc__)
    parser.add_argument("--mirrors", type=Path, metavar="DIR", help="git directories as DIR/OWNER+NAME/repo")
    parser.add_argument("--only", nargs="*", metavar="OWNER/NAME@YEAR", help="only these projects")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="N", help="per project (default: %(default)s)"
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="keep set-ups here between runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one object for each project")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="put the objects of FILE into the documentation")
    return parser


def read_projects(path: Path) -> list[Project]:
    entries = yaml.safe_load(path.read_text("utf-8"))["projects"]
    return [
        Project(one["repository"], one["commit"], str(one["date"]), one["language"], one.get("held_back", False))
        for one in entries
    ]


def examine(project: Project, mirrors: Path | None, root: Path, seconds: float, state: Path | None) -> dict[str, Any]:
    """What `agent-fix setup --json` says; an object with `reasons` only where it says nothing."""
    begun = monotonic()
    with tempfile.TemporaryDirectory(dir=root) as place:
        checkout = Path(place) / "checkout"
        try:
            _fetch(project, mirrors, checkout)
        except subprocess.CalledProcessError as error:
            return {"comparable": False, "reasons": [f"It cannot be fetched: {error.stderr.decode().strip()[-300:]}"]}
        written = written_tests(project, checkout)
        argv = [str(COMMAND), "setup", "--repo", str(checkout), "--state", str(state or Path(place) / "state")]
        argv += ["--json", "--seconds", str(seconds)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            output, error_output = process.communicate(timeout=2 * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
            seconds = round(monotonic() - begun)
            return {"comparable": False, "seconds": seconds, "written": written, "reasons": ["It did not end in time."]}
    try:
        found = json.loads(output)
    except ValueError:
        return {"comparable": False, "written": written, "reasons": [error_output.decode(errors="replace")[-500:]]}
    return checked({**found, "written": written})


def written_tests(project: Project, checkout: Path) -> int:
    """How many tests stand in the sources, counted by text alone: what a set-up that runs only a part is seen by."""
    pattern, *files = _WRITTEN[project.language]
    argv = ["git", "-C", str(checkout), "grep", "-hcP", pattern, "--", *files]
    counts = subprocess.run(argv, capture_output=True, check=False).stdout.split()
    return sum(map(int, counts))


def _fetch(project: Project, mirrors: Path | None, checkout: Path) -> None:
    if mirrors is None:
        source, options = f"https://github.com/{project.repository}", ["--filter=tree:0"]
    else:
        source, options = str(mirrors / project.repository.replace("/", "+") / "repo"), ["--shared"]
    git = ["git", "clone", "-q", "--no-checkout", *options, source, str(checkout)]
    subprocess.run(git, check=True, capture_output=True)
    subprocess.run(
        ["git", "-C", str(checkout), "checkout", "-q", "--detach", project.commit], check=True, capture_output=True
    )


def shown(project: Project, found: dict[str, Any]) -> Iterator[str]:
    """The project's row, and beneath it why it is not comparable."""
    yield _row(
        project.name,
        mark(found),
        str(found.get("candidate", "")),
        f"{found.get('seconds', 0):.0f}",
        *(str(found.get(key, "")) for key in ("passed", "failed", "not_run", "written")),
    )
    if not found.get("comparable"):
        yield from (f"    {' '.join(str(reason).split())[:240]}" for reason in found.get("reasons", [])[:4])


def _row(*cells: str) -> str:
    return "  ".join(cell[:width].ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


if __name__ == "__main__":
    raise SystemExit(main())
