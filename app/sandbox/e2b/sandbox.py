"""A job's sandbox in the cloud, as the port has it: commands over one machine's files, parked or ended with it."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

from e2b import AsyncSandbox

from app.errors import SandboxError
from app.sandbox.base import ENV, HOME, WORKSPACE, Completed, Limits, OnOutput, Setup
from app.sandbox.command import CANNOT_EXECUTE, unusable
from app.sandbox.e2b.calls import LostError
from app.sandbox.e2b.cloud import ALIVE, Cloud
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.inside.execution import Execution, Order
from app.sandbox.profile import SYSTEM_PATH
from app.sandbox.setup import WORK_ENVIRONMENT

logger = logging.getLogger(__name__)
RENEWED_SECONDS = 600.0
"""How long the machine's time to live is taken as it is before it is asked for again."""


class E2BSandbox:
    """Its state is in the cloud; whoever opens the same key has it again, until it is destroyed or its time is up."""

    isolated = True

    def __init__(self, cloud: Cloud, machine: AsyncSandbox, key: str, limits: Limits, setup: Setup | None) -> None:
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._cloud = cloud
        self._machine = machine
        self._limits = limits
        self._environment = {
            "PATH": ":".join((f"{ENV}/bin", *SYSTEM_PATH)),
            "HOME": HOME,
            "TMPDIR": "/tmp",  # noqa: S108 - a path inside the sandbox
            "LANG": "C.UTF-8",
            **dict(setup.environment if setup else ()),
        }
        self._running: set[Execution] = set()
        self._renewed = time.monotonic()
        self._closed = False

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
        added = {**dict(WORK_ENVIRONMENT), **(env or {})}
        return await self.execute(
            argv,
            timeout=timeout,
            stdin=stdin,
            env=added,
            cwd=cwd,
            separate_stderr=separate_stderr,
            on_output=on_output,
        )

    async def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        separate_stderr: bool = False,
        on_output: OnOutput | None = None,
    ) -> Completed:
        """As `exec`, without the variables that keep package clients offline."""
        if self._closed:
            raise SandboxError("The sandbox is closed.")
        reason = unusable(argv, (cwd, *chain.from_iterable((env or {}).items())))
        if reason:
            return Completed(CANNOT_EXECUTE, f"{reason}\n".encode())
        await self._stay(timeout)
        order = Order(
            argv=argv,
            env={**self._environment, **(env or {})},
            cwd=cwd,
            limits=self._limits,
            timeout=timeout,
            stdin=stdin,
            separate_stderr=separate_stderr,
            on_output=on_output,
        )
        execution = Execution(E2BMachine(self._cloud, self._machine), order)
        self._running.add(execution)
        try:
            return await execution.carry_out()
        finally:
            self._running.discard(execution)

    async def close(self) -> None:
        """Paused, it waits for the next `open` and costs no machine time."""
        if self._closed:
            return
        await self._end_all()
        try:
            await self._cloud.pause(self._machine)
        except LostError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s runs on until its time is up: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._closed:
            await self._end_all()
        await self._cloud.kill(self._machine.sandbox_id)

    async def _end_all(self) -> None:
        self._closed = True
        running = list(self._running)
        for execution in running:
            with suppress(SandboxError):  # a lost machine executes nothing
                await execution.kill()
        await asyncio.gather(*(execution.over() for execution in running))

    async def _stay(self, timeout: float) -> None:
        """E2B ends a machine by a clock of its own, which is set again before a command could reach it."""
        age = time.monotonic() - self._renewed
        if age > RENEWED_SECONDS or age + timeout > ALIVE:
            await self._cloud.stay(self._machine)
            self._renewed = time.monotonic()
