"""Runs the suite on base and head, whole or nearest tests first, and runs newly failing tests again."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.core.job import BASE_SUITE
from app.core.patch import Patch
from app.core.verification import SuiteComparison, SuiteResult, TestCount
from app.verify.base_rules import JudgedPatch, loaded_tests
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.paths_of_tests import is_test_file, nearest
from app.verify.project import ProjectUnderTest
from app.verify.suite import could_not_start, measure
from app.verify.verdict import compare, suite_regression

MAX_ALONE = 200
"""With more newly failing tests than this, the patch is clearly the reason."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Runs newly failing tests again. `only` are the test files the suite was narrowed to, None for all of it."""

    runner: "SuiteRunner"
    patch: Patch
    only: tuple[str, ...] | None = None

    async def of(self, suite: SuiteComparison) -> SuiteComparison:
        """What stays newly failing.

        A test counts if it fails alone on the head and not alone on the base. If it fails there only together with
        others, it counts if a second run of the suite on the head fails it, too; if it fails alone on both, a second
        run on the base must pass it as well.
        """
        names = suite.newly_failing
        if not 0 < len(names) <= MAX_ALONE:
            return suite
        alone = await self._alone("suite-head-alone", self.patch, names)
        failing = _not_passed(alone, names) if alone else ()
        excused = await self._failing_on_base(failing)
        doubtful = frozenset(names).difference(failing) | excused
        passing = await self._passing_again("suite-head-again", self.patch, doubtful)
        excused -= await self._passing_again("suite-base-again", None, excused - passing)
        flaky = passing.difference(failing)
        counted = tuple(name for name in names if name not in excused and name not in flaky)
        notes = (
            *(f"{name} also fails on the base when it runs alone; not counted." for name in names if name in excused),
            *(f"{name} failed in one of two runs on the head: flaky, not counted." for name in names if name in flaky),
        )
        execution = alone.execution if alone else None
        update = {"newly_failing": counted, "recheck": execution, "notes": (*suite.notes, *notes)}
        return suite.model_copy(update=update)

    async def _alone(self, sandbox: str, patch: Patch | None, names: tuple[str, ...]) -> SuiteResult | None:
        """Only these tests; None if the suite cannot be narrowed to them."""
        if not can_run(self.runner.command, names):
            return None
        return await self.runner.execute(sandbox, patch, names)

    async def _failing_on_base(self, names: tuple[str, ...]) -> frozenset[str]:
        alone = await self._alone("suite-base-alone", None, names) if names else None
        return frozenset(alone.failing or ()).intersection(names) if alone else frozenset()

    async def _passing_again(self, sandbox: str, patch: Patch | None, names: frozenset[str]) -> frozenset[str]:
        """Of these, the ones that pass when the suite is run once more."""
        if not names:
            return frozenset()
        again = await self.runner.execute(sandbox, patch, self.only)
        return names.intersection(again.passing or ())


def _not_passed(alone: SuiteResult, names: tuple[str, ...]) -> tuple[str, ...]:
    """A test without a result in the second run counts as failed."""
    passed = set(alone.passing or ())
    return tuple(name for name in names if name not in passed)


SLACK = 30.0
"""Seconds that a head may take longer than 1.5 times a base that is near the limit."""


@dataclass(frozen=True, slots=True)
class SuiteRunner:
    """Runs one suite within `limit` seconds, each time in a fresh sandbox."""

    command: SuiteCommand
    project: ProjectUnderTest
    limit: float

    async def base(self, *, only: tuple[str, ...] | None = None) -> SuiteResult:
        with self.project.reported(f"suite on the base: `{self.command.command}`", BASE_SUITE):
            return await self._on_base(only)

    async def _on_base(self, only: tuple[str, ...] | None) -> SuiteResult:
        return await self.execute("suite-base", None, only)

    async def head(self, patch: Patch, *, only: tuple[str, ...] | None = None) -> SuiteResult:
        with self.project.reported(f"suite on the change: `{self.command.command}`", "the suite on the change"):
            return await self.execute("suite-head", patch, only)

    async def execute(self, name: str, patch: Patch | None, only: tuple[str, ...] | None) -> SuiteResult:
        """Run it, or only these of its tests, in a fresh sandbox."""
        async with self.project.open(name, patch) as sandbox:
            return (await measure(sandbox, self.command, timeout=self.limit, only=only)).result

    def _longer(self, base: SuiteResult) -> "SuiteRunner":
        """For a head: one that is a little slower than a base near the limit does not hang."""
        return replace(self, limit=max(self.limit, 1.5 * base.execution.seconds + min(self.limit, SLACK)))

    async def compare(self, patch: Patch, base: SuiteResult | None) -> SuiteComparison:
        """The suite's facts; a known result on the base is used again."""
        base = base or await self.base()
        if base.count is None and (reason := could_not_start(base.execution)):
            return SuiteComparison(command=self.command.command, base=base, not_run=reason)
        if base.execution.timed_out:
            return await self._nearest(patch, base)
        runner = self._longer(base)
        judged = await asyncio.to_thread(JudgedPatch.of, self.project.reference, patch)
        head = base if judged.changes_only_tests else await runner.head(judged.ruled)
        found = await runner._compare_and_recheck(base, head, judged.ruled)
        return await runner._with_own_tests(found, judged)

    async def _nearest(self, patch: Patch, base: SuiteResult) -> SuiteComparison:
        """For a suite longer than its limit: the tests nearest to the change, on base and head."""
        tree = self.project.reference
        chosen = await asyncio.to_thread(self._chosen, patch)
        there = tuple(path for path in chosen if path in tree.entries())
        if not (there and can_run(self.command, chosen) and can_run(self.command, there)):
            none_near = self.command.narrowed and not there
            why = "no existing test file is near the change" if none_near else "its runner cannot run chosen test files"
            reason = f"The suite does not finish within {self.limit:g} s, and {why}."
            return SuiteComparison(command=self.command.command, base=base, not_run=reason)
        total = len({path for path in tree.entries() if is_test_file(path)}.union(chosen))
        chosen_of = f"only the {len(chosen)} of {total} test files nearest to the change were run."
        if len(chosen) >= total:
            chosen_of = "its test files were run one after the other, the nearest to the change first."
        partial = f"The whole suite does not finish within {self.limit:g} s: {chosen_of}"
        judged = await asyncio.to_thread(JudgedPatch.of, tree, patch)
        base = head = _with_partial(await self.base(only=there), partial)
        if not judged.changes_only_tests:
            head = _with_partial(await self.head(judged.ruled, only=there), partial)
        found = await self._compare_and_recheck(base, head, judged.ruled, there)
        found = await self._with_own_tests(found, judged, all_of_it=chosen)
        return found.model_copy(update={"nearest": chosen})

    async def part(
        self, judged: JudgedPatch, files: tuple[str, ...], before: SuiteResult | None, limit: float
    ) -> SuiteComparison:
        """These test files on base and head; `before` is what the base gave beside others. No head without a base.

        The patch's own changes of tests are run only if the head is worse without them.
        """
        runner = replace(self, limit=limit)
        base = before or await runner._on_base(files)
        if base.count in (None, TestCount()):
            return SuiteComparison(command=self.command.command, base=base)
        longer = runner if before else runner._longer(base)
        head = await longer.execute("suite-head", judged.ruled, files)
        # A test that is cut off when it runs alone would count as failing: that has the suite's own time.
        again = replace(self, limit=max(longer.limit, self.limit))
        found = await again._compare_and_recheck(base, head, judged.ruled, files)
        if before and (found.newly_failing or found.missing or suite_regression(found)):
            # The base ran these beside other files, without which a test may fail there as well.
            base = await runner._on_base(files)
            if base.count in (None, TestCount()):
                return SuiteComparison(command=self.command.command, base=base)
            found = await again._compare_and_recheck(base, head, judged.ruled, files)
        gone = {change.path for change in judged.overridden_changes if change.deleted}
        there = tuple(path for path in files if path not in gone)
        if head.execution.timed_out or not (found.newly_failing or suite_regression(found)):
            return found
        if not there:
            return found.model_copy(update={"changed_tests": await asyncio.to_thread(judged.removed)})
        return await again._with_own_tests(found, judged, all_of_it=there)

    async def _with_own_tests(
        self, found: SuiteComparison, judged: JudgedPatch, *, all_of_it: tuple[str, ...] | None = None
    ) -> SuiteComparison:
        """The comparison plus the tests that the patch itself changes, run with all its changes."""
        if not judged.overridden_changes:
            return found
        own = await self._own_tests(found, judged, all_of_it)
        removed = await asyncio.to_thread(judged.removed)
        if own is None:
            return found.model_copy(update={"changed_tests": removed})
        before, excused = set((found.base.failing if found.base else None) or ()), set(own.passing or ())
        new = SuiteComparison(
            command=self.command.command, newly_failing=tuple(sorted(set(own.failing or ()) - before))
        )
        new = await Recheck(self, judged.patch, all_of_it).of(new)
        needed = tuple(name for name in found.newly_failing if name in excused or loaded_tests(name, excused))
        failing = {*found.newly_failing, *new.newly_failing}.difference(needed)
        update: dict[str, object] = {
            "own_tests": own,
            "newly_failing": tuple(sorted(failing)),
            "notes": (*found.notes, *new.notes),
        }
        if needed:  # the base's version of their file could not be loaded
            update["missing"] = tuple(name for name in found.missing if name not in excused)
        exits = bool(needed)
        if found.head is not None and (own.count is None or found.head.count is None):  # only exit codes tell
            exits = found.head.execution.exit_code != 0 and own.execution.exit_code == 0
            update["head"] = own if exits or own.execution.exit_code != 0 else found.head
        changed = await asyncio.to_thread(judged.changed, needed, removed) if exits else removed
        return found.model_copy(update={**update, "changed_tests": changed})

    async def _own_tests(
        self, found: SuiteComparison, judged: JudgedPatch, all_of_it: tuple[str, ...] | None
    ) -> SuiteResult | None:
        """The patch's tests if they are independent; the whole suite if settings or shared test files change."""
        worse = bool(found.newly_failing or suite_regression(found))
        only = all_of_it if judged.changes_settings or worse else judged.test_files or None
        if only is not None:
            only = only if can_run(self.command, only) else all_of_it
        elif not judged.changes_settings and not worse:
            return None
        with self.project.reported("the change's own tests", "the change's own tests"):
            return await self.execute("suite-own-tests", judged.patch, only)

    def _chosen(self, patch: Patch) -> tuple[str, ...]:
        changed = [change.path for change in patch.changes if not is_test_file(change.path)]
        return nearest(self.project.reference, patch, self.project.guards(changed))

    async def _compare_and_recheck(
        self, base: SuiteResult, head: SuiteResult, patch: Patch, only: tuple[str, ...] | None = None
    ) -> SuiteComparison:
        found = compare(self.command.command, base, head)
        if self.command.note:
            found = found.model_copy(update={"notes": (self.command.note,)})
        if not found.newly_failing:
            return found
        again = f"{len(found.newly_failing)} newly failing: run again"
        with self.project.reported(again, "newly failing tests, run again"):
            return await Recheck(self, patch, only).of(found)


def _with_partial(result: SuiteResult, partial: str) -> SuiteResult:
    return result.model_copy(update={"partial": f"{partial} {result.partial}".strip()})


def can_run(suite: SuiteCommand, files: Iterable[str]) -> bool:
    """True if the suite can be narrowed to these test files or ids."""
    try:
        narrow(suite, files)
    except ValueError:
        return False
    return True
