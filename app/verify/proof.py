"""Proves a change: by the test author's frozen tests, or by the fixer's own, both under the same controls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.job import Progress, waiting_for
from app.core.patch import FileChange, Patch
from app.core.tree import Tree
from app.core.verification import (
    Cap,
    CapRule,
    Control,
    ControlOutcome,
    Reproduction,
    SourceText,
    Specification,
    SpecificationResult,
    SuiteResult,
    TestSelection,
)
from app.verify.controls import ComparisonTrees, ControlRunner, SourceVariants
from app.verify.detect import find_suite
from app.verify.existing_names import ExistingNames
from app.verify.frameworks import SuiteCommand
from app.verify.launcher.launcher_selection import launcher_of, left_to_framework
from app.verify.nearest_tests import matching, nearest, nearest_first
from app.verify.overlay import Overlay, difference
from app.verify.repeated_runs import Runs, RunsSelected
from app.verify.reproduction import BorrowSandbox, with_tests_only
from app.verify.sources.harness_detection import EQUALITY
from app.verify.specification import MAX_TEXT, SpecificationBuilder, digest, file_of_test, reasons_on_base
from app.verify.test_paths import is_test_path
from app.verify.tests_for_fix import FixUnderTest

MAX_EXISTING = 20
NO_RUNNER = "no test runner was found that can run single tests."


@dataclass(frozen=True)
class Prover:
    """Executes chosen tests of one base and its patches. `text` is the issue's, with the names of new interfaces."""

    tree: Tree
    suite: Callable[[], SuiteCommand | None]
    borrow: BorrowSandbox
    progress: Progress
    timeout: float
    run: RunsSelected
    variants: SourceVariants
    text: str
    isolated: Callable[[], bool]
    before: Callable[[], Patch | None]
    guarded: FixUnderTest | None = None
    protected: tuple[str, ...] = ()

    def narrowable(self, patch: Patch) -> SuiteCommand | None:
        """A command that can run chosen tests: the suite's, or one that base or head suggest."""
        suite = self.suite()
        if suite is not None and suite.narrowed:
            return suite
        return find_suite(self.tree) or find_suite(Overlay(self.tree, patch))

    def same_sources(self, patch: Patch, other: Patch) -> bool:
        """True if two patches of the base have the same sources, ignoring comments and the like. Blocking."""
        after = Overlay(self.tree, patch)
        return bool(self.variants.sources_changed(after, difference(after, Overlay(self.tree, other))))

    async def specifiable(self) -> SuiteCommand | None:
        """The command in whose framework specification tests can be written; None if there is none."""
        runs = await self._runs(Patch(base=self.tree.commit))
        return runs.suite if runs is not None else None

    async def specify(
        self, files: Sequence[SourceText], ids: Sequence[str], outdated: Sequence[str] = ()
    ) -> tuple[Specification, str]:
        """Freeze an independent test author's tests; the second part is the message for the author."""
        return await self._freeze(lambda builder: builder.build(files, ids, outdated))

    async def specify_against(
        self, frozen: Specification, patch: Patch, files: Sequence[SourceText], ids: Sequence[str]
    ) -> tuple[Specification, str]:
        """Freeze a second author's tests, written against this patch; without those that the first one wrote."""
        first = {file.path: file.text for file in frozen.files}
        new = [file for file in files if first.get(file.path) != file.text]
        named = [name for name in ids if file_of_test(name, new) is not None]
        if ids and not named:
            reason = "the second author wrote the first one's tests again."
            return Specification(absent=reason, runs=1), reason
        taken = {*first, *(change.path for change in patch.changes if not change.deleted)}
        return await self._freeze(lambda builder: builder.build_against_change(new, named, taken))

    async def _freeze(
        self, build: Callable[[SpecificationBuilder], Awaitable[tuple[Specification, str]]]
    ) -> tuple[Specification, str]:
        runs = await self._runs(Patch(base=self.tree.commit))
        if runs is None:
            return Specification(absent=NO_RUNNER), NO_RUNNER
        try:
            return await build(SpecificationBuilder(self.tree, runs, self.text, self.progress, self.protected))
        except ValueError as error:
            return Specification(absent=f"single tests cannot be run here: {error}."), str(error)

    async def second_tests(self, patch: Patch, frozen: Specification) -> SpecificationResult:
        """The results of a second author's tests on the head; the only control is that altered copies fail."""
        result = SpecificationResult(**dict(frozen))
        runs = await self._runs(patch)
        if not frozen.tests or runs is None:
            return result
        try:
            with waiting_for(self.progress, "a second author's tests on the head"):
                head = await runs.repeated("second-tests", frozen.selection, patch)
        except ValueError:  # with the patch, the framework is another
            return result
        texts = dict(head.first.texts)
        tests = tuple(
            test.model_copy(update={"head": head.outcome(test.id), "head_text": texts.get(test.id, "")[-MAX_TEXT:]})
            for test in frozen.tests
        )
        outcome: ControlOutcome = "failed" if head.untrusted else "held"
        control = Control(name="failing_copies_fail", outcome=outcome, detail=head.untrusted)
        return result.model_copy(update={"tests": tests, "head_run": head.first.execution, "controls": (control,)})

    async def specification(
        self, patch: Patch, frozen: Specification, suite: SuiteResult | None = None
    ) -> SpecificationResult:
        """The results of the frozen tests on the head, with their controls; `suite` is the suite's on the base."""
        result = SpecificationResult(**dict(frozen))
        runs, trees = await self._runs(patch), await self._trees(patch)
        if not frozen.tests or runs is None or trees is None:
            return result
        if digest(frozen.files, [test.id for test in frozen.tests]) != frozen.digest:
            return SpecificationResult(absent="they differ from the frozen ones.")
        self.progress.report("verification", f"specification: {len(frozen.tests)} independent tests on the head")
        red = frozenset(test.id for test in frozen.tests if test.role == "shows")
        new = frozenset(test.id for test in frozen.tests if test.missing)
        control_runner = ControlRunner(
            runs,
            trees,
            frozen.selection,
            red=red,
            new=new,
            texts={test.id: test.base_text for test in frozen.tests if test.role == "shows"},
            name="specification",
            isolated=self.isolated,
            existing=lambda: self._existing(runs, patch, suite),
        )
        try:
            with waiting_for(self.progress, "the independent tests on the head"):
                done = await control_runner.run()
        except ValueError:  # with the patch, the framework is another
            return result
        tests = tuple(
            test.model_copy(
                update={"head": done.results[test.id], "head_text": done.texts.get(test.id, "")[-MAX_TEXT:]}
            )
            for test in frozen.tests
        )
        return result.model_copy(update={"tests": tests, "head_run": done.head, "controls": done.controls})

    async def own(self, patch: Patch, shown: Reproduction) -> Reproduction:
        """The fixer's own tests, run by ids under the same controls; without these they count for nothing."""
        runs, trees = await self._runs(patch), await self._trees(patch)
        if not shown.ids or shown.on_head != "green" or runs is None or trees is None:
            return without_test_ids(shown)
        along = with_tests_only(patch, shown.command, trees.reference)
        selection = TestSelection(files=along.changes if along else (), ids=shown.ids)
        self.progress.report("verification", f"the fixer's tests by their ids: {len(shown.ids)}")
        try:
            with waiting_for(self.progress, "the fixer's tests on the base"):
                base = await runs.repeated("own-base", selection, trees.reference_patch)
        except ValueError as error:
            return _hint(shown, str(error))
        if base.untrusted:
            return _hint(shown, base.untrusted)
        reasons = await asyncio.to_thread(reasons_on_base, base, ExistingNames(trees.reference), self.text)
        red = frozenset(name for name, each in reasons.items() if each.counts)
        if not red:
            why = next((each.reason for each in reasons.values() if each.reason), "none of its tests fails on the base")
            return _hint(shown, why)
        new = frozenset(name for name in red if reasons[name].missing)
        selection = selection.model_copy(update={"ids": tuple(name for name in selection.ids if name in red)})
        control_runner = ControlRunner(
            runs,
            trees,
            selection,
            red=red,
            new=new,
            texts=dict(base.first.texts),
            name="own",
            isolated=self.isolated,
            base=base,
        )
        try:
            done = await control_runner.run()
        except ValueError as error:
            return _hint(shown, str(error))
        green = tuple(name for name in selection.ids if done.results[name] == "passed")
        return shown.model_copy(update={"ids": green, "controls": done.controls, "on_base": "red"})

    def _existing(self, runs: Runs, patch: Patch, suite: SuiteResult | None) -> TestSelection:
        """Tests that passed on the base, in the files that have them there."""
        if suite is None or not suite.launched:
            return TestSelection(ids=())
        sources = launcher_of(runs.suite).sources
        own = [path for path in patch.paths() if not is_test_path(path)]  # a test may be in the file that it tests
        names = [name for name in suite.passing or () if not matching(sources((name,)), own)]
        ids = tuple(nearest_first(names, nearest(self.tree, patch), sources)[:MAX_EXISTING])
        entries = self.tree.entries()
        there = [path for path in patch.paths() if path in entries and is_test_path(path)]
        contents = self.tree.read_many(matching(sources(ids), there))
        values = ({"path": path, "mode": entries[path].mode, "content": contents[path]} for path in contents)
        files = map(FileChange.model_validate, values)
        return TestSelection(ids=ids, files=tuple(files))

    async def caps(self, patch: Patch, frozen: Specification | None) -> tuple[Cap, ...]:
        """Limits that the patch's own text puts on the verdict."""
        trees = await self._trees(patch)
        return await asyncio.to_thread(self._caps, patch, frozen, trees)

    def _caps(self, patch: Patch, frozen: Specification | None, trees: ComparisonTrees | None) -> tuple[Cap, ...]:
        unchanged = trees.unchanged if trees is not None else ""
        tests = frozen.files if frozen else ()
        texts = [self.text, *(file.text for file in tests)]
        watching = self.variants.watches_tests(self.tree, patch)
        equality = tuple(one for one in watching if one.endswith(EQUALITY))
        found: tuple[tuple[CapRule, tuple[str, ...]], ...] = (
            ("sources_changed", (unchanged,) if unchanged else ()),
            ("watches_tests", tuple(one for one in watching if one not in equality)),
            ("own_equality", equality),
            ("literal_branches", self.variants.literal_branches(self.tree, patch, texts)),
            ("keeps_state", self.variants.keeps_state(self.tree, patch, self.text)),
            ("shared_names", self.variants.shared_names(self.tree, patch, tests, self.text)),
            ("left_to_framework", self._left_to_framework(patch, frozen)),
        )
        return tuple(Cap(rule=rule, findings=findings) for rule, findings in found if findings)

    def _left_to_framework(self, patch: Patch, frozen: Specification | None) -> tuple[str, ...]:
        suite = self.narrowable(patch)
        if frozen is None or not frozen.tests or suite is None or not suite.narrowed or not can_run(suite):
            return ()
        ids = [test.id for test in frozen.tests if test.role == "shows"]
        return left_to_framework(suite, ids, {file.path: file.text.encode() for file in frozen.files})

    async def _runs(self, patch: Patch) -> Runs | None:
        """How chosen tests are executed; None if the harness cannot do that."""
        suite = await asyncio.to_thread(self.narrowable, patch)
        if suite is None or not suite.narrowed or not can_run(suite):
            return None
        return Runs(suite, self.borrow, self.timeout, self.run)

    async def _trees(self, patch: Patch) -> ComparisonTrees | None:
        """The two trees; None if tests are wanted for a fix that cannot be reverted."""
        reference_patch = await asyncio.to_thread(self.before)
        if self.guarded is not None:
            guarded = self.guarded
            taken = await asyncio.to_thread(lambda: guarded.taken)
            if taken is None or taken.patch is None:
                return None
            reference_patch = taken.patch
        if reference_patch is None:
            return ComparisonTrees(self.tree, patch, self.variants, patch)
        reference = Overlay(self.tree, reference_patch)
        change = await asyncio.to_thread(difference, reference, Overlay(self.tree, patch))
        return ComparisonTrees(reference, change, self.variants, patch, reference_patch)


def can_run(suite: SuiteCommand) -> bool:
    """True if the harness's launcher can run chosen tests of the suite's framework."""
    try:
        launcher_of(suite)
    except ValueError:
        return False
    return True


def _hint(shown: Reproduction, why: str) -> Reproduction:
    note = f"{shown.note} When the harness ran its tests: {why.rstrip('.')}.".strip()
    return without_test_ids(shown.model_copy(update={"note": note}))


def without_test_ids(shown: Reproduction) -> Reproduction:
    """The reproduction without a run of its tests by ids."""
    return shown.model_copy(update={"ids": ()})
