"""Runs the fixer's reproduction on base plus the changed tests, and on the head, to see which tests turn green.

Tests for a fix that is in the base already are checked with the fix reverted.
"""

import asyncio
import re
import secrets
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Literal

from app.core.patch import Patch, Tree
from app.core.task import Person
from app.core.text import plain
from app.core.verification import Reproduction
from app.repo.git_command import GitError
from app.repo.git_store import GitStore
from app.repo.grammars import language_of
from app.repo.merge import merge
from app.sandbox.base import WORKSPACE, Sandbox
from app.verify.execution import gather_pair, run
from app.verify.failure_reason import LOOKED_AT, ExistingNames, FailedRun, failure_reason, rightly_failing, words_of
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.overlay import Overlay, apply_patch, difference
from app.verify.paths_of_tests import is_test_file, is_test_path
from app.verify.project import FixUnderTest, ProjectUnderTest, RevertedFix
from app.verify.recognise import recognise
from app.verify.report_files import report_in_file
from app.verify.report_text import report_in_output
from app.verify.reports import Report
from app.verify.suite import measure, read_file

_WORD = re.compile(r"\S+")
_READS_TEXT = frozenset(
    _WORD.findall("""
    [ [[ test grep egrep fgrep rg ag cat head tail nl od xxd wc ls find stat file diff cmp cut sort uniq tr strings tee
    echo printf true false exit return : cd set pwd basename dirname sed awk git
    """)
)
_BEFORE_A_COMMAND = frozenset(
    _WORD.findall("! if then elif else fi while until do done { } time command builtin exec env xargs")
)
_EXECUTING = re.compile(r"-(?:exec|execdir|ok|okdir)$|-f$|--file\b")
"""Options by which `find`, `sed` and `awk` execute something of the project."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SUBSTITUTED = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")


def only_reads_source(command: str, tree: Tree) -> bool:
    """True if only grep, test and the like are started, and they read source code.

    False if that cannot be determined. Prose or data is different: there the text itself is the result.
    """
    plain, parts = _SUBSTITUTED.sub(" ", command), [a or b for a, b in _SUBSTITUTED.findall(command)]
    if "$(" in plain or "`" in plain:
        return False
    words = [simple for part in (plain, *parts) for simple in _simple_commands(part)]
    programs = [simple[0] for simple in words if simple]
    if not programs or not all(map(_looks, words)):
        return False
    return any(_is_code(word, tree) for simple in words for word in simple[1:])


def _simple_commands(command: str) -> list[list[str]]:
    """The words of each simple command, without prefixes; one unknown word if they cannot be determined."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=";&|()")
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set(";&|()"):
                found.append([])
            elif found[-1] or not (word in _BEFORE_A_COMMAND or _ASSIGNMENT.match(word)):
                found[-1].append(word)
    except ValueError:
        return [["?"]]
    return found


def _looks(simple: list[str]) -> bool:
    if not simple:
        return True
    name = PurePosixPath(simple[0]).name
    return name in _READS_TEXT and (name == "test" or not any(_EXECUTING.match(word) for word in simple[1:]))


def _is_code(word: str, tree: Tree) -> bool:
    path = word.removeprefix(f"{WORKSPACE}/").removeprefix("./").rstrip("/")
    if path in ("", ".", WORKSPACE):
        return True
    return language_of(path) is not None or any(
        other.startswith(f"{path}/") and language_of(other) is not None for other in tree.entries()
    )


MAX_IDS = 20
"""Of the tests that turned, how many are kept."""

ReproductionOrigin = Literal["agent", "asked", "changed tests", "issue"]


@dataclass(frozen=True)
class ReproductionSubject:
    """What to run on base and head: a shell command, or chosen tests of the suite."""

    command: str
    origin: ReproductionOrigin = "agent"
    suite: SuiteCommand | None = None
    only: tuple[str, ...] = ()


def changed_tests(patch: Patch, suite: SuiteCommand | None) -> ReproductionSubject | None:
    """The changed and added test files as a reproduction, if the suite's framework can run just these."""
    files = tuple(change.path for change in patch.changes if is_test_file(change.path) and not change.deleted)
    if suite is None or not files:
        return None
    try:
        command = narrow(suite, files)
    except ValueError:
        return None
    return ReproductionSubject(command, "changed tests", suite, files)


def named_tests(command: str, head: Tree, suite: SuiteCommand | None) -> tuple[str, ...]:
    """The ids or files that a command names, if it only starts the suite's framework on chosen tests."""
    if suite is None or not suite.narrowed or suite.directory:
        return ()
    found = recognise(head, command, suite)
    if found.framework != suite.framework or not found.narrowed:
        return ()
    words = [word.removeprefix("./") for word in shlex.split(command)]
    if suite.framework == "unittest":
        entries = head.entries()
        chosen = tuple(word for word in words if _DOTTED.fullmatch(word) or f"{word}.py" in entries)
    else:
        chosen = tuple(word for word in words if is_test_file(word.split("::")[0]))
    return chosen if all(word.split("::")[0] in head.entries() for word in chosen if "/" in word) else ()


_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def with_tests_only(patch: Patch, command: str, base: Tree) -> Patch | None:
    """The part of a patch for the base: its tests, files that the command names, and everything new except sources."""
    there, words = base.entries().keys(), set(words_of(command))

    def goes_along(path: str) -> bool:
        return is_test_path(path) or (path not in there and (path in words or language_of(path) is None))

    kept = tuple(change for change in patch.changes if goes_along(change.path))
    return Patch(base=patch.base, changes=kept) if kept else None


def with_tests_of(patch: Patch, other: Patch) -> Patch:
    """The changes of `patch`, with the tests of the other one, which win over its own."""
    tests = tuple(change for change in other.changes if is_test_path(change.path))
    return apply_patch(patch, Patch(base=patch.base, changes=tests)) or patch


async def reproduce(
    subject: ReproductionSubject, patch: Patch, project: ProjectUnderTest, failing_before: Collection[str] = ()
) -> Reproduction:
    """Run on head and on base plus the changed tests, each in a fresh sandbox; tests for a fix on the base without it.

    `failing_before` are tests of the suite known to fail on base: among changed tests they do not make the head red.
    """
    guarded = project.guarded
    if guarded is not None and not await asyncio.to_thread(lambda: project.shows_red):
        return await _reproduce_on_head(subject, patch, project, guarded)
    unfixed = await asyncio.to_thread(lambda: project.unfixed)
    base = Overlay(project.tree, unfixed) if unfixed else project.tree
    tests = apply_patch(unfixed, with_tests_only(patch, subject.command, base))
    head, before = await gather_pair(
        _attempt(subject, project, "reproduction-head", patch),
        _attempt(subject, project, "reproduction-base", tests),
    )
    found = _judge(subject, before, head, ExistingNames(base), failing_before)
    return found.model_copy(update={"without": guarded.commit}) if guarded else found


async def _reproduce_on_head(
    subject: ReproductionSubject, patch: Patch, project: ProjectUnderTest, guarded: FixUnderTest
) -> Reproduction:
    """For a head without anything to compare with, as there is no fix to revert."""
    head = await _attempt(subject, project, "reproduction-head", patch)
    on_head, why = failure_reason(head, ExistingNames(project.tree))
    taken = guarded.taken
    notes = [f"On the head: {why}." if why else ""]
    notes.append(f"The fix {guarded.commit[:10]} cannot be reverted: {taken.reason}." if taken else UNKNOWN)
    return Reproduction(
        command=subject.command,
        origin=subject.origin,
        head=head.execution,
        on_head=on_head,
        note=" ".join(filter(None, notes)),
    )


def _judge(
    subject: ReproductionSubject,
    before: FailedRun,
    head: FailedRun,
    existing: ExistingNames,
    failing_before: Collection[str],
) -> Reproduction:
    on_base, why_base = failure_reason(before, existing)
    on_head, why_head = failure_reason(head, existing)
    if on_base == "red" and subject.suite is None and only_reads_source(subject.command, existing.tree):
        on_base, why_base = "was_not_there", "the command only reads source text and executes nothing"
    notes = [f"On the base: {why_base}." if why_base else "", f"On the head: {why_head}." if why_head else ""]
    if subject.origin == "changed tests" and before.cases is not None and head.cases is not None:
        failing = {name for name, case in head.cases.items() if case.failed}
        if on_head == "red" and failing and failing.issubset(failing_before):
            on_head = "green"
            notes.append(f"{len(failing)} of these tests also fail on the base.")
        turned = {name for name in rightly_failing(before, existing) if _passed(head.cases, name)}
        if on_base == "red" and not turned:
            on_base = "green"
            notes.append("No test that fails on the base passes on the head.")
    return Reproduction(
        command=subject.command,
        origin=subject.origin,
        base=before.execution,
        head=head.execution,
        on_base=on_base,
        on_head=on_head,
        note=" ".join(note for note in notes if note),
        ids=_candidates(before, head, existing) if on_head == "green" and on_base != "green" else (),
    )


def _candidates(before: FailedRun, head: FailedRun, existing: ExistingNames) -> tuple[str, ...]:
    """Tests that pass on the head and not on the base, those with a reason that counts first."""
    passing = {name for name, case in (head.cases or {}).items() if case.status == "passed"}
    before_already = {name for name, case in (before.cases or {}).items() if case.status in ("passed", "skipped")}
    failing = rightly_failing(before, existing)
    return tuple(sorted(passing - before_already, key=lambda name: (name not in failing, name)))[:MAX_IDS]


def _passed(cases: Report, name: str) -> bool:
    """Passed under its own name; a file that could not be collected has its tests' names on the head only."""
    if name in cases:
        return cases[name].status == "passed"
    file = name.removeprefix("unittest.loader._FailedTest.")
    below = (f"{file}::", f"{file}.", f"{PurePosixPath(file).name}.")
    passing = [other for other, case in cases.items() if case.status == "passed"]
    return any(other.startswith(below) for other in passing) or (is_test_file(name) and bool(passing))


async def _attempt(
    subject: ReproductionSubject, project: ProjectUnderTest, name: str, patch: Patch | None
) -> FailedRun:
    timeout = project.limits.reproduction
    async with project.open(name, patch) as sandbox:
        if subject.suite is not None:
            measured = await measure(sandbox, subject.suite, timeout=timeout, only=subject.only)
            return FailedRun(measured.result.execution, _text(measured.output), measured.cases)
        return await _command(sandbox, subject.command, timeout)


async def _command(sandbox: Sandbox, command: str, timeout: float) -> FailedRun:
    """Run the agent's command unchanged, except that pytest is asked for a report."""
    report = f"/tmp/report-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
    environment = {"PYTEST_ADDOPTS": f"--junitxml={report} -o junit_family=xunit1"}
    ran = await run(sandbox, command, timeout=timeout, env=environment)
    content = await read_file(sandbox, report)
    cases = report_in_file(content) if content else report_in_output(ran.output)
    return FailedRun(ran.execution, _text(ran.output), cases)


def _text(output: bytes) -> str:
    return plain(output[-4 * LOOKED_AT :].decode(errors="replace"))


NOBODY = Person(name="agent-fix", email="agent-fix@users.noreply.invalid")
_NEVER = datetime(2000, 1, 1, tzinfo=UTC)
_PROSE = frozenset({".md", ".rst", ".txt", ".adoc", ""})
"""Files whose conflicts are only about words: they stay as in the base. Changelogs always conflict."""
MAX_NAMED_CONFLICTS = 3


def revert_fix(store: GitStore, base: str, fix: str) -> RevertedFix:
    """Revert a commit on a base, except for its tests. Both, and the fix's first parent, are in the store. Blocking.

    Later changes elsewhere are kept: this is a merge of the fix's parent, with the fix as the merge base.
    """
    before = store.parents(fix)
    if not before:
        return RevertedFix(None, "it is the first commit of its repository")
    try:
        merged = merge(
            store, base=fix, ours=base, theirs=before[0], identity=NOBODY, date=_NEVER, message="Without the fix\n"
        )
    except GitError as error:
        return RevertedFix(None, str(error))
    open_paths = [path for path in merged.paths if not is_test_path(path)]
    code = [path for path in open_paths if PurePosixPath(path).suffix not in _PROSE]
    if code:
        return RevertedFix(None, f"its lines were changed again later ({', '.join(code[:MAX_NAMED_CONFLICTS])})")
    whole = difference(store.tree(base), store.tree(merged.commit))
    kept = tuple(each for each in whole.changes if each.path not in open_paths and not is_test_path(each.path))
    if not kept:
        return RevertedFix(None, "only its tests are left in the base")
    return RevertedFix(whole.model_copy(update={"changes": kept}))


UNKNOWN = (
    "No fix is known that could be reverted, so nothing shows that these tests fail without it: "
    "they only pass on the current code."
)
