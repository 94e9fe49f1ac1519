"""Prints the figures of docs/explanation/performance.md: `python -m bench.all [--repeat N] [--only PART]`."""

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path

from bench import memory, start, steps, tokens, workspaces
from bench.ground import BenchDirectory, Command
from bench.table import Row, render
from tests.support.recorded_answers import RecordedAnswers, edit

PARTS = {
    "start": start.measure,
    "steps": steps.measure,
    "memory": memory.measure,
    "tokens": tokens.measure,
    "workspaces": workspaces.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="how often each is measured (%(default)s)")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as root:
        rows = measure(BenchDirectory(Path(root)), chosen.repeat, chosen.only)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}, {chosen.repeat} times each\n")
    print(render(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")


def measure(ground: BenchDirectory, repeat: int, only: str | None) -> list[Row]:
    ground.prepare()
    if only != "workspaces":
        warm(ground)
    return [row for name, part in PARTS.items() if only in (None, name) for row in part(ground, repeat)]


def warm(ground: BenchDirectory) -> None:
    """A whole job, as somebody who uses this repository for the second time has done one."""
    recording = RecordedAnswers().plan().turn("Edit.", edit("money.py", "VERSION = 0", "VERSION = 1")).submit("Done.")
    model = f"recorded/{recording.submit('Done.').save(ground.root / 'warm.jsonl')}"
    Command(ground.fix("--model", model), ground.environment).end(0, 20, 21)


if __name__ == "__main__":
    main()
