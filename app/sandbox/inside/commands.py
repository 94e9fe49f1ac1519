"""The commands of one sandbox in a machine: carried out side by side, and ended together."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.errors import SandboxError
from app.sandbox.base import Completed, Limits
from app.sandbox.command import Command, cannot_execute
from app.sandbox.inside.base import Machine
from app.sandbox.inside.execution import Execution, Order


@dataclass(slots=True, eq=False)
class Commands:
    """`environment` is that of every command; `closed` once they were ended for good. `network` as an order has it."""

    machine: Machine
    limits: Limits
    environment: Mapping[str, str]
    closed: bool = False
    network: bool = True
    _running: set[Execution] = field(default_factory=set)

    async def execute(self, command: Command) -> Completed:
        if self.closed:
            raise SandboxError("The sandbox is closed.")
        if command.unusable:
            return cannot_execute(command.unusable)
        order = Order(
            argv=command.argv,
            env={**self.environment, **command.env},
            cwd=command.cwd,
            limits=self.limits,
            timeout=command.timeout,
            stdin=command.stdin,
            separate_stderr=command.separate_stderr,
            on_output=command.on_output,
            network=self.network,
        )
        execution = Execution(self.machine, order)
        self._running.add(execution)
        try:
            return await execution.carry_out()
        finally:
            self._running.discard(execution)

    async def end_all(self) -> None:
        """Afterwards nothing is under way, and nothing more is begun."""
        self.closed = True
        running = list(self._running)
        for execution in running:
            with suppress(SandboxError):  # a lost machine executes nothing
                await execution.kill()
        await asyncio.gather(*(execution.over() for execution in running))
