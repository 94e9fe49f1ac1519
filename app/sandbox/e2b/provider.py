"""Sandboxes at E2B: found again by their tag, or made, filled, prepared and only then opened."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from e2b import AsyncSandbox

from app.errors import SandboxError
from app.sandbox.base import Check, OnOutput, Sandbox, Setup, Spec
from app.sandbox.e2b.calls import LostError
from app.sandbox.e2b.checks import KEY_REPAIR, checks
from app.sandbox.e2b.cloud import KEY, Account, Cloud
from app.sandbox.e2b.policy import CLOSED, while_set_up
from app.sandbox.e2b.program import E2BMachine
from app.sandbox.e2b.sandbox import E2BSandbox
from app.sandbox.inside.packing import Packed, packed
from app.sandbox.inside.steps import (
    AGAIN,
    ARCHIVE,
    COLLECT,
    FINISH,
    OPEN_ENV,
    UNPACK,
    furnish,
    left_out,
    note_left_out,
    step,
)
from app.sandbox.layer_build import COMMAND_SECONDS, carry_out
from app.sandbox.workplace import KEY as KEY_FORM

logger = logging.getLogger(__name__)


class E2BProvider:
    """`scope` tells this installation from others with the same account; `caches` keeps the names of set-ups."""

    name = "e2b"

    def __init__(
        self, account: Account, *, scope: str, caches: Path, seconds: float = 60.0, upload_seconds: float = 600.0
    ) -> None:
        ours = hashlib.sha256(scope.encode()).hexdigest()[:32]
        self._cloud = Cloud(account, ours, seconds=seconds, upload_seconds=upload_seconds)
        self._snapshots = caches / "e2b"

    async def check(self) -> tuple[Check, ...]:
        return await checks(self._cloud)

    async def open(self, spec: Spec, *, on_output: OnOutput | None = None) -> Sandbox:
        if not KEY_FORM.fullmatch(spec.key):
            raise SandboxError(f"A sandbox key may have letters, digits and ._:@=+- only, not {spec.key!r}.")
        if spec.tools is not None or spec.way_out is not None:
            raise SandboxError(
                "Another coding agent cannot work in a cloud sandbox: its way to the model is on this machine.",
                hint="Use --sandbox bubblewrap, or the native runner.",
            )
        if not self._cloud.account.key:
            raise SandboxError("E2B_API_KEY is not set.", hint=KEY_REPAIR)
        self._snapshots.mkdir(mode=0o700, parents=True, exist_ok=True)  # also says that there is something to sweep
        machine = await self._again(spec.key) or await self._new(spec, on_output)
        sandbox = self._sandbox(machine, spec)
        sandbox.left_out = await left_out(self._inside(machine))
        return sandbox

    async def sweep(self, ended: Callable[[str], bool]) -> int:
        """Kill the machines whose key is of a job that has ended; returns how many."""
        gone = [info for info in await self._cloud.find() if ended(info.metadata.get(KEY, ""))]
        for info in gone:
            await self._cloud.kill(info.sandbox_id)
        return len(gone)

    def _sandbox(self, machine: AsyncSandbox, spec: Spec) -> E2BSandbox:
        return E2BSandbox(self._cloud, machine, spec.key, spec.limits, spec.setup)

    def _inside(self, machine: AsyncSandbox) -> E2BMachine:
        return E2BMachine(self._cloud, machine)

    async def _again(self, key: str) -> AsyncSandbox | None:
        """The machine of that key, if it came to be ready; what did not is killed."""
        found = None
        for info in await self._cloud.find(key):
            machine = await self._reach(info.sandbox_id, key) if found is None else None
            if machine is None:
                await self._cloud.kill(info.sandbox_id)
            found = found or machine
        return found

    async def _reach(self, sandbox_id: str, key: str) -> AsyncSandbox | None:
        try:
            machine = await self._cloud.connect(sandbox_id)
            ready = await step(self._inside(machine), f"{AGAIN} && echo ready || echo unready")
        except LostError:
            return None
        if ready.strip() != "ready":
            logger.warning("the sandbox %s was never finished; it is made again", key)
            return None  # perhaps open still, because its set-up was cut short
        await self._cloud.prove(machine, CLOSED)
        return machine

    async def _new(self, spec: Spec, on_output: OnOutput | None) -> AsyncSandbox:
        making = packed(spec.fill)
        tree = await asyncio.to_thread(making.__enter__)
        try:
            setup = spec.setup if spec.setup is not None and spec.setup.commands else None
            machine, prepared = await self._create(spec.key, setup)
            try:
                await self._fill(machine, tree)
                if setup is not None and not prepared:
                    await self._set_up(machine, spec, setup, on_output)
                    await self._fill(machine, tree)
                await step(self._inside(machine), FINISH, *(setup.directories if setup else ()))
            except BaseException:
                await self._cloud.discard(machine.sandbox_id)
                raise
            return machine
        finally:
            await asyncio.to_thread(making.__exit__, None, None, None)

    async def _create(self, key: str, setup: Setup | None) -> tuple[AsyncSandbox, bool]:
        """A machine, and whether the set-up's result is in it already."""
        kept = self._kept(setup) if setup else None
        if kept is not None and kept.exists():
            try:
                return await self._cloud.create(key, kept.read_text("utf-8")), True
            except SandboxError as error:
                logger.info("the kept set-up cannot be used: %s", error.message)
                machine = await self._cloud.create(key)
                kept.unlink(missing_ok=True)
                return machine, False
        return await self._cloud.create(key), False

    async def _fill(self, machine: AsyncSandbox, tree: Packed) -> None:
        await furnish(self._inside(machine))
        tree.archive.seek(0)
        await self._cloud.upload(machine, ARCHIVE, tree.archive)
        await step(self._inside(machine), UNPACK, str(tree.files))

    async def _set_up(self, machine: AsyncSandbox, spec: Spec, setup: Setup, on_output: OnOutput | None) -> None:
        """The only time at which anything is reachable: the named hosts, while the commands run."""
        policy = while_set_up(setup.hosts)
        sandbox = self._sandbox(machine, spec)
        await step(self._inside(machine), OPEN_ENV)
        if policy != CLOSED:
            await self._cloud.apply(machine, policy)
        failed = await carry_out(
            setup,
            lambda command: sandbox.execute(
                ["/bin/bash", "-e", "-o", "pipefail", "-c", command], timeout=COMMAND_SECONDS, on_output=on_output
            ),
        )
        if policy != CLOSED:
            await self._cloud.apply(machine, CLOSED)
        await step(self._inside(machine), COLLECT, *setup.directories)
        await note_left_out(self._inside(machine), failed)
        if not failed:
            await self._keep(machine, setup)

    async def _keep(self, machine: AsyncSandbox, setup: Setup) -> None:
        """So that the next job begins where this one is; without it the next one prepares anew."""
        try:
            snapshot = await self._cloud.snapshot(machine)
        except SandboxError as error:
            logger.warning("the set-up is not kept for the next job: %s", error.message)
            return
        kept = self._kept(setup)
        partial = kept.with_suffix(".partial")
        partial.write_text(snapshot, "utf-8")
        partial.rename(kept)

    def _kept(self, setup: Setup) -> Path:
        return self._snapshots / hashlib.sha256((setup.key or repr(setup)).encode()).hexdigest()[:32]
