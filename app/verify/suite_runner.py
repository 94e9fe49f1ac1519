"""The suite on base and on head, whole or nearest first, with a second chance for what newly fails."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.core.job import Progress
from app.core.patch import Patch
from app.core.tree import Tree
from app.core.verification import SuiteComparison, SuiteResult
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.nearest_tests import nearest
from app.verify.recheck import Recheck
from app.verify.reproduction import BorrowSandbox
from app.verify.suite import could_not_start, measure
from app.verify.suite_comparison import compare
from app.verify.test_paths import is_test_file

Guards = Callable[[Iterable[str]], tuple[str, ...]]
"""Existing tests that guard some files, the nearest first."""

SLACK = 30.0
"""Seconds that a head may take longer than a base, beyond half as long again, where the limit would cut it."""


def no_guards(_paths: Iterable[str]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class SuiteRunner:
    """Runs one suite within `limit` seconds, each time in a fresh sandbox."""

    command: SuiteCommand
    borrow: BorrowSandbox
    progress: Progress
    limit: float
    guards: Guards = no_guards

    async def base(self, *, only: tuple[str, ...] | None = None) -> SuiteResult:
        self.progress.report("verification", f"suite on the base: `{self.command.command}`")
        async with self.borrow("suite-base", None) as sandbox:
            return await measure(sandbox, self.command, timeout=self.limit, only=only)

    async def head(self, patch: Patch, limit: float, *, only: tuple[str, ...] | None = None) -> SuiteResult:
        self.progress.report("verification", f"suite on the head: `{self.command.command}`")
        async with self.borrow("suite-head", patch) as sandbox:
            return await measure(sandbox, self.command, timeout=limit, only=only)

    async def both(self, patch: Patch, tree: Tree, base: SuiteResult | None) -> SuiteComparison:
        """The suite's facts; a result on the base that is already known is not asked for again."""
        base = base or await self.base()
        if base.count is None and (reason := could_not_start(base.execution)):
            return SuiteComparison(command=self.command.command, base=base, not_run=reason)
        if base.execution.timed_out:
            return await self._nearest(patch, tree, base)
        # A head that is a little slower than a base near the limit is not a head that hangs.
        limit = max(self.limit, 1.5 * base.execution.seconds + min(self.limit, SLACK))
        head = await self.head(patch, limit)
        return await self._rechecked(base, head, Recheck(self.command, patch, self.borrow, limit))

    async def _nearest(self, patch: Patch, tree: Tree, base: SuiteResult) -> SuiteComparison:
        """For a suite longer than its limit: the tests nearest to the change, on base and head."""
        chosen = await asyncio.to_thread(self._chosen, tree, patch)
        there = tuple(path for path in chosen if path in tree.entries())
        try:
            narrow(self.command, chosen)
            narrow(self.command, there)
        except ValueError:
            reason = f"The suite does not end within {self.limit:g} s and could not be narrowed to the change."
            return SuiteComparison(command=self.command.command, base=base, not_run=reason)
        total = len({path for path in tree.entries() if is_test_file(path)}.union(chosen))
        chosen_of = (
            f"the {len(chosen)} test files nearest to the change were run, of {total}; the others were not."
            if len(chosen) < total
            else "its test files were run one after the other, the nearest to the change first."
        )
        partial = f"The whole suite does not end within {self.limit:g} s: {chosen_of}"
        base = _said(await self.base(only=there), partial)
        head = _said(await self.head(patch, self.limit, only=chosen), partial)
        return await self._rechecked(base, head, Recheck(self.command, patch, self.borrow, self.limit, chosen))

    def _chosen(self, tree: Tree, patch: Patch) -> tuple[str, ...]:
        changed = [change.path for change in patch.changes if not is_test_file(change.path)]
        return nearest(tree, patch, self.guards(changed))

    async def _rechecked(self, base: SuiteResult, head: SuiteResult, second: Recheck) -> SuiteComparison:
        found = compare(self.command.command, base, head)
        if self.command.note:
            found = found.model_copy(update={"notes": (self.command.note,)})
        if found.newly_failing:
            self.progress.report("verification", f"{len(found.newly_failing)} newly failing: run again")
        return await second.of(found)


def _said(result: SuiteResult, partial: str) -> SuiteResult:
    return result.model_copy(update={"partial": f"{partial} {result.partial}".strip()})
