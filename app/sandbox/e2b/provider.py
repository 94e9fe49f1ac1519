"""Opens sandboxes at E2B: finds them by tag, or creates, fills and prepares them."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import FORWARDER, DoctorCheck, OnOutput, Sandbox, SandboxSpec
from app.sandbox.e2b.calls import LostMachineError
from app.sandbox.e2b.checks import KEY_REPAIR, checks
from app.sandbox.e2b.cloud import KEY, RENEWAL, E2BAccount, E2BCloud
from app.sandbox.e2b.creation import MachineCreation
from app.sandbox.e2b.policy import CLOSED
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.e2b.sandbox import E2BSandbox
from app.sandbox.e2b.scripts import REOPEN, UNREADY
from app.sandbox.e2b.snapshots import SetupSnapshots
from app.sandbox.host_directories import KEY as KEY_FORM
from app.sandbox.machine.steps import notes, step
from app.sandbox.setup.layer_build import FORWARDER_PROGRAM

Found = tuple[AsyncSandbox, tuple[str, ...]]
"""A machine, and what failed in its set-up."""
logger = logging.getLogger(__name__)


class E2BProvider:
    """`scope` separates this installation from others with the same account; `caches` holds the names of set-ups."""

    name = "e2b"

    def __init__(
        self,
        account: E2BAccount,
        *,
        scope: str,
        caches: Path,
        template: str = "",
        seconds: float = 60.0,
        upload_seconds: float = 600.0,
        renewal: float = RENEWAL,
        now: Callable[[], float] = time.time,
    ) -> None:
        ours = hashlib.sha256(scope.encode()).hexdigest()[:32]
        self._cloud = E2BCloud(
            account, ours, seconds=seconds, upload_seconds=upload_seconds, renewal=renewal, template=template
        )
        self._kept = SetupSnapshots(self._cloud, caches / "e2b", now)

    async def check(self) -> tuple[DoctorCheck, ...]:
        return await checks(self._cloud)

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        if not KEY_FORM.fullmatch(spec.key):
            raise SandboxError(f"A sandbox key may only contain letters, digits and ._:@=+-, not {spec.key!r}.")
        if not self._cloud.account.key:
            raise SandboxError("E2B_API_KEY is not set.", hint=KEY_REPAIR)
        self._kept.note_use()
        found = await self._reopen(spec.key)
        machine, left_out = found or await MachineCreation(self._cloud, self._kept, spec, on_output).machine()
        if spec.model_socket is not None:
            await self._cloud.upload(machine, FORWARDER, FORWARDER_PROGRAM.read_bytes())
        sandbox = E2BSandbox(self._cloud, machine, spec.key, spec.limits, spec.setup, model_socket=spec.model_socket)
        sandbox.left_out = left_out
        return sandbox

    async def sweep(self, ended: Callable[[str], bool]) -> int:
        """Kill the machines of ended jobs, and remove old set-ups; returns how many."""
        gone = [info for info in await self._cloud.find() if ended(info.metadata.get(KEY, ""))]
        for info in gone:
            await self._cloud.kill(info.sandbox_id)
        return len(gone) + await self._kept.sweep()

    async def _reopen(self, key: str) -> Found | None:
        """The machine of that key, if it was completed; an incomplete one is killed."""
        found = None
        for info in await self._cloud.find(key):
            reached = await self._reach(info.sandbox_id, key) if found is None else None
            if reached is None:
                await self._cloud.kill(info.sandbox_id)
            found = found or reached
        return found

    async def _reach(self, sandbox_id: str, key: str) -> Found | None:
        try:
            machine = await self._cloud.connect(sandbox_id)
            answer = await step(E2BMachine(self._cloud, machine), REOPEN)
        except LostMachineError:
            return None
        if answer.strip() == UNREADY:
            logger.warning("the sandbox %s was never finished; it is created again", key)
            return None  # its network may still be open, because its set-up was interrupted
        await self._cloud.prove(machine, CLOSED)
        return machine, notes(answer)
