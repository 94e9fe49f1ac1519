"""Runs one bubblewrap per command over fixed mounts, for jobs' sandboxes and for the set-up phase."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import CompletedCommand, SandboxLimits
from app.sandbox.bubblewrap.cgroup import Cgroup, make_cgroup
from app.sandbox.bubblewrap.profile import UPPER, WORK, HostMachine, Mount, options, split_variables, within
from app.sandbox.bubblewrap.start import BubblewrapStart
from app.sandbox.child_process import ChildProcess, ProcessSpec, end_all
from app.sandbox.command import Executor, SandboxCommand, cannot_execute
from app.sandbox.disk_quota import DiskQuota
from app.sandbox.host_directories import remove_tree

REMOVAL_TRIES = 50


@dataclass(slots=True, eq=False)
class BubblewrapCommand(Executor):
    """`mounts` is called for each command, because mount points may have been removed in between.

    `changes` is a directory for what commands write to mounts that are restored after each.
    """

    machine: HostMachine
    mounts: Callable[[], Sequence[Mount]]
    limits: SandboxLimits
    environment: Mapping[str, str]
    changes: Path | None = None
    _running: set[ChildProcess] = field(default_factory=set)
    _groups_to_remove: list[Cgroup] = field(default_factory=list)
    _closed: bool = False
    _quota: DiskQuota = field(init=False)

    def __post_init__(self) -> None:
        written = [mount.source for mount in self.mounts() if mount.writable]
        if self.changes is not None:
            self.changes.mkdir(mode=0o700, exist_ok=True)
            written.append(self.changes)
        self._quota = DiskQuota(written, self.limits.disk)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if self._closed:
            raise SandboxError("The sandbox is closed.")
        if command.unusable:
            return cannot_execute(command.unusable)
        variables = {**self.machine.environment(), **self.environment, **command.env}
        early, late = split_variables(self.machine, variables)
        mounts = self._with_changes(self.mounts())
        try:
            return await self._execute(command, options(self.machine, mounts, early), late)
        finally:
            await asyncio.to_thread(_remove_changes, [mount.changes for mount in mounts if mount.changes is not None])

    async def _execute(
        self, command: SandboxCommand, arguments: Sequence[str], late: Mapping[str, str]
    ) -> CompletedCommand:
        with self._limited() as group, BubblewrapStart(arguments, self.limits.cpus, group) as start:
            bwrap = self.machine.programs.bwrap
            tail = within(self.machine, self.limits, command, variables=late, grouped=group is not None)
            order = ProcessSpec(
                command,
                argv=[bwrap.name, *start.options, "--", *tail],  # process 1 shows this in its cmdline, and
                env={},  # this in its environ
                cwd=Path("/"),
                keep=self.limits.output,
                executable=bwrap,
                pass_fds=start.inherited,
                quota=self._quota,
            )
            return await self._run(order, start)

    async def close(self) -> None:
        """End what is running, and remove the control groups."""
        self._closed = True
        await end_all(self._running)
        for _ in range(REMOVAL_TRIES):
            if not self._groups_to_remove:
                break
            await asyncio.sleep(0.01)
            self._remove_groups()

    def _with_changes(self, mounts: Sequence[Mount]) -> list[Mount]:
        """The mounts, each restored one with its own new directory; without one it is read-only."""
        if self.changes is None or not self.machine.overlays:
            return list(mounts)
        return [
            replace(mount, changes=self._new_changes(mount.source)) if mount.restored else mount for mount in mounts
        ]

    def _new_changes(self, source: Path) -> Path:
        """The upper directory's owner, mode and times are those that the command sees."""
        assert self.changes is not None  # noqa: S101 - the caller asked
        about = source.stat()
        directory = self._free_directory(self.changes)
        for name in (UPPER, WORK):
            (directory / name).mkdir()
            if self.machine.owner is not None:
                os.chown(directory / name, about.st_uid, about.st_gid)
        (directory / UPPER).chmod(0o755)
        os.utime(directory / UPPER, ns=(about.st_atime_ns, about.st_mtime_ns))
        return directory

    @staticmethod
    def _free_directory(parent: Path) -> Path:
        """The first free number: a command sees the name in its mounts, which must not tell base from head."""
        for number in count():
            with suppress(FileExistsError):
                (parent / str(number)).mkdir(mode=0o700)
                return parent / str(number)
        raise AssertionError("numbers do not end")

    async def _run(self, order: ProcessSpec, start: BubblewrapStart) -> CompletedCommand:
        child = ChildProcess(order, start)
        self._running.add(child)
        try:
            completed = await child.run()
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise SandboxError(f"The sandbox could not be started: {error}") from error
            return cannot_execute(error.strerror or "the arguments are too long")
        finally:
            self._running.discard(child)
        if start.problem or (not start.began() and completed.exit_code < 128 and not completed.timed_out):
            message = start.problem or (completed.output + completed.stderr).decode(errors="replace").strip()
            raise SandboxError(
                f"The sandbox could not be started: {message or 'no message from bubblewrap'}", hint=REPAIR
            )
        return completed

    @contextmanager
    def _limited(self) -> Iterator[Cgroup | None]:
        """A control group for one command, if this machine allows one."""
        group = make_cgroup(self.limits)
        try:
            yield group
        finally:
            if group is not None:
                self._groups_to_remove.append(group)
                self._remove_groups()

    def _remove_groups(self) -> None:
        """The kernel releases a group a moment after its last process, so removal is tried again later."""
        self._groups_to_remove = [group for group in self._groups_to_remove if not group.remove()]


def _remove_changes(changes: Sequence[Path]) -> None:
    """Blocking. What cannot be removed now is removed with the sandbox."""
    for directory in changes:
        with suppress(SandboxError):
            remove_tree(directory)


REPAIR = "Run `agent-fix doctor`: it checks each property of the sandbox and prints the repair."
