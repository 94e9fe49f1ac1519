"""Runs one bubblewrap per command over fixed mounts, and watches its process 1 to the end.

Killing bwrap kills what is inside (`--die-with-parent`), but a moment later, and nothing could wait for that. So
process 1 of the namespace is killed and awaited by its own descriptor, which never refers to another process.

The command waits at a gate until its process 1 is known and has joined its control group (for which the kernel may take
10 ms, while bwrap sets up). Until then nothing would end it if we were killed, because bwrap ties itself to its parent
last. So bwrap holds the gate's other end open, and a command that we never release never starts.
"""

import asyncio
import errno
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox import seccomp
from app.sandbox.base import CompletedCommand, SandboxLimits
from app.sandbox.bubblewrap.cgroup import Cgroup, make_cgroup
from app.sandbox.bubblewrap.profile import UPPER, WORK, HostMachine, Mount, options, split_variables, within
from app.sandbox.child_process import ChildProcess, ProcessSpec, end_all
from app.sandbox.command import Executor, SandboxCommand, cannot_execute
from app.sandbox.disk_quota import DiskQuota
from app.sandbox.host_directories import remove_tree


def limit_processors(pid: int, most: int) -> None:
    """Let a process, and all that it starts later, run on `most` processors, chosen at random.

    Raises OSError if the process is gone. Hostile code can lift the limit for itself: a control group is stronger.
    """
    if hasattr(os, "sched_setaffinity"):  # Linux
        there = sorted(os.sched_getaffinity(0))
        if len(there) > most:
            os.sched_setaffinity(pid, random.sample(there, most))


END_SECONDS = 10.0


class BubblewrapStart:
    """Enter it before bwrap is started; `inherited` descriptors go to bwrap, which needs `options` first."""

    def __init__(self, arguments: Sequence[str], cpus: int, group: Cgroup | None = None) -> None:
        self._group = group
        self._cpus = cpus
        self._gate_inside, self._gate = os.pipe()
        self._kill_requested = False
        self._joining: asyncio.Task[None] | None = None
        self._filter = _memory("seccomp", seccomp.program())
        self._status, self._status_inside = os.pipe()
        os.set_blocking(self._status, False)
        options = ["--seccomp", str(self._filter), "--json-status-fd", str(self._status_inside)]
        options += ["--block-fd", str(self._gate_inside), "--sync-fd", str(self._gate), *arguments]
        self._arguments = _memory("arguments", b"".join(os.fsencode(argument) + b"\0" for argument in options))
        self._status_output = b""
        self._process_1: int | None = None
        self.problem = ""
        """If not empty: why the command could not be limited, and so was never started."""

    def __enter__(self) -> "BubblewrapStart":
        asyncio.get_running_loop().add_reader(self._status, self._read_status)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._status, *(() if self._process_1 is None else (self._process_1,))):
            asyncio.get_running_loop().remove_reader(descriptor)
        watched = () if self._process_1 is None else (self._process_1,)
        for descriptor in (*self.inherited, self._status, *watched):
            os.close(descriptor)

    @property
    def inherited(self) -> tuple[int, ...]:
        """bwrap closes those that its options name before the command starts."""
        return self._filter, self._arguments, self._status_inside, self._gate_inside, self._gate

    @property
    def options(self) -> list[str]:
        return ["--args", str(self._arguments)]

    def began(self) -> bool:
        """bwrap reports an exit code only of a command that it started."""
        self._read_status()
        return "exit-code" in self._report()

    def kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill at once, or as soon as bwrap has named its process 1, which would otherwise survive bwrap."""
        self._kill_requested = True
        self._read_status()
        if self._process_1 is not None:
            _kill(self._process_1)

    async def wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        self._read_status()
        if self._joining is not None:
            await self._joining
        if self._process_1 is None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process_1, ended.set)  # such a descriptor becomes readable when its process has ended
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await ended.wait()
        finally:
            loop.remove_reader(self._process_1)
        self._reap(self._process_1)

    @staticmethod
    def _reap(first: int) -> None:
        """bwrap leaves its process 1 to the machine's init, which in some containers is this process."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, first, os.WEXITED | os.WNOHANG)

    def _read_status(self) -> None:
        with suppress(BlockingIOError):
            self._status_output += os.read(self._status, 65536)
        if self._process_1 is not None:
            return
        pid = self._report().get("child-pid")
        self._process_1 = watch(pid) if isinstance(pid, int) else None
        if self._process_1 is None or not isinstance(pid, int):
            return
        with suppress(OSError):  # it is gone
            limit_processors(pid, self._cpus)
        if self._kill_requested:
            _kill(self._process_1)
        elif self._group is not None:
            self._joining = asyncio.create_task(self._join(pid, self._process_1, self._group))
        else:
            os.write(self._gate, b"1")

    async def _join(self, pid: int, first: int, group: Cgroup) -> None:
        """Open the gate once the limits hold. If they cannot be set, the command never starts."""
        try:
            await asyncio.to_thread(group.join, pid)
        except OSError as error:
            self.problem = "" if isinstance(error, ProcessLookupError) else f"its control group: {error}"
            _kill(first)
        else:
            os.write(self._gate, b"1")

    def _report(self) -> dict[str, object]:
        """The complete lines so far; a later line never changes which process is watched."""
        report: dict[str, object] = {}
        for line in self._status_output.split(b"\n")[:-1]:
            with suppress(ValueError):
                entry = json.loads(line)
                report |= entry if isinstance(entry, dict) else {}
        return report


def _kill(watched: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched, signal.SIGKILL)


def watch(pid: int) -> int | None:
    """A descriptor of the process, if it is still the first of a namespace: a number alone may be reused."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    if len(numbers) > 1 and numbers[-1] == "1":
        return descriptor
    os.close(descriptor)
    return None


def _memory(name: str, content: bytes) -> int:
    """A descriptor that reads `content` from its start."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


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
            completed = await self._run(order, start)
            if group is None or not group.refused():
                return completed
            note = f"\n[the command reached the sandbox's limit of {self.limits.processes} processes]\n".encode()
            if command.separate_stderr:
                return replace(completed, stderr=completed.stderr + note)
            return replace(completed, output=completed.output + note)

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
