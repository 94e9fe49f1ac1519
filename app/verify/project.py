"""The project that patches are verified against: its base, and fresh sandboxes in which its code runs."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from app.core.job import Budget, Progress, waiting_for
from app.core.patch import Patch, Tree
from app.sandbox.base import CANNOT_EXECUTE, CompletedCommand, Executor, Sandbox, SandboxCommand
from app.sandbox.setup.run_commands import COMMAND_SECONDS, as_step
from app.verify.overlay import Overlay


class FailedBuild(Executor):
    """A sandbox whose tree could not be built: every command ends as the build did, so nothing older is tested."""

    def __init__(self, sandbox: Sandbox, ended: CompletedCommand) -> None:
        self.key, self.isolated = sandbox.key, sandbox.isolated
        self.left_out, self.created = sandbox.left_out, sandbox.created
        self._sandbox = sandbox
        self._ended = replace(ended, exit_code=ended.exit_code or CANNOT_EXECUTE, timed_out=False)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if command.on_output is not None:
            command.on_output(self._ended.output)
        return self._ended

    async def close(self) -> None:
        await self._sandbox.close()

    async def destroy(self) -> None:
        await self._sandbox.destroy()


async def build(sandbox: Sandbox, command: str | None) -> Sandbox:
    """Build a fresh tree with the configuration's `build:`, if there is one; returns where to run its programs."""
    if not command:
        return sandbox
    ended = await sandbox.exec(as_step(command), timeout=COMMAND_SECONDS)
    return sandbox if ended.ok else FailedBuild(sandbox, ended)


class FreshSandboxes(Protocol):
    """Where fresh sandboxes come from (`app.sandbox.workspaces`)."""

    @property
    def provider(self) -> str: ...

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        """Base plus patch in an unused sandbox; an earlier one of that name is deleted."""
        ...


_ONE_AT_A_TIME = frozenset({"none"})
"""Providers whose sandboxes share the host's files and ports."""
Guards = Callable[[Iterable[str]], tuple[str, ...]]
"""Existing tests that guard some files, nearest first."""


def no_guards(_paths: Iterable[str]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that each kind of run may take; a run that was stopped at its limit is reported as such."""

    suite: float = 300.0
    reproduction: float = 300.0
    lint: float = 300.0

    @classmethod
    def within(cls, budget: Budget) -> "TimeLimits":
        """Of a job: a reproduction and the linter may take a quarter of its minutes."""
        quarter = budget.minutes * 60 / 4
        shorter = min(cls().reproduction, quarter), min(cls().lint, quarter)
        return cls(budget.suite_seconds, *shorter)


class RevertedFix(NamedTuple):
    """The patch that removes the fix from the base; or why there is none, as the end of a sentence."""

    patch: Patch | None
    reason: str = ""


@dataclass(frozen=True)
class FixUnderTest:
    """What the tests of this task must guard; without a commit, just the code as it is."""

    commit: str = ""
    find: Callable[[], RevertedFix] | None = None
    """Finds the patch that removes the fix. Blocking."""

    @cached_property
    def taken(self) -> RevertedFix | None:
        """The patch that removes the fix from the base; None if no fix is known."""
        return self.find() if self.find else None


@dataclass
class ProjectUnderTest:
    """The base of one job and how its code is executed: in fresh sandboxes, within limits, telling the progress.

    `find_before` is set if conflicts of a merge are to be resolved, so that nothing can be run on the base: it gives
    the changes that make the base into the branch as it was, which the head is compared with. `guarded` is set if only
    tests are to be written, with the fix that they are for.
    """

    sandboxes: FreshSandboxes
    tree: Tree
    progress: Progress
    limits: TimeLimits = TimeLimits()
    guards: Guards = no_guards
    find_before: Callable[[], Patch] | None = None
    guarded: FixUnderTest | None = None
    build: str | None = None
    """The configuration's command that builds a tree."""
    isolated: bool = field(default=True, init=False)
    """Whether no sandbox since this was set could reach the host."""

    @cached_property
    def _slots(self) -> asyncio.Semaphore:
        one = self.sandboxes.provider in _ONE_AT_A_TIME
        return asyncio.Semaphore(1 if one else max(2, os.cpu_count() or 2))

    @cached_property
    def before(self) -> Patch | None:
        """What makes the base into what suites are compared with; None if that is the base. Blocking."""
        return self.find_before() if self.find_before else None

    @cached_property
    def reference(self) -> Tree:
        """What suites are compared with. Blocking."""
        return Overlay(self.tree, self.before) if self.before else self.tree

    @property
    def shows_red(self) -> bool:
        """False if tests are wanted for a fix that cannot be reverted: nothing has to fail without it. Blocking."""
        return self.guarded is None or (self.guarded.taken is not None and self.guarded.taken.patch is not None)

    @property
    def unfixed(self) -> Patch | None:
        """What makes the base into that on which new tests must fail; None if that is the base. Blocking."""
        return self.guarded.taken.patch if self.guarded and self.guarded.taken else self.before

    @asynccontextmanager
    async def open(self, name: str, patch: Patch | None) -> AsyncIterator[Sandbox]:
        """A fresh sandbox, destroyed afterwards, also if the job is stopped. No patch: the base."""
        async with self._slots:
            sandbox = await self.sandboxes.fresh(name, self.before if patch is None else patch)
            self.isolated = self.isolated and sandbox.isolated
            try:
                yield await build(sandbox, self.build)
            finally:
                await asyncio.shield(sandbox.destroy())

    @contextmanager
    def reported(self, what: str, waiting: str) -> Iterator[None]:
        """Reports what begins, and that the job waits for it."""
        self.progress.report("verification", what)
        with waiting_for(self.progress, waiting):
            yield
