"""Starts bubblewrap once: passes arguments and filter by descriptors, and watches its process 1 to the end.

Killing bwrap kills what is inside (`--die-with-parent`), but a moment later, and nothing could wait for that. So
process 1 of the namespace is killed and awaited by its own descriptor, which never refers to another process.

The command waits at a gate until its process 1 is known and has joined its control group (for which the kernel may take
10 ms, while bwrap sets up). Until then nothing would end it if we were killed, because bwrap ties itself to its parent
last. So bwrap holds the gate's other end open, and a command that we never release never starts.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from app.sandbox import seccomp
from app.sandbox.bubblewrap.cgroup import Cgroup


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
