"""Memory of a process that waits for a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.endpoint import MODEL, Stopwatch
from bench.ground import BenchDirectory, Command
from bench.start import KILLED
from bench.table import Row

PEERS = "peers 210-260 MB"


def measure(ground: BenchDirectory, repeat: int) -> list[Row]:
    """Ours without a plan, so that nothing else is at work when the first request arrives."""
    held = [_waiting(ground.fix("--no-plan", "--model", MODEL), ground.environment) for _ in range(repeat)]
    return [
        Row("memory while waiting, resident", [rss for rss, _ in held], "MB", note=PEERS),
        Row("  proportional share", [pss for _, pss in held], "MB"),
    ]


def _waiting(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    with Stopwatch() as endpoint:
        command = Command(argv, {**environment, **endpoint.environment()})
        arrived = endpoint.wait(lambda: command.ended)
        held = megabytes(command.pid) if arrived is not None else (0.0, 0.0)
        if arrived is not None:
            command.kill()
        command.end(KILLED)
    return held


def megabytes(pid: int) -> tuple[float, float]:
    """Resident and proportional memory of a process and all below it."""
    resident, share = 0.0, 0.0
    for process in family(pid):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in {"Rss", "Pss"}:
                kilobytes = float(rest.split()[0])
                resident += kilobytes / 1_024 if name == "Rss" else 0
                share += kilobytes / 1_024 if name == "Pss" else 0
    return resident, share


def family(pid: int) -> list[int]:
    """A process and all below it."""
    below = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    return [pid, *(descendant for child in below for descendant in family(child))]


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()
