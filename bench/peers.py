"""`make bench-peers`: one script of real commands through ours, mini-swe-agent and the OpenHands SDK, one by one.

`python -m bench.peers [--steps 20 40 100] [--only NAME …] [--json FILE]`
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.checkout import Project
from bench.comparison import render
from bench.counting import CountedScript, CountingEndpoint, tokens
from bench.dialect import shell
from bench.figures import Figures, figures
from bench.ground import Command, Spent, processor_seconds
from bench.harnesses import Harness, HarnessPlace, mini, openhands, ours
from bench.installs import NotInstalledError
from bench.script import Files, Script, load

STEPS = (20, 40, 100)
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
    script: Script
    stage: CountingEndpoint

    def perform(self, harness: Harness, version: str, steps: int) -> Figures:
        """Raises PerformanceError."""
        name = f"{harness.name.replace(' ', '-')}/{steps}"
        place = self.root / name
        place.mkdir(parents=True)
        play = CountedScript(
            self.script.moves(steps, Files(self.project.source)), harness.workspace(HarnessPlace(place, "", steps))
        )
        stand = HarnessPlace(place, self.stage.begin(name, play), steps)
        self.project.checkout(stand.checkout)
        stand.task.write_text(self.script.task)
        spent = self._execute(harness, stand, play)
        return figures(harness.name, version, play.records, task=tokens(self.script.task), peak=spent.peak)

    def alone(self, steps: int) -> float:
        """Median milliseconds of the same commands in a plain shell, which no harness can do without."""
        place = self.project.checkout(self.root / "alone")
        taken = []
        for move in self.script.moves(steps, Files(self.project.source))[:-1]:
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
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these harnesses alone: ours, mini, openhands")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    chosen = parser.parse_args()
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="agent-fix-peers-") as root, CountingEndpoint() as stage:
        bench = Comparison(Path(root), _project(), load(), stage)
        every = {"ours": ours(Path(root) / "state"), "mini": mini(), "openhands": openhands()}
        wanted = [harness for name, harness in every.items() if chosen.only is None or name in chosen.only]
        taken, absent = compare(bench, wanted, chosen.steps)
        floor = bench.alone(max(chosen.steps))
        if chosen.long and every["ours"] in wanted:
            longer, failed = compare(bench, [every["ours"]], [chosen.long])
            taken, absent = [*taken, *longer], absent | failed
    load_now = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load_now}\n")
    print(render(taken, absent, floor))
    if chosen.json:
        rows = [one.as_json() for one in taken]
        chosen.json.write_text(
            json.dumps({"figures": rows, "absent": absent, "commands_alone_ms": floor}, indent=1) + "\n"
        )


def _project() -> Project:
    try:
        return Project.fetch()
    except NotInstalledError as problem:
        raise SystemExit(f"There is nothing to work on: {problem}") from None


def compare(
    bench: Comparison, harnesses: Sequence[Harness], lengths: Sequence[int]
) -> tuple[list[Figures], dict[str, str]]:
    """Figures of each that can be had, and why the others cannot."""
    taken: list[Figures] = []
    absent: dict[str, str] = {}
    for harness in harnesses:
        name = harness.name
        try:
            version = harness.prepare()
            for steps in lengths:
                name = f"{harness.name}, {steps} steps"
                print(f"{name}, version {version} …", file=sys.stderr, flush=True)
                taken.append(bench.perform(harness, version, steps))
        except (NotInstalledError, PerformanceError, RuntimeError) as problem:
            absent[name] = str(problem)
    return taken, absent


if __name__ == "__main__":
    main()
