"""One bubblewrap per command over fixed mounts: what a job's sandbox and the set-up phase are both made of."""

import asyncio
import errno
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import SandboxError
from app.sandbox import seccomp
from app.sandbox.base import WORKSPACE, Completed, Limits, OnOutput
from app.sandbox.cgroup import Cgroup, make_cgroup
from app.sandbox.child import Child, Order
from app.sandbox.profile import Machine, Mount, command, options

CANNOT_EXECUTE = 126
REMOVAL_TRIES = 50


@dataclass(slots=True, eq=False)
class Box:
    """`mounts` is asked at each command, because some mount points may have gone in between."""

    machine: Machine
    mounts: Callable[[], Sequence[Mount]]
    limits: Limits
    environment: Mapping[str, str]
    _running: set[Child] = field(default_factory=set)
    _left: list[Cgroup] = field(default_factory=list)
    _closed: bool = False

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 120.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        separate_stderr: bool = False,
        on_output: OnOutput | None = None,
    ) -> Completed:
        if self._closed:
            raise SandboxError("The sandbox is closed.")
        reason = unusable([*argv, cwd, *(env or {})], env or {})
        if reason:
            return Completed(CANNOT_EXECUTE, f"{reason}\n".encode())
        arguments = options(
            self.machine, self.mounts(), {**self.machine.environment(), **self.environment, **(env or {})}
        )
        with _Start(arguments) as start, self._limited() as group:
            order = Order(
                argv=[*self._head(group), *start.options, "--", *self._tail(argv, cwd, group)],
                env={},  # what process 1 inside shows in its environ
                cwd=Path("/"),
                pass_fds=start.inherited,
                stdin=stdin,
                timeout=timeout,
                keep=self.limits.output,
                separate_stderr=separate_stderr,
                on_output=on_output,
            )
            return await self._run(order, start)

    async def close(self) -> None:
        """End what is running, and give the control groups back."""
        self._closed = True
        running = list(self._running)
        for child in running:
            child.kill()
        await asyncio.gather(*(child.over() for child in running))
        for _ in range(REMOVAL_TRIES):
            if not self._left:
                break
            await asyncio.sleep(0.01)
            self._remove_left()

    async def _run(self, order: Order, start: "_Start") -> Completed:
        child = Child(order, start.end)
        self._running.add(child)
        try:
            completed = await child.run()
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise SandboxError(f"The sandbox could not be started: {error}") from error
            return Completed(CANNOT_EXECUTE, f"{error.strerror}\n".encode())
        finally:
            self._running.discard(child)
        if not start.began() and completed.exit_code < 128 and not completed.timed_out:
            told = (completed.output + completed.stderr).decode(errors="replace").strip()
            raise SandboxError(f"The sandbox could not be started: {told or 'bubblewrap said nothing'}", hint=REPAIR)
        return completed

    @contextmanager
    def _limited(self) -> Iterator[Cgroup | None]:
        """A control group for one command, where this machine lets us have one."""
        group = make_cgroup(self.limits)
        try:
            yield group
        finally:
            if group is not None:
                self._left.append(group)
                self._remove_left()

    def _remove_left(self) -> None:
        """The kernel lets go of a group a moment after its last process, so some are tried again later."""
        self._left = [group for group in self._left if not group.remove()]

    def _head(self, group: Cgroup | None) -> list[str]:
        """A shell that joins the control group and becomes bwrap, found by PATH so that only its name shows inside."""
        bwrap = self.machine.programs.bwrap
        join = group.joining() if group else ""
        script = f'{join}PATH={shlex.quote(str(bwrap.parent))} exec "$@"'
        return [self.machine.programs.shell, "-c", script, "sh", bwrap.name]

    def _tail(self, argv: Sequence[str], cwd: str, group: Cgroup | None) -> list[str]:
        return command(self.machine, self.limits, argv, cwd=cwd, grouped=group is not None)


REPAIR = "Run `agent-fix doctor`: it tries each property of the sandbox and prints the repair."


class _Start:
    """The three descriptors of one start: arguments and filter go in, the status comes out."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._filter = _memory("seccomp", seccomp.program())
        self._status, self._status_inside = os.pipe()
        os.set_blocking(self._status, False)
        numbered = ["--seccomp", str(self._filter), "--json-status-fd", str(self._status_inside), *arguments]
        self._arguments = _memory("arguments", b"".join(os.fsencode(argument) + b"\0" for argument in numbered))
        self._told = b""

    def __enter__(self) -> "_Start":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self.inherited, self._status):
            os.close(descriptor)

    @property
    def inherited(self) -> tuple[int, int, int]:
        return self._filter, self._arguments, self._status_inside

    @property
    def options(self) -> list[str]:
        return ["--args", str(self._arguments)]

    def end(self, process: asyncio.subprocess.Process) -> None:
        """Kill process 1 of the namespace, and with it everything inside, before bwrap itself ends.

        Killing bwrap first would do too (`--die-with-parent`), but then nothing could wait for the rest to be gone.
        """
        if process.returncode is not None:
            return
        first = self._report().get("child-pid")
        with suppress(ProcessLookupError):
            os.kill(first if isinstance(first, int) else process.pid, signal.SIGKILL)

    def began(self) -> bool:
        """bwrap reports an exit code only of a command that it came to start."""
        return "exit-code" in self._report()

    def _report(self) -> dict[str, object]:
        with suppress(BlockingIOError):
            self._told += os.read(self._status, 65536)
        report: dict[str, object] = {}
        for line in self._told.splitlines(keepends=True):
            if line.endswith(b"\n"):
                report |= json.loads(line)
        return report


def _memory(name: str, content: bytes) -> int:
    """A descriptor that reads `content` from its start."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def unusable(texts: Sequence[str], env: Mapping[str, str]) -> str:
    """Why the kernel could not take these as arguments; empty where it can."""
    for text in (*texts, *env.values()):
        if "\0" in text:
            return "a command's arguments cannot hold a NUL byte"
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            return "a command's arguments must be text or bytes, and this is neither"
    return "" if texts and texts[0] else "there is no command"
