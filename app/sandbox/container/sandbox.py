"""A job's sandbox in a container: runs commands over its files, which stay when it is stopped."""

import logging
from collections.abc import Mapping
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import MODEL_SOCKET, CompletedCommand, SandboxLimits
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.container.engine import MissingContainerError
from app.sandbox.container.machine import ContainerMachine
from app.sandbox.machine.commands import MachineCommands
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.setup.plan import WORK_ENVIRONMENT

logger = logging.getLogger(__name__)


class ContainerSandbox(Executor):
    """Its state is in the engine; opening the same key returns it, until it is destroyed."""

    isolated = True

    def __init__(
        self,
        machine: ContainerMachine,
        key: str,
        limits: SandboxLimits,
        environment: Mapping[str, str],
        model_socket: Path | None = None,
    ) -> None:
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._machine = machine
        self._commands = MachineCommands(machine, limits, environment)
        self._raw_call = SocketTunnel(machine, MODEL_SOCKET, model_socket) if model_socket is not None else None

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if self._raw_call is not None:
            await self._raw_call.follow()
        return await self.prepare(command.with_defaults(dict(WORK_ENVIRONMENT)))

    async def prepare(self, command: SandboxCommand) -> CompletedCommand:
        """As `execute`, without the variables that keep package clients offline, and without a socket."""
        return await self._commands.execute(command)

    async def close(self) -> None:
        """A stopped container waits for the next `open` and costs only disk space."""
        if self._commands.closed:
            return
        await self._end_all()
        try:
            await self._machine.engine.stop(self._machine.name)
        except MissingContainerError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s may still run: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._commands.closed:
            await self._end_all()
        await self._machine.engine.remove(self._machine.name)

    async def _end_all(self) -> None:
        await self._commands.end_all()
        if self._raw_call is not None:
            await self._raw_call.close()
