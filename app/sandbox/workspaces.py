"""Opens a job's sandboxes: one work tree that survives crashes, and fresh ones made from base and patch alone."""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.core.patch import Patch, Tree
from app.sandbox.base import NO_SETUP, OnOutput, Sandbox, SandboxProvider, SandboxSpec, SetupPlan
from app.sandbox.changes import Baseline, baseline, export
from app.sandbox.host_directories import entries_below

logger = logging.getLogger(__name__)

Fill = Callable[[Path, Patch | None], None]
"""Writes base plus patch (None: the base) into an empty directory, every file in the same way. Blocking."""


@dataclass(frozen=True, slots=True)
class AnotherAgent:
    """What only the sandbox of another coding agent has; verification never sees it."""

    tools: Callable[[], Awaitable[SetupPlan]]
    model_socket: Path


class Workspaces:
    """Opens sandboxes by name under one job's key; all start from the same base tree and set-up.

    `setup` is called once, when the first sandbox is opened; what it creates in the tree never counts as a change.
    """

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        job: str,
        fill: Fill,
        tree: Tree,
        setup: Callable[[], Awaitable[SetupPlan]],
        on_output: OnOutput | None = None,
        on_note: Callable[[str], None] = lambda _: None,
        agent: AnotherAgent | None = None,
    ) -> None:
        self._provider = provider
        self._job = job
        self._fill = fill
        self._plan_setup = setup
        self._setup: asyncio.Future[SetupPlan] | None = None
        self._on_output = on_output
        self._on_note = on_note
        self._agent = agent
        self._tree = tree
        self._baseline: Baseline | None = None
        self._changed = set[str]()
        self._changed_at: int | None = None
        self.left_out: tuple[str, ...] = ()
        """Parts of the set-up that failed without ending the job; known after the first sandbox was opened."""

    @property
    def provider(self) -> str:
        return self._provider.name

    @property
    def baseline(self) -> Baseline:
        """What changes are compared with; known after the first sandbox was opened."""
        if self._baseline is None:
            raise RuntimeError("no sandbox was opened yet")
        return self._baseline

    async def work(self, name: str = "work") -> Sandbox:
        """The agent's work tree, as it was left."""
        if self._agent is None:
            return await self._open(name)
        return await self._open(name, tools=await self._agent.tools(), model_socket=self._agent.model_socket)

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        """Base plus `patch` in a sandbox that nobody has used: its key is new, even to a dead process.

        Nothing inside shows what the sandbox is for: its name is meaningless, and a file that any change of this job
        touches has the same time with that change and without it. That time is later than what the set-up has built,
        so that it is built again from these files.
        """
        key = secrets.token_hex(8)
        logger.debug("the sandbox %s is for %s", key, name)
        self._note_changes(patch)
        return await self._open(key, fill_work=partial(self._write, patch))

    @asynccontextmanager
    async def temporary_sandbox(self, name: str, patch: Patch | None = None) -> AsyncIterator[Sandbox]:
        """A fresh sandbox that is destroyed afterwards, also if the job is stopped."""
        sandbox = await self.fresh(name, patch)
        try:
            yield sandbox
        finally:
            await sandbox.destroy()

    async def export(self, sandbox: Sandbox) -> Patch:
        """The changes in that sandbox, as bytes."""
        patch = await export(sandbox, self.baseline)
        self._note_changes(patch)
        return patch

    def _note_changes(self, patch: Patch | None) -> None:
        self._changed.update(change.path for change in (patch.changes if patch is not None else ()))

    def _write(self, patch: Patch | None, directory: Path) -> None:
        """The time of changed files is that of the first such tree, which the set-up has preceded."""
        self._changed_at = self._changed_at or int(time.time())
        self._fill(directory, patch)
        set_times(directory, self._changed, self._changed_at)

    async def _open(
        self,
        name: str,
        *,
        fill_work: Callable[[Path], None] | None = None,
        tools: SetupPlan = NO_SETUP,
        model_socket: Path | None = None,
    ) -> Sandbox:
        if self._setup is None:
            self._setup = asyncio.ensure_future(self._plan_setup())
        setup = await asyncio.shield(self._setup)
        spec = SandboxSpec(
            key=f"{self._job}.{name}",
            fill=with_source_times(lambda directory: self._fill(directory, None)),
            fill_work=fill_work,
            setup=setup,
            tools=tools,
            model_socket=model_socket,
        )
        sandbox = await self._provider.open(spec, on_output=self._on_output)
        if self._baseline is None:
            self._baseline = await asyncio.to_thread(baseline, self._tree, besides=sandbox.created)
        if sandbox.left_out and not self.left_out:
            self._on_note(f"set-up continued without: {sandbox.left_out[0]}")
        self.left_out = sandbox.left_out
        return sandbox


SOURCE_TIME = 1_600_000_000
"""Of every file that is as it was when the set-up ran: older than all that was built from it, on every machine."""


def with_source_times(fill: Callable[[Path], None]) -> Callable[[Path], None]:
    """A `fill` for a set-up or a job's work: whatever is changed later is newer than its files."""

    def fill_and_set(directory: Path) -> None:
        fill(directory)
        set_times(directory)

    return fill_and_set


def set_times(directory: Path, changed: Collection[str] = (), at: int = SOURCE_TIME) -> None:
    """Give everything in a directory of ours, and itself, the same time; `at` is that of the files in `changed`."""
    os.utime(directory, (SOURCE_TIME, SOURCE_TIME))
    for entry in entries_below(directory):
        seconds = at if entry.path[len(f"{directory}/") :] in changed else SOURCE_TIME
        os.utime(entry.path, (seconds, seconds), follow_symlinks=False)
