"""A job's sandbox in the cloud: runs commands over one machine's files; paused or ended with it."""

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import ENV, HOME, MODEL_SOCKET, CompletedCommand, SandboxLimits, SetupPlan
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.e2b.calls import LostMachineError
from app.sandbox.e2b.cloud import LIFETIME, E2BCloud
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.machine.commands import MachineCommands
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.setup.plan import WORK_ENVIRONMENT

logger = logging.getLogger(__name__)


class E2BSandbox(Executor):
    """Its state is in the cloud; opening the same key returns it, until it is destroyed or its time runs out."""

    isolated = True

    def __init__(
        self,
        cloud: E2BCloud,
        machine: AsyncSandbox,
        key: str,
        limits: SandboxLimits,
        setup: SetupPlan | None = None,
        *,
        model_socket: Path | None = None,
        network: bool = False,
    ) -> None:
        """`network` is the machine's, for set-up commands; all others have only a loopback interface."""
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._cloud = cloud
        self._machine = machine
        environment = {
            "PATH": ":".join((f"{ENV}/bin", *SYSTEM_PATH)),
            "HOME": HOME,
            "TMPDIR": "/tmp",  # noqa: S108 - a path inside the sandbox
            "LANG": "C.UTF-8",
            **dict(setup.environment if setup else ()),
        }
        inside = E2BMachine(cloud, machine)
        self._commands = MachineCommands(inside, limits, environment, network=network)
        self._raw_call = SocketTunnel(inside, MODEL_SOCKET, model_socket) if model_socket is not None else None
        self._renewed = time.monotonic()

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return await self.execute_online(command.with_defaults(dict(WORK_ENVIRONMENT)))

    async def execute_online(self, command: SandboxCommand) -> CompletedCommand:
        """As `execute`, without the variables that keep package clients offline."""
        if self._commands.closed or command.unusable:
            return await self._commands.execute(command)
        await self._ensure_lifetime(command.timeout)
        if self._raw_call is not None:
            await self._raw_call.follow()
        staying = asyncio.create_task(self._renew_lifetime())
        try:
            return await self._commands.execute(command)
        finally:
            staying.cancel()
            await asyncio.wait({staying})

    async def close(self) -> None:
        """A paused machine waits for the next `open` and costs no machine time."""
        if self._commands.closed:
            return
        await self._end_all()
        try:
            await self._cloud.pause(self._machine)
        except LostMachineError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s runs until its time ends: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._commands.closed:
            await self._end_all()
        await self._cloud.kill(self._machine.sandbox_id)

    async def _end_all(self) -> None:
        await self._commands.end_all()
        if self._raw_call is not None:
            await self._raw_call.close()

    async def _ensure_lifetime(self, timeout: float) -> None:
        """Renew the machine's time to live, so that it outlasts the command."""
        age = time.monotonic() - self._renewed
        if age > self._cloud.renewal or age + timeout > LIFETIME:
            await self._cloud.extend_lifetime(self._machine)
            self._renewed = time.monotonic()

    async def _renew_lifetime(self) -> None:
        """Renew repeatedly, because other agents work for longer than the maximum time to live."""
        while True:
            await asyncio.sleep(self._cloud.renewal)
            with suppress(SandboxError):  # a command in a lost machine reports that itself
                await self._cloud.extend_lifetime(self._machine)
                self._renewed = time.monotonic()
