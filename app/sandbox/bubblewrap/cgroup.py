"""Limits what one sandbox uses with a control group, version 1 or 2, if this machine allows it."""

import itertools
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.base import SandboxLimits

MOUNT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")
PREFIX = "agent-fix-"
PERIOD = 100_000
"""Microseconds, the kernel's default, in which a group gets its processor time."""
OWN_PROCESSES = 2
"""bwrap as process 1 inside and one helper; not counted against the command."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One directory for both controllers, or (version 1) one for each."""

    directories: tuple[Path, ...]

    def join(self, pid: int) -> None:
        """Move a process and everything it will start. Raises OSError if it is gone or may not be moved."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def refused(self) -> bool:
        """Whether a process could not be started because there were too many."""
        events = (directory / "pids.events" for directory in self.directories)
        return any(not path.read_text().startswith("max 0") for path in events if path.exists())

    def remove(self) -> bool:
        """True if it is gone; False while a dying process still holds it."""
        for directory in self.directories:
            with suppress(OSError):
                directory.rmdir()
        return not any(directory.exists() for directory in self.directories)


def make_cgroup(limits: SandboxLimits, *, mount: Path = MOUNT, own: Path = SELF) -> Cgroup | None:
    """A new group with these limits, or None without a writable hierarchy with both controllers."""
    name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(6)}"  # visible inside, so it contains no sequential number
    for places, settings in _candidates(limits, mount, _membership(own)):
        made = _make([place / name for place in places], settings)
        if made is not None:
            return _with_cpus(made, limits.cpus, mount, _membership(own))
    return None


def _with_cpus(made: Cgroup, cpus: int, mount: Path, membership: str) -> Cgroup:
    """The group with a limit of processor time, if this machine passes that controller on."""
    with suppress(OSError):
        if (made.directories[0] / "cpu.max").exists():
            (made.directories[0] / "cpu.max").write_text(f"{cpus * PERIOD} {PERIOD}")
    for place in _cpu_places(mount, membership):
        directory = place / made.directories[0].name
        try:
            directory.mkdir()
            (directory / "cpu.cfs_quota_us").write_text(str(cpus * PERIOD))
        except OSError:
            with suppress(OSError):
                directory.rmdir()
        else:
            return Cgroup((*made.directories, directory))
    return made


def _cpu_places(mount: Path, membership: str) -> list[Path]:
    """Where version 1 may limit processors."""
    found = dict.fromkeys(
        place
        for line in membership.splitlines()
        for _, controllers, path in [line.split(":", 2)]
        if "cpu" in controllers.split(",")
        for place in (mount / controllers / path.lstrip("/"), mount / controllers)
    )
    return [place for place in found if (place / "cpu.cfs_quota_us").exists()]


def sweep(*, mount: Path = MOUNT, own: Path = SELF) -> None:
    """Remove the groups of processes that died without closing their sandboxes."""
    parents = {place for places, _ in _candidates(SandboxLimits(), mount, _membership(own)) for place in places}
    parents |= set(_cpu_places(mount, _membership(own)))
    for left in itertools.chain.from_iterable(parent.glob(f"{PREFIX}*") for parent in parents):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            with suppress(OSError):
                left.rmdir()


def _membership(own: Path) -> str:
    return own.read_text() if own.exists() else ""


Settings = Sequence[tuple[str, str]]


def _candidates(limits: SandboxLimits, mount: Path, membership: str) -> list[tuple[list[Path], Settings]]:
    """Where groups might be created, best first, and what to write to which file."""
    memory, processes = str(limits.memory), str(limits.processes + OWN_PROCESSES)
    paths = dict(line.split(":", 2)[1:] for line in membership.splitlines() if line.count(":") >= 2)
    if "memory" in paths and "pids" in paths:  # version 1: each controller has its own hierarchy
        first = [(f"memory.{kind}limit_in_bytes", memory) for kind in ("", "memsw.")] + [("pids.max", processes)]
        own = [mount / controller / paths[controller].lstrip("/") for controller in ("memory", "pids")]
        return [(own, first), ([mount / "memory", mount / "pids"], first)]  # in a container the path is the host's
    if "" not in paths:
        return []
    # Version 2: children can have limits only if their parent passes the controllers on, which a group with processes
    # of its own may not; so after our own group its parent and the root are tried.
    settings = [("memory.max", memory), ("memory.swap.max", "0"), ("pids.max", processes)]
    here = mount / paths[""].lstrip("/")
    return [([place], settings) for place in dict.fromkeys((here, here.parent, mount)) if place.is_relative_to(mount)]


OPTIONAL_FILES = frozenset({"memory.memsw.limit_in_bytes", "memory.swap.max"})
"""Kernels without swap accounting do not have these."""


def _make(directories: list[Path], settings: Settings) -> Cgroup | None:
    made: list[Path] = []
    try:
        for directory in directories:
            _delegate_controllers(directory.parent)
            directory.mkdir()
            made.append(directory)
        for file, value in settings:
            _limit(directories, file, value)
    except OSError:
        for directory in made:
            directory.rmdir()
        return None
    return Cgroup(tuple(directories))


def _delegate_controllers(parent: Path) -> None:
    control = parent / "cgroup.subtree_control"
    if control.exists() and not {"memory", "pids"} <= set(control.read_text().split()):
        control.write_text("+memory +pids")
    with suppress(OSError):  # the rest is worth having without it
        if control.exists() and "cpu" not in control.read_text().split():
            control.write_text("+cpu")


def _limit(directories: list[Path], file: str, value: str) -> None:
    for directory in directories:
        if (directory / file).exists():
            (directory / file).write_text(value)
            return
    if file not in OPTIONAL_FILES:
        raise FileNotFoundError(file)
