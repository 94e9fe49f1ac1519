"""What the harness adds to a step: a recorded job whose model answers at once and whose commands do next to nothing."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from bench.ground import Command, Ground
from bench.table import Row
from tests.fakes.recording import Call, Recording, bash, call, edit

STEPS = 40
LIMIT_REACHED = 22
TOOLS: dict[str, Callable[[int], Call]] = {
    "bash": lambda step: bash(f"echo {step}"),
    "view": lambda step: call("view", {"path": "money.py", "start": 1, "end": step}),
    "edit": lambda step: edit("money.py", f"VERSION = {step // 4}\n", f"VERSION = {step // 4 + 1}\n"),
    "search": lambda step: call("search", {"query": f"share {step}"}),
}


def measure(ground: Ground, repeat: int, _mini: Path | None) -> list[Row]:
    """From the beginning of one turn to that of the next: act, store, count, reserve, ask, book, store."""
    recording = Recording()
    tools = list(TOOLS)
    for step in range(STEPS):
        recording.turn("Go on.", TOOLS[tools[step % len(tools)]](step))
    file = recording.save(ground.root / "steps.jsonl")
    taken: dict[str, list[float]] = {tool: [] for tool in tools}
    for _ in range(repeat):
        options = ("--no-plan", "--max-steps", str(STEPS), "--model", f"recorded/{file}")
        Command(ground.fix(*options), ground.environment).end(LIMIT_REACHED)
        for step, seconds in enumerate(_durations(ground)):
            taken[tools[step % len(tools)]].append(1_000 * seconds)
    every = [duration for durations in taken.values() for duration in durations]
    rows = [Row("harness per step, sandbox and stored step", every, "ms", aim=15)]
    return rows + [Row(f"  {tool}", durations, "ms") for tool, durations in taken.items()]


def _durations(ground: Ground) -> Sequence[float]:
    """Seconds from turn to turn of the newest job, from its log."""
    store = JobStore(sqlite_engine(ground.state / "agent-fix.db"), lambda: datetime.now(UTC))
    begun = [said.at for said in store.said(store.newest(1)[0].job.id) if said.kind == "step"]
    store.engine.dispose()
    return [(after - before).total_seconds() for before, after in pairwise(begun)]
