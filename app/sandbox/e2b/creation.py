"""Creates a machine at E2B: starts from a stored one, prepares and fills it, and only then marks it ready.

base ─► another agent's programs (TOOLS), kept ─► the project's set-up (ENV), kept ─► the tree ─► ready
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import TOOLS, OnOutput, SandboxSpec, SetupPlan
from app.sandbox.command import SandboxCommand
from app.sandbox.e2b.cloud import E2BCloud
from app.sandbox.e2b.policy import CLOSED, during_setup
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.e2b.sandbox import E2BSandbox
from app.sandbox.e2b.scripts import FILL, KEEP_ENV, KEEP_TOOLS, OPEN_TOOLS, READY, arguments
from app.sandbox.e2b.snapshots import SetupSnapshots
from app.sandbox.machine.packing import PackedTree, packing_tree
from app.sandbox.machine.steps import ARCHIVE, OPEN_ENV, note_left_out, notes, step
from app.sandbox.setup.layer_build import COMMAND_SECONDS, carry_out

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MachineCreation:
    """Creates one machine for `spec`."""

    cloud: E2BCloud
    kept: SetupSnapshots
    spec: SandboxSpec
    on_output: OnOutput | None = None

    async def machine(self) -> tuple[AsyncSandbox, tuple[str, ...]]:
        """A ready machine, with what failed in its set-up; it is killed after an error."""
        setups = [setup for setup in (self.spec.tools, self.spec.setup) if setup is not None and setup.commands]
        machine, done = await self._start_machine(setups)
        async with self.cloud.discarding(machine.sandbox_id):
            for number, setup in enumerate(setups[done:], done + 1):
                prepare = self._install if setup is self.spec.tools else self._set_up
                if not await prepare(machine, setup):
                    await self.kept.keep(machine, setups[:number])
            directories = self.spec.setup.directories if self.spec.setup else ()
            async with packing_tree(self.spec.begin_work) as tree:
                return machine, notes(await self._fill(machine, READY, tree, *directories))

    async def _start_machine(self, setups: Sequence[SetupPlan]) -> tuple[AsyncSandbox, int]:
        """A machine, and how many of the set-ups it already contains."""
        gone = []
        for done in range(len(setups), 0, -1):
            snapshot = await self.kept.find(setups[:done])
            if not snapshot:
                continue
            try:
                machine = await self.cloud.create(self.spec.key, snapshot)
            except SandboxError as error:
                logger.info("the stored set-up cannot be used: %s", error.message)
                gone.append(setups[:done])
            else:
                return machine, done
        machine = await self.cloud.create(self.spec.key)
        for unusable in gone:
            self.kept.forget(unusable)
        return machine, 0

    async def _fill(self, machine: AsyncSandbox, script: str, tree: PackedTree, *directories: str) -> str:
        await asyncio.to_thread(tree.archive.seek, 0)
        await self.cloud.upload(machine, ARCHIVE, tree.archive)
        return await step(self._as_machine(machine), script, *arguments(tree.files, *directories))

    async def _install(self, machine: AsyncSandbox, tools: SetupPlan) -> bool:
        """Install another agent's programs before the project; returns whether something failed."""
        inside = self._as_machine(machine)
        await step(inside, OPEN_TOOLS, *arguments(0, TOOLS))
        failed = await self._carry_out(machine, tools)
        await step(inside, KEEP_TOOLS, TOOLS)
        return bool(failed)

    async def _set_up(self, machine: AsyncSandbox, setup: SetupPlan) -> bool:
        """Run the set-up over a tree that is deleted afterwards; returns whether something failed."""
        inside = self._as_machine(machine)
        async with packing_tree(self.spec.fill) as tree:
            await self._fill(machine, f"{FILL}\n{OPEN_ENV}", tree)
        failed = await self._carry_out(machine, setup)
        await step(inside, KEEP_ENV, *setup.directories)
        await note_left_out(inside, failed)
        return bool(failed)

    async def _carry_out(self, machine: AsyncSandbox, setup: SetupPlan) -> tuple[str, ...]:
        """What failed while another part succeeded."""
        sandbox = E2BSandbox(self.cloud, machine, self.spec.key, self.spec.limits, setup, network=True)
        async with self._open(machine, setup):
            return await carry_out(
                setup,
                lambda command: sandbox.execute_online(
                    SandboxCommand(
                        ["/bin/bash", "-e", "-o", "pipefail", "-c", command],
                        timeout=COMMAND_SECONDS,
                        on_output=self.on_output,
                    )
                ),
            )

    @asynccontextmanager
    async def _open(self, machine: AsyncSandbox, setup: SetupPlan) -> AsyncIterator[None]:
        """The only time when anything is reachable: the named hosts. A machine that fails meanwhile is ended."""
        policy = during_setup(setup.hosts)
        if policy != CLOSED:
            await self.cloud.apply(machine, policy)
        yield
        if policy != CLOSED:
            await self.cloud.apply(machine, CLOSED)

    def _as_machine(self, machine: AsyncSandbox) -> E2BMachine:
        return E2BMachine(self.cloud, machine)
