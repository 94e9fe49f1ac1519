"""`make bench-peers`: scripts of real commands through ours, mini-swe-agent and the OpenHands SDK, one by one.

`python -m bench.peers [--steps 20 40 100] [--scripts NAME …] [--seed N] [--only NAME …] [--json FILE]`
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.checkout import Project
from bench.comparison import OURS, render
from bench.counting import CountedScript, CountingEndpoint, tokens
from bench.dialect import shell
from bench.figures import Figures, figures
from bench.ground import Command, Spent, processor_seconds
from bench.harnesses import Harness, HarnessPlace, mini, openhands, ours
from bench.installs import NotInstalledError
from bench.ordinary import ordinary
from bench.script import Files, Script, authors, load, short

STEPS = (20, 40, 100)
SCRIPTS = ("clauses", "ordinary", "short")
ORDINARY_STEPS = (40, 100)
SEED = 7
LONG = 500
"""Steps of the one that only ours takes, to see whether a step late in the work takes longer than an early one."""
_SECONDS_A_STEP = 20


class PerformanceError(Exception):
    """A harness did not play the script to its end."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything below one temporary directory; one harness at a time."""

    root: Path
    project: Project
    stage: CountingEndpoint
    begin: bool = False
    """Whether scripts begin where they may do so without a plan."""
    authors: bool = False
    """Whether the short scripts' authors write tests."""

    def perform(self, harness: Harness, version: str, script: Script, steps: int) -> Figures:
        """Raises PerformanceError."""
        name = f"{harness.name}/{script.name}/{steps}".replace(" ", "-").replace(",", "")
        place = self.root / name
        place.mkdir(parents=True)
        play = CountedScript(
            script.moves(steps, Files(self.project.source)),
            harness.workspace(HarnessPlace(place, "", steps)),
            begins=self.begin,
            authors=authors(script.name) if self.authors and harness.name == OURS else {},
            files=Files(self.project.source),
        )
        stand = HarnessPlace(place, self.stage.begin(name, play), steps)
        self.project.checkout(stand.checkout)
        stand.task.write_text(script.task)
        spent = self._execute(harness, stand, play)
        size = tokens(script.task)
        return figures(harness.name, version, play.records, task=size, peak=spent.peak, script=script.name)

    def alone(self, script: Script, steps: int) -> float:
        """Median milliseconds of the same commands in a plain shell, which no harness can do without."""
        place = self.project.checkout(self.root / "alone")
        taken = []
        for move in script.moves(steps, Files(self.project.source))[:-1]:
            argv, begun = ("bash", "-c", shell(move.act)), time.monotonic()
            subprocess.run(argv, cwd=place, env=dict(self.project.environment), capture_output=True, check=False)
            taken.append(1_000 * (time.monotonic() - begun))
        return median(taken)

    def _execute(self, harness: Harness, stand: HarnessPlace, play: CountedScript) -> Spent:
        launch = harness.launch(stand)
        command = Command(launch.argv, {**self.project.environment, **launch.environment}, stand.checkout)
        play.cpu = lambda: processor_seconds(command.pid)
        deadline = time.monotonic() + 300 + _SECONDS_A_STEP * stand.steps
        while not command.ended and time.monotonic() < deadline:
            time.sleep(0.05)
        if not command.ended:
            command.kill()
        spent = command.end(*launch.codes)
        if play.problems or not play.done:
            asked = f"{len(play.records)} requests for {stand.steps} steps"
            raise PerformanceError(f"{harness.name}: {asked}; {'; '.join(play.problems[:2])}")
        return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, metavar="N", help="lengths of the script")
    parser.add_argument("--long", type=int, default=LONG, metavar="N", help="ours alone, so many steps; 0: not")
    parser.add_argument("--scripts", nargs="+", default=SCRIPTS, choices=SCRIPTS, help="default: all")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help="of the ordinary outputs")
    parser.add_argument("--begin", action="store_true", help="begin without a plan where ours says that one may")
    parser.add_argument("--authors", action="store_true", help="authors write tests for the short scripts")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these harnesses alone: ours, mini, openhands")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    chosen = parser.parse_args()
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="agent-fix-peers-") as root, CountingEndpoint() as stage:
        bench = Comparison(Path(root), _project(), stage, chosen.begin, chosen.authors)
        plays = list(_plays(chosen.scripts, chosen.steps, bench.project.source, chosen.seed))
        every = {"ours": ours(Path(root) / "state"), "mini": mini(), "openhands": openhands()}
        wanted = [harness for name, harness in every.items() if chosen.only is None or name in chosen.only]
        taken, absent = compare(bench, wanted, plays)
        floor = bench.alone(*max(plays, key=lambda play: play[1]))
        if chosen.long and every["ours"] in wanted and "clauses" in chosen.scripts:
            longer, failed = compare(bench, [every["ours"]], [(load(), chosen.long)])
            taken, absent = [*taken, *longer], absent | failed
    load_now = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load_now}\n")
    print(render(taken, absent, floor))
    if chosen.json:
        rows = [one.as_json() for one in taken]
        chosen.json.write_text(
            json.dumps({"figures": rows, "absent": absent, "commands_alone_ms": floor}, indent=1) + "\n"
        )


def _plays(names: Sequence[str], lengths: Sequence[int], source: Path, seed: int) -> Iterator[tuple[Script, int]]:
    """Each script with its number of steps."""
    if "clauses" in names:
        yield from ((load(), steps) for steps in lengths)
    if "ordinary" in names:
        yield from ((ordinary(source, seed), steps) for steps in lengths if steps in ORDINARY_STEPS)
    if "short" in names:
        yield from ((script, len(script.steps) + 1) for script in short())


def _project() -> Project:
    try:
        return Project.fetch()
    except NotInstalledError as problem:
        raise SystemExit(f"There is nothing to work on: {problem}") from None


def compare(
    bench: Comparison, harnesses: Sequence[Harness], plays: Sequence[tuple[Script, int]]
) -> tuple[list[Figures], dict[str, str]]:
    """Figures of each that can be had, and why the others cannot."""
    taken: list[Figures] = []
    absent: dict[str, str] = {}
    for harness in harnesses:
        name = harness.name
        try:
            version = harness.prepare()
            for script, steps in plays:
                name = f"{harness.name}, {script.name}, {steps} steps"
                print(f"{name}, version {version} …", file=sys.stderr, flush=True)
                taken.append(bench.perform(harness, version, script, steps))
        except (NotInstalledError, PerformanceError, RuntimeError) as problem:
            absent[name] = str(problem)
    return taken, absent


if __name__ == "__main__":
    main()
