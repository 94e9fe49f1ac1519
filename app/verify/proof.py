"""Proves a change: by the test author's frozen tests, or by the fixer's own, both under the same controls.

An independent author's tests become the specification: they are checked, run on the base, and frozen.
"""

import ast
import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.job import BASE_TESTS, waiting_for
from app.core.patch import FileChange, Patch, Tree
from app.core.python_source import parse_python
from app.core.text import one_line
from app.core.verification import (
    Cap,
    CapRule,
    Control,
    ControlOutcome,
    Reproduction,
    SourceText,
    Specification,
    SpecificationResult,
    SpecifiedTest,
    SuiteResult,
    TestSelection,
)
from app.verify.controls import ComparisonTrees, ControlRunner
from app.verify.detect import find_suite
from app.verify.failure_reason import ExistingNames, missing_interface, missing_name
from app.verify.frameworks import SuiteCommand
from app.verify.gates import CandidatePatch, static_gates
from app.verify.launcher import launcher_of, left_to_framework
from app.verify.overlay import Overlay, difference
from app.verify.paths_of_tests import is_test_file, is_test_path, matching, nearest, nearest_first
from app.verify.project import ProjectUnderTest
from app.verify.reproduction import with_tests_only
from app.verify.selected_tests import Repeats, Runs
from app.verify.sources.analysis import SourceAnalysis
from app.verify.sources.literals import uses_unseen_values

MAX_FILES, MAX_BYTES, MAX_TESTS = 8, 60_000, 16
MAX_SENTENCE = 300
MAX_TEXT = 1_500
"""Characters of a failure that are kept: its end says most."""
_HARNESS = re.compile(r"^(?:conftest\.py|__init__\.py|\w*(?:setup|config|rc)\b.*\.\w+|testmain.*)$", re.IGNORECASE)
"""Files that affect other tests than their own."""


@dataclass(frozen=True, slots=True)
class SpecificationBuilder:
    """Makes the specification from an author's tests for one base.

    `text` is the issue's, with the names of new interfaces.
    """

    runs: Runs
    text: str
    protected: tuple[str, ...] = ()

    async def build(
        self, files: Sequence[SourceText], ids: Sequence[str], outdated: Sequence[str] = ()
    ) -> tuple[Specification, str]:
        """The specification, without tests if none fails on the base for the right reason, and a message for its
        author.

        Nothing is executed (`runs` is 0) if the files or the ids are invalid.
        """
        files, ids = tuple(sorted(files, key=lambda file: file.path)), tuple(dict.fromkeys(ids))
        if problems := await asyncio.to_thread(self._problems, files, ids):
            return _rejected(problems)
        found, kept = await self._run_on_base("specification", files, ids)
        if not found.absent and not any(test.role == "shows" for test in kept):
            absent = "none of the test author's tests fails on the base for the right reason."
            found = found.model_copy(update={"absent": absent})
        if not found.absent:
            kept.sort(key=lambda test: test.role == "guards")
            still_valid = tuple(name for name in dict.fromkeys(outdated) if name not in ids)
            update: dict[str, object] = {"files": files, "outdated": still_valid}
            example = _alone(kept, files)
            tests = await asyncio.to_thread(self._compared, kept, files, example)
            passes = any(test.id == ids[0] and test.role == "guards" for test in kept)
            update |= {"tests": tests, "example": example, "reported_passes": passes}
            found = _frozen(found.model_copy(update=update))
        return found, freeze_feedback(found)

    async def build_against_change(
        self, files: Sequence[SourceText], ids: Sequence[str], taken: Collection[str]
    ) -> tuple[Specification, str]:
        """The tests of a second author, who has seen a change: none has to fail on the base, and none is shown to the
        fixer. No file may have one of the `taken` paths.
        """
        files, ids = tuple(sorted(files, key=lambda file: file.path)), tuple(dict.fromkeys(ids))
        problems = [f"{file.path}: already exists; use another name." for file in files if file.path in taken]
        if problems := problems or await asyncio.to_thread(self._problems, files, ids):
            return _rejected(problems)
        found, kept = await self._run_on_base("second-tests", files, ids)
        if not found.absent:
            absent = "" if kept else "none of the second author's tests can be used."
            update = {"files": files if kept else (), "tests": tuple(kept), "absent": absent}
            found = _frozen(found.model_copy(update=update))
        return found, "\n".join(filter(None, (found.absent, *_lines_on_base(found))))

    async def _run_on_base(
        self, name: str, files: tuple[SourceText, ...], ids: tuple[str, ...]
    ) -> tuple[Specification, list[SpecifiedTest]]:
        """How the tests ended on the base, without them, and those that can be kept; `absent` says why none can."""
        tests = tuple(SpecifiedTest(id=each, sentence=sentence(each, files), role="guards") for each in ids)
        draft = Specification(files=files, tests=tests)
        what = f"{name.replace('-', ' ')}: {len(ids)} tests on the base"
        with self.runs.project.reported(what, BASE_TESTS):
            repeats = await self.runs.repeated(f"{name}-base", draft.selection, None)
        kept, dropped = await asyncio.to_thread(self._sorted_out, draft, repeats)
        found = Specification(
            dropped=tuple(dropped),
            base=repeats.first.execution,
            runs=len(repeats.runs),
            absent=repeats.untrusted or repeats.codes_agree,
        )
        return found, kept

    def _compared(
        self, tests: Sequence[SpecifiedTest], files: Sequence[SourceText], example: str
    ) -> tuple[SpecifiedTest, ...]:
        """The tests, with whether their values are others than those of issue and example."""
        seen = next((file for file in files if file.path == example), None)
        found = []
        for test in tests:
            file = file_of_test(test.id, files)
            new = file is not None and uses_unseen_values(_name(test.id), file, self.text, seen, _name(tests[0].id))
            found.append(test.model_copy(update={"varies": new}))
        return tuple(found)

    def _problems(self, files: tuple[SourceText, ...], ids: tuple[str, ...]) -> list[str]:
        found = []
        if not ids or not files:
            found.append("Give at least one file and the ids of its tests, or no tests and a `reason`.")
        if len(files) > MAX_FILES or len(ids) > MAX_TESTS:
            found.append(f"At most {MAX_FILES} files and {MAX_TESTS} tests.")
        if sum(len(file.text) for file in files) > MAX_BYTES:
            found.append(f"All files together may have at most {MAX_BYTES:,} characters.")
        tree = self.runs.project.tree
        entries = tree.entries()
        for file in files:
            if file.path in entries:
                found.append(f"{file.path}: already exists; add new files only.")
            elif not is_test_path(file.path):
                found.append(f"{file.path}: is not where this project keeps tests.")
            elif _HARNESS.match(PurePosixPath(file.path).name):
                found.append(f"{file.path}: would affect other tests.")
        if found:
            return found
        if not any(is_test_file(file.path) for file in files):
            found.append("The test runner would execute none of these files.")
        changes = tuple(FileChange(path=file.path, mode="100644", content=file.text.encode()) for file in files)
        gates = static_gates(CandidatePatch(tree, Patch(base=tree.commit, changes=changes)), self.protected)
        found += [f"{gate.name}: {detail}" for gate in gates if gate.outcome == "blocked" for detail in gate.details]
        found += [f"{name}: is in none of these files." for name in ids if file_of_test(name, files) is None]
        return found

    def _sorted_out(self, draft: Specification, repeats: Repeats) -> tuple[list[SpecifiedTest], list[str]]:
        """The tests by their results on the base, and why others are dropped."""
        reasons = reasons_on_base(repeats, ExistingNames(self.runs.project.tree), self.text)
        texts = dict(repeats.first.texts)
        kept, dropped, shown = list[SpecifiedTest](), list[str](), set[str]()
        for test in draft.tests:
            on_base = reasons[test.id]
            if on_base.counts:
                text = texts.get(test.id, "")[-MAX_TEXT:]
                kept.append(test.model_copy(update={"role": "shows", "missing": on_base.missing, "base_text": text}))
            elif on_base.reason:
                text = one_line(texts.get(test.id, "")[-MAX_TEXT:])
                more = f" {text}" if text and text not in shown else ""
                shown.add(text)
                dropped.append(f"{test.id}: {on_base.reason}.{more}")
            else:
                kept.append(test)
        return kept, dropped


class OnBase(NamedTuple):
    """How one test ended on the base: `counts` as red, or `reason` says why it is neither red nor green.

    `missing` is an interface that the issue names and the base lacks, if that is why it fails.
    """

    counts: bool = False
    reason: str = ""
    missing: str = ""


def reasons_on_base(repeats: Repeats, existing: ExistingNames, text: str) -> dict[str, OnBase]:
    """Each test on the base; `text` is the issue's."""
    execution, texts = repeats.first.execution, dict(repeats.first.texts)
    found = dict[str, OnBase]()
    for name, result in repeats.first.results:
        if name in repeats.disagreeing:
            found[name] = OnBase(reason="gives different results in different runs")
        elif result == "passed":
            found[name] = OnBase()
        elif result in ("skipped", "not_run"):
            found[name] = OnBase(reason="was skipped" if result == "skipped" else "was not run")
        else:
            failure = texts.get(name, "") or execution.excerpt
            missing = missing_interface(failure, existing)
            named = missing if missing and issue_names_interface(missing, text) else ""
            reason = missing_name(failure, execution.command, existing)
            if reason and not named:
                found[name] = OnBase(reason=f"fails only because {reason}, which the issue does not name")
            else:
                found[name] = OnBase(counts=True, missing=named)
    return found


def freeze_feedback(found: Specification) -> str:
    """Feedback for the author: each test on the base, and how it failed."""
    lines = _lines_on_base(found)
    if found.reported_passes:
        lines.append(
            "The first test passes on the base. If it is the reporter's own input, taken literally, leave it; else"
            " correct it."
        )
    if sum(test.role == "shows" for test in found.tests) < 2:
        lines.append("At least one test besides the example must fail on the base.")
    elif not any(test.varies for test in found.held_back):
        lines.append(
            "At least one failing test besides the example must use a value that neither issue nor example has."
        )
    output = found.base.excerpt[-MAX_TEXT:] if found.base and not found.tests else ""
    end = f"The end of the output:\n{output}" if output else ""
    return "\n".join(filter(None, (found.absent, *lines, end)))


def _lines_on_base(found: Specification) -> list[str]:
    lines = [f"{test.id}: {_ON_BASE[test.role]} {one_line(test.base_text)[-300:]}".strip() for test in found.tests]
    return [*lines, *(f"Dropped: {reason}" for reason in found.dropped)]


_ON_BASE = {"shows": "fails on the base, as it should.", "guards": "passes on the base and must keep passing."}


def _rejected(problems: Sequence[str]) -> tuple[Specification, str]:
    news = "\n".join(["Rejected; nothing was run:", *problems])
    return Specification(absent=f"the test author's tests were rejected: {problems[0]}"), news


def _frozen(found: Specification) -> Specification:
    return found.model_copy(update={"digest": digest(found.files, [test.id for test in found.tests])})


def digest(files: Sequence[SourceText], ids: Sequence[str]) -> str:
    """SHA-256 of files and ids."""
    whole = json.dumps([[(file.path, file.text) for file in files], list(ids)], ensure_ascii=True)
    return hashlib.sha256(whole.encode()).hexdigest()


_CODE = re.compile(r"(?P<mark>`{3,}|~{3,}|`+).*?(?P=mark)|^(?: {4}|\t)[^\n]*$", re.DOTALL | re.MULTILINE)
_LIKE_CODE = re.compile(r"_|\d|[a-z][A-Z]")


def issue_names_interface(name: str, text: str) -> bool:
    """True if the issue names this interface as code, not just as a word."""
    word = rf"(?<!\w){re.escape(name)}(?!\w)"
    if _LIKE_CODE.search(name):
        return re.search(word, text) is not None
    if re.search(rf"{word}\(|(?:(?<=\w)\.|--|::){re.escape(name)}(?!\w)", text):
        return True
    return any(re.search(word, code[0]) for code in _CODE.finditer(text))


def file_of_test(test_id: str, files: Sequence[SourceText]) -> SourceText | None:
    """The file of a test's id, in any framework's form of ids."""
    start = test_id.split("::", maxsplit=1)[0]
    for file in files:
        stem = str(PurePosixPath(file.path).with_suffix("")).replace("/", ".")
        if start in (file.path, PurePosixPath(file.path).name) or file.path.endswith(f"/{start}"):
            return file
        parts = stem.split(".")
        if any(test_id.startswith(".".join(parts[at:]) + ".") for at in range(len(parts))):
            return file
    name = re.compile(rf"\b{re.escape(_name(test_id))}\b")
    return next((file for file in files if is_test_file(file.path) and name.search(file.text)), None)


def sentence(test_id: str, files: Sequence[SourceText]) -> str:
    """The author's text about the test: its docstring or the comment above it; else its name in words."""
    file, name = file_of_test(test_id, files), _name(test_id)
    found = ""
    if file is not None and file.path.endswith(".py"):
        found = _docstring(file.text, name)
    if file is not None and not found:
        found = _comment(file.text, name)
    found = one_line(found or _in_words(name))[:MAX_SENTENCE].strip()
    found = found[:1].upper() + found[1:]
    return found if found.endswith((".", "!", "?")) else f"{found}."


def _name(test_id: str) -> str:
    """The test's own name: `test_x` of `tests/test_a.py::T::test_x[1]` and of `tests.test_a.T.test_x`."""
    last = test_id.rsplit("::", 1)[-1]
    if "::" in test_id and re.search(r"\s", last):  # a title, as node and jest have them
        return last.rsplit(" > ", 1)[-1]
    return re.split(r"\.", re.sub(r"\[.*\]$", "", last).split("/")[0])[-1]


def _docstring(text: str, name: str) -> str:
    module = parse_python(text)
    nodes = ast.walk(module) if module else ()
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((ast.get_docstring(node) or "" for node in functions if node.name == name), "").split("\n\n")[0]


_MARK = re.compile(r"^\s*(?:#(?!\[)|//+!?|/\*+|\*/?)\s?(?P<text>.*?)\s*(?:\*/)?$")
_BETWEEN = re.compile(r"^\s*(?:@|#\[)")


def _comment(text: str, name: str) -> str:
    """The comment lines right above the one that starts the test."""
    begins = re.compile(rf"(?:\b(?:def|func|fn)\s+{re.escape(name)}\b)|['\"`]{re.escape(name)}['\"`]")
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if begins.search(line)), 0)
    found: list[str] = []
    for line in reversed(lines[:at]):
        if _BETWEEN.match(line) and not found:
            continue
        comment = _MARK.match(line)
        if comment is None:
            break
        found.append(comment["text"])
    return " ".join(reversed(found)).strip()


def _in_words(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.replace("_", " ")).strip()
    return re.sub(r"^[Tt]ests?\s+(?=\S)", "", words)


def _alone(tests: Sequence[SpecifiedTest], files: Sequence[SourceText]) -> str:
    """The example's file, if it contains no other test."""
    file = file_of_test(tests[0].id, files)
    others = [file_of_test(test.id, files) for test in tests[1:]]
    return file.path if file is not None and file not in others else ""


MAX_EXISTING = 20
NO_RUNNER = "no test runner was found that can run single tests."


class PatchUnderTest(NamedTuple):
    """A patch, how chosen tests are run on its base and head, and what these differ in; None if neither can be."""

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
        texts = dict(head.first.texts)
        tests = tuple(
            test.model_copy(update={"head": head.outcome(test.id), "head_text": texts.get(test.id, "")[-MAX_TEXT:]})
            for test in frozen.tests
        )
        outcome: ControlOutcome = "failed" if head.untrusted else "held"
        control = Control(name="failing_copies_fail", outcome=outcome, detail=head.untrusted)
        return result.model_copy(update={"tests": tests, "head_run": head.first.execution, "controls": (control,)})

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
        tests = tuple(
            test.model_copy(
                update={"head": done.results[test.id], "head_text": done.texts.get(test.id, "")[-MAX_TEXT:]}
            )
            for test in frozen.tests
        )
        return result.model_copy(update={"tests": tests, "head_run": done.head, "controls": done.controls})

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


def _hint(shown: Reproduction, why: str) -> Reproduction:
    note = f"{shown.note} When the harness ran its tests: {why.rstrip('.')}.".strip()
    return without_test_ids(shown.model_copy(update={"note": note}))


def without_test_ids(shown: Reproduction) -> Reproduction:
    """The reproduction without a run of its tests by ids."""
    return shown.model_copy(update={"ids": ()})
