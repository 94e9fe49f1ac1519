"""Proves a change: by the test author's frozen tests, or by the fixer's own, both under the same controls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.core.examples import SourceText
from app.core.job import waiting_for
from app.core.patch import FileChange, Patch, Tree
from app.core.verification import (
    Cap,
    CapRule,
    Reproduction,
    Specification,
    SpecificationResult,
    SuiteResult,
    TestSelection,
)
from app.verify.controls import ComparisonTrees, ControlResults, ControlRunner
from app.verify.detect import find_suite
from app.verify.failure_reason import ExistingNames
from app.verify.frameworks import SuiteCommand
from app.verify.launcher import launcher_of, left_to_framework
from app.verify.overlay import Overlay, difference
from app.verify.paths_of_tests import is_test_path, matching, nearest, nearest_first
from app.verify.project import ProjectUnderTest
from app.verify.replay import control
from app.verify.reproduction import with_tests_only
from app.verify.selected_tests import Runs
from app.verify.sources.analysis import SourceAnalysis
from app.verify.specification import MAX_TEXT, SpecificationBuilder, digest, file_of_test, reasons_on_base

MAX_EXISTING = 20
NO_RUNNER = "no test runner was found that can run single tests."


class PatchUnderTest(NamedTuple):
    """A patch and what its proof needs.

    `runs` is None if the harness cannot run chosen tests, `trees` if tests are wanted for a fix that cannot be
    reverted.
    """

    patch: Patch
    runs: Runs | None
    trees: ComparisonTrees | None


@dataclass(frozen=True)
class Prover:
    """Executes chosen tests of one base and its patches. `text` is the issue's, with the names of new interfaces."""

    project: ProjectUnderTest
    suite: Callable[[], SuiteCommand | None]
    text: str
    protected: tuple[str, ...] = ()

    @property
    def tree(self) -> Tree:
        return self.project.tree

    def narrowable(self, patch: Patch) -> SuiteCommand | None:
        """A command that can run chosen tests: the suite's, or one that base or head suggest."""
        suite = self.suite()
        if suite is not None and suite.narrowed:
            return suite
        return find_suite(self.tree) or find_suite(Overlay(self.tree, patch))

    async def specifiable(self) -> SuiteCommand | None:
        """The command in whose framework specification tests can be written; None if there is none."""
        return await asyncio.to_thread(self._selectable, Patch(base=self.tree.commit))

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
            return await build(SpecificationBuilder(runs, self.text, self.protected))
        except ValueError as error:
            return Specification(absent=f"single tests cannot be run here: {error}."), str(error)

    async def second_tests(self, patch: Patch, frozen: Specification) -> SpecificationResult:
        """The results of a second author's tests on the head; the only control is that altered copies fail."""
        result = SpecificationResult(**dict(frozen))
        runs = await self._runs(patch)
        if not frozen.tests or runs is None:
            return result
        try:
            with waiting_for(self.project.progress, "a second author's tests on the head"):
                head = await runs.repeated("second-tests", frozen.selection, patch)
        except ValueError:  # with the patch, the framework is another
            return result
        results = {test.id: head.outcome(test.id) for test in frozen.tests}
        controls = (control("failing_copies_fail", head.untrusted),)
        return _on_head(frozen, ControlResults(results, dict(head.first.texts), head.first.execution, controls))

    async def specification(
        self, subject: PatchUnderTest, frozen: Specification, suite: SuiteResult | None = None
    ) -> SpecificationResult:
        """The results of the frozen tests on the head, with their controls; `suite` is the suite's on the base."""
        result = SpecificationResult(**dict(frozen))
        patch, runs, trees = subject
        if not frozen.tests or runs is None or trees is None:
            return result
        if digest(frozen.files, [test.id for test in frozen.tests]) != frozen.digest:
            return SpecificationResult(absent="they differ from the frozen ones.")
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
            existing=lambda: self._existing(runs, patch, suite),
        )
        try:
            what = f"specification: {len(frozen.tests)} independent tests on the head"
            with self.project.reported(what, "the independent tests on the head"):
                done = await control_runner.run()
        except ValueError:  # with the patch, the framework is another
            return result
        return _on_head(frozen, done)

    async def own(self, subject: PatchUnderTest, shown: Reproduction) -> Reproduction:
        """The fixer's own tests, run by ids under the same controls; without these they count for nothing."""
        patch, runs, trees = subject
        if not shown.ids or shown.on_head != "green" or runs is None or trees is None:
            return without_test_ids(shown)
        along = with_tests_only(patch, shown.command, trees.sources.base)
        selection = TestSelection(files=along.changes if along else (), ids=shown.ids)
        try:
            what = f"the fixer's tests by their ids: {len(shown.ids)}"
            with self.project.reported(what, "the fixer's tests on the base"):
                base = await runs.repeated("own-base", selection, trees.reference_patch)
        except ValueError as error:
            return _hint(shown, str(error))
        if base.untrusted:
            return _hint(shown, base.untrusted)
        reasons = await asyncio.to_thread(reasons_on_base, base, ExistingNames(trees.sources.base), self.text)
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
        launcher = launcher_of(runs.suite)
        own = [path for path in patch.paths() if not is_test_path(path)]  # a test may be in the file that it tests
        files_of = launcher.own_files(suite.passing or ())
        files_of = {name: files for name, files in files_of.items() if not matching(files, own)}
        ids = nearest_first(files_of, nearest(self.tree, patch), MAX_EXISTING)
        entries = self.tree.entries()
        there = [path for path in patch.paths() if path in entries and is_test_path(path)]
        contents = self.tree.read_many(matching(launcher.sources(ids), there))
        values = ({"path": path, "mode": entries[path].mode, "content": contents[path]} for path in contents)
        files = map(FileChange.model_validate, values)
        return TestSelection(ids=ids, files=tuple(files))

    def caps(self, subject: PatchUnderTest, frozen: Specification | None) -> tuple[Cap, ...]:
        """Limits that the patch's own text puts on the verdict. Blocking."""
        trees = subject.trees
        unchanged = trees.unchanged if trees is not None else ""
        tests = frozen.files if frozen else ()
        texts = [self.text, *(file.text for file in tests)]
        sources = SourceAnalysis(self.tree, subject.patch)
        if trees is not None and trees.reference_patch is None:
            sources = trees.sources
        watching = sources.watches_tests()
        found: tuple[tuple[CapRule, tuple[str, ...]], ...] = (
            ("sources_changed", (unchanged,) if unchanged else ()),
            ("watches_tests", tuple(text for rule, text in watching if rule == "watches_tests")),
            ("own_equality", tuple(text for rule, text in watching if rule == "own_equality")),
            ("literal_branches", sources.literal_branches(texts)),
            ("keeps_state", sources.keeps_state(self.text)),
            ("shared_names", sources.shared_names(tests, self.text)),
            ("left_to_framework", self._left_to_framework(subject.runs, frozen)),
        )
        return tuple(Cap(rule=rule, findings=findings) for rule, findings in found if findings)

    def _left_to_framework(self, runs: Runs | None, frozen: Specification | None) -> tuple[str, ...]:
        if frozen is None or not frozen.tests or runs is None:
            return ()
        ids = [test.id for test in frozen.tests if test.role == "shows"]
        return left_to_framework(runs.suite, ids, {file.path: file.text.encode() for file in frozen.files})

    async def subject(self, patch: Patch) -> PatchUnderTest:
        return PatchUnderTest(patch, await self._runs(patch), await self._trees(patch))

    async def _runs(self, patch: Patch) -> Runs | None:
        """How chosen tests are executed; None if the harness cannot do that."""
        suite = await asyncio.to_thread(self._selectable, patch)
        return Runs(suite, self.project) if suite is not None else None

    def _selectable(self, patch: Patch) -> SuiteCommand | None:
        """A command whose framework the harness's launcher can run chosen tests of; None if there is none."""
        suite = self.narrowable(patch)
        if suite is None or not suite.narrowed:
            return None
        try:
            launcher_of(suite)
        except ValueError:
            return None
        return suite

    async def _trees(self, patch: Patch) -> ComparisonTrees | None:
        """The two trees; None if tests are wanted for a fix that cannot be reverted."""
        if not await asyncio.to_thread(lambda: self.project.shows_red):
            return None
        unfixed = await asyncio.to_thread(lambda: self.project.unfixed)
        if unfixed is None:
            return ComparisonTrees(SourceAnalysis(self.tree, patch), patch)
        reference = Overlay(self.tree, unfixed)
        change = await asyncio.to_thread(difference, reference, Overlay(self.tree, patch))
        return ComparisonTrees(SourceAnalysis(reference, change), patch, unfixed)


def _on_head(frozen: Specification, done: ControlResults) -> SpecificationResult:
    tests = tuple(
        test.model_copy(update={"head": done.results[test.id], "head_text": done.texts.get(test.id, "")[-MAX_TEXT:]})
        for test in frozen.tests
    )
    update = {"tests": tests, "head_run": done.head, "controls": done.controls}
    return SpecificationResult(**dict(frozen)).model_copy(update=update)


def _hint(shown: Reproduction, why: str) -> Reproduction:
    note = f"{shown.note} When the harness ran its tests: {why.rstrip('.')}.".strip()
    return without_test_ids(shown.model_copy(update={"note": note}))


def without_test_ids(shown: Reproduction) -> Reproduction:
    """The reproduction without a run of its tests by ids."""
    return shown.model_copy(update={"ids": ()})
