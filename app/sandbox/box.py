"""One bubblewrap per command over fixed mounts: what a job's sandbox and the set-up phase are both made of."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from app.errors import SandboxError
from app.sandbox.base import WORKSPACE, Completed, Limits, OnOutput
from app.sandbox.cgroup import Cgroup, make_cgroup
from app.sandbox.child import Child, Order
from app.sandbox.profile import Machine, Mount, command, options, split_variables
from app.sandbox.start import Start

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
        reason = unusable(argv, (cwd, *chain.from_iterable((env or {}).items())))
        if reason:
            return Completed(CANNOT_EXECUTE, f"{reason}\n".encode())
        variables = {**self.machine.environment(), **self.environment, **(env or {})}
        early, late = split_variables(self.machine, variables)
        arguments = options(self.machine, self.mounts(), early)
        with self._limited() as group, Start(arguments, group) as start:
            bwrap = self.machine.programs.bwrap
            tail = command(self.machine, self.limits, argv, cwd=cwd, variables=late, grouped=group is not None)
            order = Order(
                argv=[bwrap.name, *start.options, "--", *tail],  # what process 1 shows in its cmdline, and
                env={},  # in its environ
                executable=bwrap,
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

    async def _run(self, order: Order, start: Start) -> Completed:
        child = Child(order, start)
        self._running.add(child)
        try:
            completed = await child.run()
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise SandboxError(f"The sandbox could not be started: {error}") from error
            return Completed(CANNOT_EXECUTE, f"{error.strerror}\n".encode())
        finally:
            self._running.discard(child)
        if start.problem or (not start.began() and completed.exit_code < 128 and not completed.timed_out):
            told = start.problem or (completed.output + completed.stderr).decode(errors="replace").strip()
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


REPAIR = "Run `agent-fix doctor`: it tries each property of the sandbox and prints the repair."


def unusable(argv: Sequence[str], others: Iterable[str]) -> str:
    """Why the kernel could not take these as arguments and the like; empty where it can."""
    if not argv or not argv[0]:
        return "there is no command"
    if "=" in argv[0]:
        return "the name of a command cannot hold ="
    for text in (*argv, *others):
        if "\0" in text:
            return "a command's arguments cannot hold a NUL byte"
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            return "a command's arguments must be text or bytes, and this is neither"
    return ""
