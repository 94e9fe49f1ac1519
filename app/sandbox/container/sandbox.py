"""A job's sandbox in a container, as the port has it: commands over its files, which stay when it is stopped."""

import logging
from collections.abc import Mapping
from pathlib import Path

from app.errors import SandboxError
from app.sandbox.base import WAY_OUT, Completed, Limits
from app.sandbox.command import Command, Executor
from app.sandbox.container.engine import AbsentError
from app.sandbox.container.machine import ContainerMachine
from app.sandbox.inside.commands import Commands
from app.sandbox.inside.passage import Passage
from app.sandbox.setup import WORK_ENVIRONMENT

logger = logging.getLogger(__name__)


class ContainerSandbox(Executor):
    """Its state is in the engine; whoever opens the same key has it again, until it is destroyed."""

    isolated = True

    def __init__(
        self,
        machine: ContainerMachine,
        key: str,
        limits: Limits,
        environment: Mapping[str, str],
        way_out: Path | None = None,
    ) -> None:
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._machine = machine
        self._commands = Commands(machine, limits, environment)
        self._passage = Passage(machine, WAY_OUT, way_out) if way_out is not None else None

    async def execute(self, command: Command) -> Completed:
        if self._passage is not None:
            await self._passage.follow()
        return await self.prepare(command.beneath(dict(WORK_ENVIRONMENT)))

    async def prepare(self, command: Command) -> Completed:
        """As `execute`, without the variables that keep package clients offline, and without a way out."""
        return await self._commands.execute(command)

    async def close(self) -> None:
        """Stopped, it waits for the next `open` and costs disk only."""
        if self._commands.closed:
            return
        await self._end_all()
        try:
            await self._machine.engine.stop(self._machine.name)
        except AbsentError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s may go on: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._commands.closed:
            await self._end_all()
        await self._machine.engine.remove(self._machine.name)

    async def _end_all(self) -> None:
        await self._commands.end_all()
        if self._passage is not None:
            await self._passage.close()
