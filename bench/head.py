"""What a conversation on real issues begins with, in tokens: tools, system text, task, and the call that makes a plan.

    python -m bench.head --manifest FILE --mirrors DIR [--only ID …] [--json OUT]

The manifest and the mirrors are those of `bench.localisation`. The command itself is started on each issue, and its
requests are read: the model's endpoint is on the loopback, makes a plan that names the files of the real fix, and
submits at once. Set-up and suite do nothing here, and there are no specification tests.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.endpoint import MODEL, Turn
from bench.ground import COMMAND, BenchDirectory, Command
from bench.table import table
from bench.tokens import asks_for_plan, tokens
from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply

ISSUES = (
    "pallets__flask-4045",
    "psf__requests-1963",
    "pylint-dev__pylint-5859",
    "pytest-dev__pytest-7220",
    "sphinx-doc__sphinx-8721",
)
CODES = (0, 20, 21, 22, 23)
_CONFIGURATION = "setup: 'true'\ntest: 'true'\nspecification: false\n"


@dataclass(frozen=True, slots=True)
class Head:
    """Tokens of the first request of the work and of the call for a plan; `issue` is the issue's own text."""

    instance: str
    tools: int
    system: int
    task: int
    issue: int
    plan_call: int
    plan_new: int
    """Of the call for a plan, what the work's first request does not begin with."""

    @property
    def beside(self) -> int:
        """The head beside the issue's own text."""
        return self.tools + self.system + self.task - self.issue


class Reader(OpenAIEndpoint):
    """Keeps every request; makes the plan, then submits."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__()
        self._plan = {"summary": "Mend it.", "candidate_files": list(files), "steps": ["test", "fix"]}
        self.bodies: list[Mapping[str, Any]] = []

    def take(self, received: ReceivedRequest) -> Reply:
        self.bodies.append(received.body)
        if asks_for_plan(received.body):
            turn = Turn(json.dumps(self._plan))
        else:
            turn = Turn("Done.", [("call-1", "submit", json.dumps({"summary": "Nothing to change."}))])
        return turn.reply(streamed=bool(received.body.get("stream")))


def measure(instance: Mapping[str, Any], mirrors: Path, root: Path) -> Head:
    ground = BenchDirectory(root)
    ground.repository.mkdir(parents=True)
    mirror = mirrors / instance["repo"].replace("/", "+") / "repo"
    _checkout(ground.repository, mirror, instance["base_commit"])
    title, _, body = instance["problem_statement"].partition("\n")
    ground.issue.write_text(f"# {title}\n\n{body}")
    with Reader(instance["gold_files"]) as reader:
        environment = ground.environment | {"OPENAI_API_BASE": reader.url, "OPENAI_API_KEY": "sk-bench"}
        Command(ground.fix("--model", MODEL), environment).end(*CODES)
    plans = [_parts(body) for body in reader.bodies if asks_for_plan(body)]
    work = _parts(next(body for body in reader.bodies if not asks_for_plan(body)))
    sizes = [tokens(part) for part in work]
    shared = sum(size for size, one, other in zip(sizes, work, plans[0] if plans else (), strict=False) if one == other)
    plan_call = sum(map(tokens, plans[0])) if plans else 0
    return Head(
        instance["instance_id"],
        tools=sizes[0],
        system=sizes[1],
        task=sum(sizes[2:]),
        issue=tokens(instance["problem_statement"]),
        plan_call=plan_call,
        plan_new=plan_call - shared,
    )


def _parts(body: Mapping[str, Any]) -> list[str]:
    """Tools first, then message after message."""
    tools = json.dumps(body["tools"], ensure_ascii=False) if body.get("tools") else ""
    return [tools, *(_text(message) for message in body["messages"])]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _checkout(place: Path, mirror: Path, commit: str) -> None:
    """The base commit with our configuration on top, in a repository that borrows the mirror's objects."""
    subprocess.run(("git", "clone", "-q", "--shared", "--no-checkout", str(mirror), str(place)), check=True)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    subprocess.run(("git", "-C", str(place), "checkout", "-q", "-B", "main", commit), check=True)
    configuration = place / ".github" / "agent-fix.yml"
    configuration.parent.mkdir(exist_ok=True)
    configuration.write_text(_CONFIGURATION)
    for command in (("add", "-f", str(configuration)), (*who, "commit", "-q", "-m", "Configure")):
        subprocess.run(("git", "-C", str(place), *command), check=True)


def render(heads: Sequence[Head]) -> str:
    titles = ["issue", "tools", "system", "task", "of it the issue", "head beside it", "plan call", "of it new"]
    rows = [
        [one.instance, *map(str, (one.tools, one.system, one.task, one.issue, one.beside, one.plan_call, one.plan_new))]
        for one in heads
    ]
    means = [f"{mean(int(row[column]) for row in rows):.0f}" for column in range(1, len(titles))]
    return table(titles, [*rows, ["mean", *means]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE")
    parser.add_argument("--mirrors", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", default=ISSUES, metavar="ID", help="issues of the manifest")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write all figures to OUT")
    chosen = parser.parse_args()
    if not COMMAND.exists():
        raise SystemExit(f"{COMMAND} is not installed.")
    instances = [json.loads(line) for line in chosen.manifest.read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory(prefix="agent-fix-head-") as root:
        heads = [
            measure(instance, chosen.mirrors, Path(root) / instance["instance_id"])
            for instance in instances
            if instance["instance_id"] in chosen.only
        ]
    print(render(heads))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in heads], indent=1) + "\n")


if __name__ == "__main__":
    main()
