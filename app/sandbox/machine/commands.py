"""Runs the commands of one sandbox in a machine, in parallel, and ends them together."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.core.errors import SandboxError
from app.sandbox.base import CompletedCommand, SandboxLimits
from app.sandbox.command import SandboxCommand, cannot_execute
from app.sandbox.machine.base import Machine
from app.sandbox.machine.execution import ExecutionOrder, MachineExecution


@dataclass(slots=True, eq=False)
class MachineCommands:
    """`environment` is for every command; `closed` is true after `end_all`. `network` as in an order."""

    machine: Machine
    limits: SandboxLimits
    environment: Mapping[str, str]
    closed: bool = False
    network: bool = True
    _running: set[MachineExecution] = field(default_factory=set)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if self.closed:
            raise SandboxError("The sandbox is closed.")
        if command.unusable:
            return cannot_execute(command.unusable)
        order = ExecutionOrder(
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
        execution = MachineExecution(self.machine, order)
        self._running.add(execution)
        try:
            return await execution.carry_out()
        finally:
            self._running.discard(execution)

    async def end_all(self) -> None:
        """End all commands; no new ones can start."""
        self.closed = True
        running = list(self._running)
        for execution in running:
            with suppress(SandboxError):  # a lost machine executes nothing
                await execution.kill()
        await asyncio.gather(*(execution.over() for execution in running))
