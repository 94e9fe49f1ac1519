"""Runs one command as a host process: feeds and drains it, limits its time and disk, ends everything it started.

Not by `machine/supervisor.py`, which has to be root inside the machine, and of which only the output's limits are used.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.sandbox.base import CompletedCommand, SandboxCommand
from app.sandbox.host_directories import DiskUse, disk_use
from app.sandbox.machine.supervisor import OutputCapture

OUTPUT_CEILING = 1024**3
"""Bytes of output after which a command is ended: nobody reads more, and draining it costs a processor."""
FLOOD_NOTE = f"\n[ended: the command wrote more than {OUTPUT_CEILING // 1024**3} GiB of output]\n".encode()
CHUNK = 256 * 1024
EXIT_SECONDS = 10.0
"""How long a killed command may take to disappear (a process in a system call is killed when it returns)."""
QUOTA_INTERVAL = 0.25
"""Seconds between two looks at how full the file system is, which cost nothing."""
LATE_BYTES = 256 * 1024
"""By so much the files of an earlier command may still grow: the file system places them on disk later."""
LATE_ENTRIES = 64
QUOTA_STEPS = 16
"""The files are counted when the file system has filled by this part of the limit since the last time."""
UNPROMPTED = 10.0
"""Seconds after which they are counted anyway: not every file system says at once how full it is."""
COUNTING_SHARE = 20
"""Counting takes this part of the time at most, unless the disk fills."""


@dataclass(slots=True)
class DiskQuota:
    """The most bytes, and the most files and directories, of all `directories`. One for the whole life of a sandbox."""

    directories: Sequence[Path]
    limit: int
    entries: int
    note: bytes = b""
    """Which limit was exceeded, as the last line of the command's output."""
    _at_first: DiskUse | None = None
    _when_counted: DiskUse = field(default_factory=lambda: DiskUse(0, 0))
    """In use on the file system, before the first command and when the files were last counted."""
    _due: float = 0.0
    """When they are counted in any case, also across short commands (monotonic clock)."""

    async def watch(self, exceeded: Callable[[], None]) -> None:
        """Call `exceeded` as soon as there is too much. Cancel it when the command is over.

        A command that begins with too much there, left by another, may clean up for as long as it adds next to nothing.
        """
        allowed = DiskUse(self.limit, self.entries)
        if self._at_first is None:
            self._at_first = self._when_counted = self._in_use()
            self._due = time.monotonic() + UNPROMPTED
        elif not self._due:
            left = await asyncio.to_thread(self._count)
            allowed = DiskUse(max(self.limit, left.size + LATE_BYTES), max(self.entries, left.entries + LATE_ENTRIES))
        while True:
            await asyncio.sleep(QUOTA_INTERVAL)
            if not self._has_filled() and time.monotonic() < self._due:
                continue
            self._when_counted, started = self._in_use(), time.monotonic()
            if self._exceeds(await asyncio.to_thread(self._count), allowed):
                self._due = 0.0  # the next command is counted at once
                exceeded()
                return
            self._due = time.monotonic() + max(UNPROMPTED, COUNTING_SHARE * (time.monotonic() - started))

    def _exceeds(self, counted: DiskUse, allowed: DiskUse) -> bool:
        if counted.size > allowed.size:
            what = f"take more than {self.limit // 1024**2} MiB of disk"
        elif counted.entries > allowed.entries:
            what = f"and directories are more than {self.entries:,}"
        else:
            return False
        self.note = f"\n[ended: the sandbox's files {what}]\n".encode()
        return True

    def _has_filled(self) -> bool:
        """Whether the file system has filled by a part of either limit since the last count."""
        now, before = self._in_use(), self._when_counted
        filled = (now.size - before.size) / self.limit, (now.entries - before.entries) / self.entries
        return max(filled) >= 1 / QUOTA_STEPS

    def _in_use(self) -> DiskUse:
        about = os.statvfs(self.directories[0])
        return DiskUse((about.f_blocks - about.f_bfree) * about.f_frsize, about.f_files - about.f_ffree)

    def _count(self) -> DiskUse:
        """What the directories take on disk."""
        counted = disk_use(self.directories)
        if not counted.hidden or self._at_first is None:
            return counted
        # If not all of it may be read, all that has come to the file system since may be in there.
        now, first = self._in_use(), self._at_first
        return DiskUse(max(counted.size, now.size - first.size), max(counted.entries, now.entries - first.entries))


class ProcessKiller(Protocol):
    """Ends a command with everything that it started."""

    def kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill everything now; does nothing if it is over."""
        ...

    async def wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        """After the process has exited: end what it left behind, and return when that is gone."""
        ...


@dataclass(slots=True, eq=False)
class ChildProcess:
    """A running command. `kill` may be called by anybody at any time; `run` then returns soon."""

    command: SandboxCommand
    """Its input, time and listener."""
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    killer: ProcessKiller
    keep: int
    """How much of its output stays."""
    executable: Path | None = None
    """What is started, if not argv's program."""
    pass_fds: Sequence[int] = ()
    """Inherited; the caller closes them."""
    quota: DiskQuota | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _process: asyncio.subprocess.Process | None = None
    _limit_note: bytes = b""
    """A note on the limit for which the command was ended."""

    async def run(self) -> CompletedCommand:
        """Returns when all output is read and the process is gone. Raises OSError if it could not be started."""
        command, quota, started = self.command, self.quota, time.perf_counter()
        out = OutputCapture(self.keep)
        err = OutputCapture(self.keep) if command.separate_stderr else out
        timed_out = False
        watching = asyncio.create_task(quota.watch(lambda: self._end_with_note(quota.note))) if quota else None
        try:
            conversation = asyncio.create_task(self._exchange_output(await self._start(), out, err))
            try:
                done, _ = await asyncio.wait({conversation}, timeout=command.timeout)
                timed_out = not done
            finally:
                if not conversation.done():
                    self.kill()
                # Everything is dead now, so every pipe and its reader come to their end.
                try:
                    await asyncio.wait({conversation}, timeout=EXIT_SECONDS)
                finally:
                    conversation.cancel()
            with suppress(asyncio.CancelledError):
                await conversation
        finally:
            if watching is not None:
                watching.cancel()
            self.over.set()
        return CompletedCommand(
            exit_code=self._exit_code(),
            output=out.value() + self._limit_note,
            stderr=err.value() if command.separate_stderr else b"",
            seconds=time.perf_counter() - started,
            timed_out=timed_out,
            dropped=out.dropped + (err.dropped if command.separate_stderr else 0),
        )

    def kill(self) -> None:
        if self._process is not None:
            self.killer.kill(self._process)

    @property
    def signalled(self) -> bool:
        """True if the program itself was ended by a signal, not only something that it started."""
        return self._process is not None and (self._process.returncode or 0) < 0

    def _end_with_note(self, note: bytes) -> None:
        self._limit_note = note
        self.kill()

    async def _start(self) -> tuple[asyncio.subprocess.Process, list[int]]:
        """The process and the reading ends of its output: one pipe, or two if stderr is separate.

        We make the pipes, because with asyncio's `Process.wait` would wait for a daemon that inherited them.
        """
        command = self.command
        pipes = [os.pipe() for _ in range(2 if command.separate_stderr else 1)]
        with ExitStack() as inherited, ExitStack() as ours:
            for reading, writing in pipes:
                inherited.callback(os.close, writing)
                ours.callback(os.close, reading)
            self._process = await asyncio.create_subprocess_exec(
                *self.argv,
                executable=self.executable,
                env=self.env,
                cwd=self.cwd,
                stdin=asyncio.subprocess.PIPE if command.stdin else asyncio.subprocess.DEVNULL,
                stdout=pipes[0][1],
                stderr=pipes[-1][1] if command.separate_stderr else asyncio.subprocess.STDOUT,
                pass_fds=self.pass_fds,
                start_new_session=True,
            )
            ours.pop_all()  # it has started: the reading ends stay open for their readers
        return self._process, [reading for reading, _ in pipes]

    async def _exchange_output(
        self, running: tuple[asyncio.subprocess.Process, list[int]], *captures: OutputCapture
    ) -> None:
        process, readings = running
        pumps = [self._pump(reading, capture) for reading, capture in zip(readings, captures, strict=False)]
        tasks = [asyncio.create_task(part) for part in (self._feed(process), self._reap(process), *pumps)]
        try:
            await asyncio.gather(*tasks)
        finally:
            if not all(task.done() for task in tasks):  # a listener to the output has failed
                self.kill()
                await asyncio.wait(tasks, timeout=EXIT_SECONDS)

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None:
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read all, or at all
            process.stdin.write(self.command.stdin)
            await process.stdin.drain()
        process.stdin.close()

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        await self.killer.wait_for_end(process)  # a daemon that it left behind would hold the pipes open

    async def _pump(self, reading: int, capture: OutputCapture) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK)
        pipe = os.fdopen(reading, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while chunk := await reader.read(CHUNK):
                capture.add(chunk)
                if self.command.on_output is not None:
                    self.command.on_output(chunk)
                if capture.seen > OUTPUT_CEILING and not self._limit_note:
                    self._end_with_note(FLOOD_NOTE)
        finally:
            transport.close()

    def _exit_code(self) -> int:
        """As in a shell: 128 + signal for a killed process."""
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return 137
        return code if code >= 0 else 128 - code


async def end_all(children: Iterable[ChildProcess]) -> None:
    """Kill them, and wait until they have ended."""
    running = list(children)
    for child in running:
        child.kill()
    await asyncio.gather(*(child.over.wait() for child in running))
