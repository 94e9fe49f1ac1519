"""How long until a workspace is ready, in each kind of sandbox: the first on a machine, the next, and one again."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic

from e2b import AsyncSandbox

from app.core.errors import AgentFixError
from app.sandbox.base import SandboxProvider, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.e2b.provider import E2BProvider
from bench.ground import BenchDirectory
from bench.table import Row
from tests.support.containers.engines import end_engines, obtained
from tests.support.containers.engines import provider as container_provider
from tests.support.e2b.server import LocalE2B, local_e2b

FILES, CONTENT = 500, b"x" * 2_000
"""Of the tree that is written into each workspace."""
SETUP = SetupPlan(("mkdir -p /env/bin && cp /bin/true /env/bin/tool",), key="bench")
AIM_BUBBLEWRAP = 0.1
AIM_BEYOND_CREATE = 0.15


@dataclass(slots=True)
class WorkspaceFigures:
    """Seconds. `empty` is the next workspace with no file in it, so that the disk has no part in it.

    `create` is what E2B's own library takes to make a machine, `files` what writing the tree takes.
    """

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    empty: list[float] = field(default_factory=list)
    create: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)


Make = Callable[[Path], SandboxProvider]


def measure(ground: BenchDirectory, repeat: int) -> list[Row]:
    """Everywhere the same tree, and a set-up without a download. What cannot be had here is said, not left out."""
    rows: list[Row] = []
    absent: list[str] = []
    for name in ("bubblewrap", "e2b", "docker", "podman"):
        try:
            with provided(name, ground.root) as (make, create):
                taken = asyncio.run(_measured(make, create, ground.root, repeat))
        except (AgentFixError, Absent) as why:
            absent.append(f"{name}: not measured. {why}")
            continue
        rows += rows_of(name, taken)
    if absent:
        print("\n".join([*absent, ""]))
    return rows


class Absent(Exception):  # noqa: N818 - a state of the machine
    """This kind of sandbox cannot be had here."""


@contextmanager
def provided(name: str, root: Path) -> Iterator[tuple[Make, Callable[[], Awaitable[None]] | None]]:
    """What makes a provider whose state is in a directory; for E2B also what makes a machine without us."""
    with ExitStack() as stack:
        match name:
            case "bubblewrap":
                environment = dict(os.environ)
                yield (
                    lambda place: BubblewrapProvider(place / "jobs", caches=place / "caches", environment=environment),
                    None,
                )
            case "e2b":
                if os.geteuid():
                    raise Absent("A machine of the local E2B has two accounts, which only root can make.")
                server = stack.enter_context(local_e2b(root / "e2b"))
                yield (
                    lambda place: E2BProvider(server.account, scope=str(place), caches=place / "caches"),
                    lambda: _create(server),
                )
            case _:
                engine = obtained(name)
                stack.callback(end_engines)
                if isinstance(engine, str):
                    raise Absent(engine)
                yield lambda place: container_provider(engine, place), None


async def _create(server: LocalE2B) -> None:
    """By E2B's own library, from the same kept set-up as the workspaces."""
    machine = await AsyncSandbox.create(list(server.snapshots)[-1], timeout=60, **server.account.parameters)
    await AsyncSandbox.kill(machine.sandbox_id, **server.account.parameters)


async def _measured(
    make: Make, create: Callable[[], Awaitable[None]] | None, root: Path, repeat: int
) -> WorkspaceFigures:
    taken = WorkspaceFigures()
    for turn in range(repeat):
        with tempfile.TemporaryDirectory(prefix="workspaces-", dir=root) as directory:
            place = Path(directory)
            for parent in (root, place):
                parent.chmod(0o711)  # as root, a command is another user's
            provider = make(place)
            for among, key in ((taken.cold, "first"), (taken.warm, "next"), (taken.again, "next")):
                among.append(await _opened(provider, _spec(f"{key}-{turn}")))
            taken.empty.append(await _opened(provider, SandboxSpec(f"empty-{turn}", lambda _: None, SETUP)))
            taken.files.append(await asyncio.to_thread(_written, place / "files"))
            for key in ("first", "next", "empty"):
                await (await provider.open(_spec(f"{key}-{turn}"))).destroy()
        if create is not None:
            begun = monotonic()
            await create()
            taken.create.append(monotonic() - begun)
    return taken


async def _opened(provider: SandboxProvider, spec: SandboxSpec) -> float:
    begun = monotonic()
    sandbox = await provider.open(spec)
    seconds = monotonic() - begun
    await sandbox.close()
    return seconds


def _written(tree: Path) -> float:
    tree.mkdir()
    begun = monotonic()
    _fill(tree)
    return monotonic() - begun


def _spec(key: str) -> SandboxSpec:
    return SandboxSpec(key, _fill, SETUP)


def _fill(tree: Path) -> None:
    for number in range(20):
        (tree / f"package{number}").mkdir()
    for number in range(FILES):
        with open(f"{tree}/package{number % 20}/module{number}.py", "wb") as file:  # noqa: PTH123 - of us it costs least
            file.write(CONTENT)


def rows_of(name: str, taken: WorkspaceFigures) -> list[Row]:
    aim = AIM_BUBBLEWRAP if name == "bubblewrap" else None
    rows = [
        Row(f"workspace in {name}, the first", taken.cold, "s"),
        Row(f"  the next, {FILES} files", taken.warm, "s"),
        Row("  the next, empty", taken.empty, "s", aim=aim),
        Row("  opened again", taken.again, "s"),
        Row(f"  {FILES} files written, and nothing else", taken.files, "s"),
    ]
    if taken.create:
        beyond = [seconds - median(taken.create) for seconds in taken.empty]
        rows.append(Row("  a machine made and ended without us", taken.create, "s"))
        rows.append(Row("  the next, empty, beyond that", beyond, "s", aim=AIM_BEYOND_CREATE))
    return rows
