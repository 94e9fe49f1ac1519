"""Makes the specification of an independent author's tests: they are checked, run on the base, and frozen."""

import ast
import asyncio
import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.examples import SourceText
from app.core.job import BASE_TESTS
from app.core.patch import FileChange, Patch
from app.core.python_source import parse_python
from app.core.text import one_line
from app.core.verification import Specification, SpecifiedTest
from app.verify.failure_reason import ExistingNames, missing_interface, missing_name
from app.verify.gates import CandidatePatch, static_gates
from app.verify.paths_of_tests import is_test_file, is_test_path
from app.verify.selected_tests import Repeats, Runs
from app.verify.sources.literals import uses_unseen_values

MAX_FILES, MAX_BYTES, MAX_TESTS = 8, 60_000, 16
MAX_SENTENCE = 300
MAX_TEXT = 1_500
"""Characters of a failure that are kept: its end says most."""
_HARNESS = re.compile(r"^(?:conftest\.py|__init__\.py|testmain.*)$", re.IGNORECASE)
"""Files that configure other tests."""
_SETTINGS = re.compile(r"^\w*(?:setup|config|rc)\b.*\.\w+$", re.IGNORECASE)
"""Files that configure other tests, unless their name is a test's. In Rust each file of tests is for itself."""


def _affects_others(name: str) -> bool:
    settings = _SETTINGS.match(name) is not None and not name.endswith(".rs")
    return _HARNESS.match(name) is not None or (settings and not is_test_file(name))


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
            elif _affects_others(PurePosixPath(file.path).name):
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
    option = name.startswith("-")
    word = rf"(?<!\w){re.escape(name)}(?!\w{'|-' if option else ''})"
    if option or _LIKE_CODE.search(name):
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
