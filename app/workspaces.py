"""A job's sandboxes: one work tree that survives crashes, and fresh ones made of base and patch alone."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.patch import Patch
from app.sandbox.base import OnOutput, Sandbox, SandboxProvider, Setup, Spec
from app.sandbox.changes import Baseline, baseline, export, restore
from app.tree import Tree


@dataclass(frozen=True, slots=True)
class AnotherAgent:
    """What only the sandbox shows that another coding agent works in: none of it is there where work is verified."""

    tools: Callable[[], Awaitable[Setup]]
    way_out: Path


class Workspaces:
    """Opens sandboxes by name under one job's key; every one starts from the same base tree and set-up.

    `setup` is asked once, when the first sandbox is opened; what it puts into the tree never counts as a change.
    """

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        job: str,
        fill: Callable[[Path], None],
        tree: Tree,
        setup: Callable[[], Awaitable[Setup]],
        on_output: OnOutput | None = None,
        on_note: Callable[[str], None] = lambda _: None,
        agent: AnotherAgent | None = None,
    ) -> None:
        self._provider = provider
        self._job = job
        self._fill = fill
        self._plan_setup = setup
        self._setup: asyncio.Future[Setup] | None = None
        self._on_output = on_output
        self._on_note = on_note
        self._agent = agent
        self._tree = tree
        self._baseline: Baseline | None = None
        self.left_out: tuple[str, ...] = ()
        """What of the set-up failed without ending the job; known when the first sandbox was opened."""

    @property
    def provider(self) -> str:
        return self._provider.name

    @property
    def baseline(self) -> Baseline:
        """What changes are told from. Known with the set-up: after the first sandbox was opened."""
        if self._baseline is None:
            raise RuntimeError("no sandbox was opened yet")
        return self._baseline

    async def work(self, name: str = "work") -> Sandbox:
        """The tree the agent works in, as it was left."""
        if self._agent is None:
            return await self._open(name)
        return await self._open(name, tools=await self._agent.tools(), way_out=self._agent.way_out)

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        """Base plus `patch` in a sandbox nobody has touched: its key was never used, by a dead process neither."""
        sandbox = await self._open(f"{name}-{secrets.token_hex(4)}")
        if patch is not None:
            await restore(sandbox, self.baseline, patch)
        return sandbox

    @asynccontextmanager
    async def borrowed(self, name: str, patch: Patch | None = None) -> AsyncIterator[Sandbox]:
        """A fresh sandbox that is destroyed afterwards, also when the job is stopped."""
        sandbox = await self.fresh(name, patch)
        try:
            yield sandbox
        finally:
            await sandbox.destroy()

    async def export(self, sandbox: Sandbox) -> Patch:
        """What was changed in that sandbox, as bytes."""
        return await export(sandbox, self.baseline)

    async def _open(self, name: str, *, tools: Setup | None = None, way_out: Path | None = None) -> Sandbox:
        if self._setup is None:
            self._setup = asyncio.ensure_future(self._plan_setup())
        setup = await asyncio.shield(self._setup)
        if self._baseline is None:
            self._baseline = baseline(self._tree, besides=setup.directories)
        spec = Spec(key=f"{self._job}.{name}", fill=self._fill, setup=setup, tools=tools, way_out=way_out)
        sandbox = await self._provider.open(spec, on_output=self._on_output)
        if sandbox.left_out and not self.left_out:
            self._on_note(f"set-up, gone on without: {sandbox.left_out[0]}")
        self.left_out = sandbox.left_out
        return sandbox
