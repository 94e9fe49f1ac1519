"""What the harness adds to a step: a recorded job whose model answers at once and whose commands do next to nothing."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from time import monotonic

from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from app.sandbox.base import SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from bench.ground import BenchDirectory, Command, Spent
from bench.table import Row
from tests.support.recorded_answers import Call, RecordedAnswers, bash, call, edit

STEPS, FEW = 40, 4
LONG, AROUND = (50, 200, 500), 20
"""Steps of one long job at which it is looked how long a step takes by then, and how many before each."""
LIMIT_REACHED = 22
TOOLS: dict[str, Callable[[int], Call]] = {
    "bash": lambda step: bash(f"echo {step}"),
    "view": lambda step: call("view", {"path": "money.py", "start": 1, "end": step}),
    "edit": lambda step: edit("money.py", f"VERSION = {step // 4}\n", f"VERSION = {step // 4 + 1}\n"),
    "search": lambda step: call("search", {"query": f"share {step}"}),
}


def measure(ground: BenchDirectory, repeat: int) -> list[Row]:
    """From the beginning of one turn to that of the next: act, store, count, reserve, ask, book, store."""
    tools = list(TOOLS)
    file = _recorded(ground, STEPS)
    taken: dict[str, list[float]] = {tool: [] for tool in tools}
    processor, commands, writes = list[float](), list[float](), list[float]()
    for _ in range(repeat):
        few = _job(ground, file, FEW)
        whole = _job(ground, file, STEPS)
        processor.append(1_000 * (whole.cpu - few.cpu) / (STEPS - FEW))
        for step, seconds in enumerate(_durations(ground)):
            taken[tools[step % len(tools)]].append(1_000 * seconds)
        commands += asyncio.run(_sandboxed(ground.root / "commands"))
        writes += _written(ground.root / "written")
    every = [duration for durations in taken.values() for duration in durations]
    return [
        Row("harness per step, sandbox and stored step", every, "ms", aim=15),
        *(Row(f"  {tool}", durations, "ms") for tool, durations in taken.items()),
        *_long(ground),
        Row("  processor time", processor, "ms"),
        Row("  for comparison: one command in the sandbox", commands, "ms"),
        Row("  for comparison: one write that reaches the disk", writes, "ms"),
    ]


def _recorded(ground: BenchDirectory, steps: int) -> Path:
    recording = RecordedAnswers()
    for step in range(steps):
        recording.turn("Go on.", list(TOOLS.values())[step % len(TOOLS)](step))
    return recording.save(ground.root / f"steps-{steps}.jsonl")


def _long(ground: BenchDirectory) -> Sequence[Row]:
    """Whether a step takes longer the more there were before it."""
    _job(ground, _recorded(ground, LONG[-1] + 1), LONG[-1] + 1)
    taken = [1_000 * seconds for seconds in _durations(ground)]
    first = taken[LONG[0] - AROUND : LONG[0]]
    return [
        Row(f"  at step {step} of a long job", taken[step - AROUND : step], "ms", than=first if step > LONG[0] else ())
        for step in LONG
    ]


def _job(ground: BenchDirectory, recording: Path, steps: int) -> Spent:
    options = ("--no-plan", "--max-steps", str(steps), "--model", f"recorded/{recording}")
    return Command(ground.fix(*options), ground.environment).end(LIMIT_REACHED)


def _durations(ground: BenchDirectory) -> Sequence[float]:
    """Seconds from turn to turn of the newest job, from its log."""
    store = JobStore(sqlite_engine(ground.state / "agent-fix.db"), lambda: datetime.now(UTC))
    begun = [said.at for said in store.progress_since(store.newest(1)[0].job.id) if said.kind == "step"]
    store.engine.dispose()
    return [(after - before).total_seconds() for before, after in pairwise(begun)]


async def _sandboxed(root: Path, times: int = 20) -> list[float]:
    """Milliseconds of `true`, one after the other."""
    sandbox = await BubblewrapProvider(root / "sandboxes", caches=root / "caches").open(
        SandboxSpec("bench", lambda _: None)
    )
    taken = []
    for _ in range(times):
        begun = monotonic()
        await sandbox.exec(["/bin/true"])
        taken.append(1_000 * (monotonic() - begun))
    await sandbox.destroy()
    return taken


def _written(path: Path, times: int = 20) -> list[float]:
    """Milliseconds of an append and its fsync: a job that survives a power cut waits for four of them a step."""
    taken = []
    with path.open("ab") as file:
        for _ in range(times):
            begun = monotonic()
            file.write(b"x" * 1_000)
            file.flush()
            os.fsync(file.fileno())
            taken.append(1_000 * (monotonic() - begun))
    return taken
