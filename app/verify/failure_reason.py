"""Decides why a reproduction is red: because of the bug, or only because something does not exist on the base.

A red counts if something that exists misbehaves: an assertion, an exception from code that was reached, a crash, a
hang. It does not count (`was_not_there`) if the reproduction never got that far: an unknown command, an uncollected
test, a syntax error in the test itself, an import or a build that needs what only the patch adds. An import error of a
module or name that the base *does* have is a red, because then the import is the bug. The same rule distinguishes a
syntax error in a source file of the base from one in a new test.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from app.core.patch import Tree
from app.core.verification import Execution, FailureReason
from app.sandbox.base import WORKSPACE
from app.verify.paths_of_tests import is_test_path
from app.verify.reports import CaseResult, Report

MAX_SEARCHED = 2_000
MAX_FILE = 512 * 1024
_SOURCES = frozenset({".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".go", ".rs"})
_DEFINING = (
    r"(?:(?:def|class|function\*?|const|let|var|func|fn|type|interface|struct|enum|macro_rules!)\s+"
    r"|\bproc_macro_derive\(\s*){name}\b"
)
_ASSIGNING = r"^\s*(?:module\.)?(?:exports\.)?{name}\s*(?:[:=]|,$)"


@dataclass(frozen=True)
class ExistingNames:
    """Questions about a commit's own, non-test files."""

    tree: Tree

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self.tree.entries())

    @cached_property
    def _stems(self) -> frozenset[str]:
        """Every file without its suffix, and every directory, by each end of its path: `src/a/b.py` is also `a/b`."""
        stems: set[str] = set()
        for path in self._paths:
            whole = PurePosixPath(path)
            for one in (whole.with_suffix(""), *whole.parents):
                parts = one.parts
                stems.update("/".join(parts[start:]) for start in range(len(parts)))
        return frozenset(stems)

    def source(self, path: str) -> bool:
        """True for a file of the base that is not a test."""
        path = _relative(path)
        return path in self._paths and not is_test_path(path)

    def file(self, path: str) -> bool:
        return _relative(path) in self._paths

    def module(self, dotted: str) -> bool:
        """True for a Python module or package of the base, wherever its sources start."""
        return dotted.replace(".", "/") in self._stems

    def script(self, specifier: str) -> bool:
        """True for a JavaScript import of a file in the base, with or without its suffix; False for packages."""
        name = _relative(specifier)
        if not specifier.startswith((".", "/", WORKSPACE)):
            return False
        parts = [part for part in name.split("/") if part not in (".", "..")]
        return "/".join(parts) in self._stems or str(PurePosixPath(*parts).with_suffix("")) in self._stems

    def defines(self, name: str) -> bool:
        """True if some source file of the base defines this name."""
        if not name.isidentifier():
            return False
        pattern = re.compile(f"{_DEFINING}|{_ASSIGNING}".format(name=re.escape(name)).encode(), re.MULTILINE)
        return any(pattern.search(content) for content in self._contents)

    @cached_property
    def _contents(self) -> list[bytes]:
        sources = [
            path
            for path, entry in self.tree.entries().items()
            if PurePosixPath(path).suffix in _SOURCES and entry.size <= MAX_FILE and not is_test_path(path)
        ]
        return list(self.tree.read_many(sources[:MAX_SEARCHED]).values())


def _relative(path: str) -> str:
    return path.removeprefix("file://").removeprefix(f"{WORKSPACE}/").removeprefix("./")


LOOKED_AT = 100_000
"""Characters at the end of an output that are searched for a reason."""


class FailedRun(NamedTuple):
    """One execution of a reproduction, its output as text, and per-test results if there are any."""

    execution: Execution
    output: str
    cases: Report | None = None


def failure_reason(attempt: FailedRun, existing: ExistingNames) -> tuple[FailureReason, str]:
    """How a reproduction ended, and the reason in a few words if there is one."""
    execution = attempt.execution
    if execution.timed_out:
        return "red", f"did not finish within its limit ({execution.seconds:.0f} s)"
    if execution.exit_code == 0:
        reason = _nothing_ran(attempt)
        return ("was_not_there", reason) if reason else ("green", "")
    if execution.exit_code in (126, 127):
        return "was_not_there", "the command was not found"
    failing = {name: case for name, case in (attempt.cases or {}).items() if case.failed}
    if not failing:
        reason = missing_name(attempt.output[-LOOKED_AT:], execution.command, existing)
        return ("was_not_there", reason) if reason else ("red", "")
    reasons = [_absent_in_case(name, case, attempt, existing) for name, case in failing.items()]
    return ("was_not_there", reasons[0]) if all(reasons) else ("red", "")


def rightly_failing(attempt: FailedRun, existing: ExistingNames) -> frozenset[str]:
    """The tests that failed for a reason that counts."""
    return frozenset(
        name
        for name, case in (attempt.cases or {}).items()
        if case.failed and not _absent_in_case(name, case, attempt, existing)
    )


def _absent_in_case(name: str, case: CaseResult, attempt: FailedRun, existing: ExistingNames) -> str:
    if name.startswith("unittest.loader._FailedTest") and "has no attribute" in case.text:
        return "the test does not exist"
    # For a file that could not be loaded, node's report only says that it failed; the output has the reason.
    silent = "ERR_TEST_FAILURE" in case.text and "cause: 'test failed'" in case.text
    return missing_name(attempt.output[-LOOKED_AT:] if silent else case.text, attempt.execution.command, existing)


_NO_TESTS = re.compile(
    r"^no tests ran\b|\bno tests ran in\b|^Ran 0 tests\b|^(?:#|\u2139) tests 0$|\bNo tests? (?:files )?found\b"
    r"|\[no test files\]|\[no tests to run\]|^running 0 tests$|\bcollected 0 items\b",
    re.MULTILINE,
)
_SOME_TESTS = re.compile(
    r"\b[1-9]\d* passed\b|^Ran [1-9]\d* tests?\b|^(?:#|\u2139) pass [1-9]|^ok\s+\S+\s+[\d.]+s$"
    r"|^running [1-9]\d* tests?$",
    re.MULTILINE,
)


def _nothing_ran(attempt: FailedRun) -> str:
    """Why an exit code of 0 shows nothing: a test framework had no test to run, or skipped them all."""
    if attempt.cases:
        passed = any(case.status == "passed" for case in attempt.cases.values())
        return "" if passed else "every test was skipped"
    none_is_told = attempt.cases is not None or _NO_TESTS.search(attempt.output)
    # Frameworks that are not asked for more count their tests without naming them.
    return "no test was run" if none_is_told and not _SOME_TESTS.search(attempt.output) else ""


def missing_name(text: str, command: str, existing: ExistingNames) -> str:
    """What was missing, in a few words; empty if something existing failed."""
    for rule in _RULES:
        reason = rule(text, existing)
        if reason is not None:
            return reason
    return _missing_argument(text, command, existing)


# A rule returns None if it does not apply, an empty text if the failure counts, otherwise what was missing.
_Rule = Callable[[str, ExistingNames], str | None]

_PYTHON_ERROR = re.compile(
    r"^(?:E\s+)?(?P<kind>(?:[\w.]+\.)?\w*(?:Error|Exception|Warning|Exit|Interrupt|StopIteration))(?::\s|\s*$)",
    re.MULTILINE,
)
_NO_MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)'?")
_NO_NAME = re.compile(r"cannot import name '(?P<name>\w+)'")
_NO_TEST_ATTRIBUTE = re.compile(r"module '(?P<module>[\w.]*test[\w.]*)' has no attribute '(?P<name>\w+)'")
_PYTHON_FILE = re.compile(r"File \"(?P<path>[^\"]+)\", line \d+(?!.*, in )")
_PYTHON_PLACE = re.compile(r"^(?:E\s+)?(?P<path>[\w./-]+\.py):\d+", re.MULTILINE)


def _python(text: str, existing: ExistingNames) -> str | None:
    if found := re.search(r"(?:^|/)python[\w.]*: No module named (?P<name>[\w.]+)", text, re.MULTILINE):
        return "" if existing.module(found["name"]) else f"the module {found['name']} does not exist"
    errors = list(_PYTHON_ERROR.finditer(text))
    if not errors:
        return None
    last = errors[-1]
    kind, rest = last["kind"].rsplit(".", 1)[-1], text[last.start() : last.start() + 2_000]
    if kind in ("ModuleNotFoundError", "ImportError"):
        return _python_import(rest, existing)
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        places = [found["path"] for found in (*_PYTHON_FILE.finditer(text), *_PYTHON_PLACE.finditer(text))]
        return "" if any(existing.source(path) for path in places[-1:]) else "the test has a syntax error"
    if kind == "AttributeError" and (found := _NO_TEST_ATTRIBUTE.search(rest)) and "unittest/loader" in text:
        return f"the test {found['name']} does not exist"
    return ""


def _python_import(message: str, existing: ExistingNames) -> str | None:
    if found := _NO_NAME.search(message):
        return "" if existing.defines(found["name"]) else f"the name {found['name']} does not exist"
    if found := _NO_MODULE.search(message):
        return "" if existing.module(found["name"]) else f"the module {found['name']} does not exist"
    return ""


_UNCOLLECTED = re.compile(
    r"^ERROR: (?:file or directory )?not found: (?P<name>.+)$|^(?P<usage>ERROR: usage:|.*error: unrecognized arguments)"
    r"|fixture '(?P<fixture>\w+)' not found",
    re.MULTILINE,
)


def _collection(text: str, _: ExistingNames) -> str | None:
    found = _UNCOLLECTED.search(text)
    if found is None:
        return None
    if found["fixture"]:
        return f"the fixture {found['fixture']} does not exist"
    return "the command was not understood" if found["usage"] else "the test does not exist"


_NODE_MODULE = re.compile(
    r"Cannot find (?:module|package) '(?P<name>[^']+)'|Could not (?:find|resolve) [\"'](?P<path>[^\"']+)"
)
_NODE_EXPORT = re.compile(r"does not provide an export named '(?P<name>\w+)'")
_NODE_SYNTAX = re.compile(r"^(?P<path>(?:file://)?/\S+?\.[cm]?[jt]sx?):\d+\n(?:.*\n){0,6}?SyntaxError: ", re.MULTILINE)
_TYPESCRIPT = re.compile(r"^(?P<path>[\w./-]+\.[cm]?tsx?)[:(]\d+.*error TS\d+", re.MULTILINE)


def _javascript(text: str, existing: ExistingNames) -> str | None:
    if found := _NODE_EXPORT.search(text):
        return "" if existing.defines(found["name"]) else f"the export {found['name']} does not exist"
    if found := _NODE_MODULE.search(text):
        name = found["name"] or found["path"]
        return "" if existing.script(name) else f"{name.removeprefix('/workspace/')} does not exist"
    for pattern, reason in ((_NODE_SYNTAX, "the test has a syntax error"), (_TYPESCRIPT, "the test does not compile")):
        if found := pattern.search(text):
            return "" if existing.source(found["path"]) else reason
    return None


_GO_BUILD = re.compile(
    r"\[(?:build|setup) failed\]|no required module provides package|cannot find package|matched no packages"
)
_GO_PLACE = re.compile(r"^(?:\./)?(?P<path>[\w./-]+\.go):\d+:\d+: ", re.MULTILINE)
_RUST_BUILD = re.compile(
    r"^error: could not compile|^error: no test target named|^error: no such command", re.MULTILINE
)
_RUST_PLACE = re.compile(r"^\s*--> (?P<path>[\w./-]+\.rs):\d+", re.MULTILINE)
_RUST_ERROR = re.compile(r"^error(?:\[E\d+\])?: (?!could not compile)", re.MULTILINE)
_RUST_MACRO = re.compile(r"this error originates in the (?:\w+ )?macro `(?:\$?\w+::)*(?P<name>\w+)!?`")


def _compiled(text: str, existing: ExistingNames) -> str | None:
    for failed, place in ((_GO_BUILD, _GO_PLACE), (_RUST_BUILD, _RUST_PLACE)):
        if failed.search(text):
            # A source file of the base that does not compile by itself is a bug; with tests named, it is the test.
            paths = {found["path"] for found in place.finditer(text)}
            by_itself = bool(paths) and all(existing.source(path) for path in paths)
            return "" if by_itself or _of_own_macros(text, existing) else "it does not compile"
    return None


def _of_own_macros(text: str, existing: ExistingNames) -> bool:
    """True if each error of the Rust compiler is in code that a macro of the base generated: that macro misbehaves."""
    _, *errors = _RUST_ERROR.split(text)
    macros = [_RUST_MACRO.search(error) for error in errors]
    return bool(macros) and all(found is not None and existing.defines(found["name"]) for found in macros)


_SHELL = re.compile(
    r"^(?:bash|sh|/\S+/(?:ba)?sh): (?:-c: )?(?:line \d+: )?.*(?:syntax error|No such file or directory|not found)"
    r"|can't open file '[^']*'|No rule to make target|(?i:missing script:)|No tests? (?:files )?found"
    r"|Your test suite must contain at least one test",
    re.MULTILINE,
)


def _shell(text: str, _: ExistingNames) -> str | None:
    found = _SHELL.search(text)
    return f"`{found[0].strip()[:120]}`" if found else None


def _no_tests(text: str, _: ExistingNames) -> str | None:
    return "no test was run" if _NO_TESTS.search(text) and not _SOME_TESTS.search(text) else None


_RULES: tuple[_Rule, ...] = (_shell, _collection, _javascript, _python, _compiled, _no_tests)
_NO_FILE = re.compile(
    r"No such file or directory:? ?[\"'`]?(?P<path>[\w./-]+)|[\"'`](?P<before>[\w./-]+)[\"'`]?: No such file"
)


def _missing_argument(text: str, command: str, existing: ExistingNames) -> str:
    """A file that the command names and the base does not have."""
    words = set(words_of(command))
    for found in _NO_FILE.finditer(text):
        path = (found["path"] or found["before"]).removeprefix("/workspace/").removeprefix("./")
        if path in words and not existing.file(path):
            return f"{path} does not exist"
    return ""


def words_of(command: str) -> Iterator[str]:
    """The words of a command, without parsing its syntax."""
    for word in re.split(r"[\s;|&<>()'\"=]+", command):
        if word:
            yield word.removeprefix("./")
