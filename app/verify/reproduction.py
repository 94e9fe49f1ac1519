"""The reproduction on base plus the changed tests, and on the head: red must turn green, twice where that is cheap."""

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from app.patch import Patch
from app.sandbox.base import Sandbox
from app.text import plain
from app.tree import Tree
from app.verify.existing import Existing
from app.verify.facts import Reproduction
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.lines import read_cargo, read_unittest
from app.verify.looking import only_looks
from app.verify.overlay import on_top
from app.verify.paths import is_test_file, is_test_path
from app.verify.redness import LOOKED_AT, Attempt, redness, rightly_failing, words_of
from app.verify.reports import Report, read_junit
from app.verify.shell import run
from app.verify.suite import measure_cases, read_file

CHEAP = 60.0
"""Seconds that base and head may take together to be run a second time."""

Borrow = Callable[[str, Patch | None], AbstractAsyncContextManager[Sandbox]]
"""A fresh sandbox of that name with base plus patch, gone afterwards."""
Origin = Literal["agent", "asked", "changed tests", "issue"]


@dataclass(frozen=True)
class Subject:
    """What is to be shown on base and head: a shell command, or chosen tests of the suite."""

    command: str
    origin: Origin = "agent"
    suite: SuiteCommand | None = None
    only: tuple[str, ...] = ()


def changed_tests(patch: Patch, suite: SuiteCommand | None) -> Subject | None:
    """The changed and added test files as a reproduction, where the suite's framework can run just these."""
    files = tuple(change.path for change in patch.changes if is_test_file(change.path) and not change.deleted)
    if suite is None or not files:
        return None
    try:
        command = narrow(suite, files)
    except ValueError:
        return None
    return Subject(command, "changed tests", suite, files)


def with_tests_only(patch: Patch, command: str, base: Tree) -> Patch | None:
    """The part of a patch that goes onto the base: its tests, and new files that the command itself names."""
    words = set(words_of(command)) - base.entries().keys()
    kept = tuple(change for change in patch.changes if is_test_path(change.path) or change.path in words)
    return Patch(base=patch.base, changes=kept) if kept else None


def with_tests_of(patch: Patch, other: Patch) -> Patch:
    """The changes of `patch`, and all tests of the other one in their place, should these be gone."""
    changes = {change.path: change for change in patch.changes}
    changes |= {change.path: change for change in other.changes if is_test_path(change.path)}
    return patch.model_copy(update={"changes": tuple(changes[path] for path in sorted(changes))})


async def reproduce(
    subject: Subject,
    patch: Patch,
    base: Tree,
    borrow: Borrow,
    *,
    timeout: float,
    failing_before: frozenset[str] = frozenset(),
    beneath: Patch | None = None,
) -> Reproduction:
    """Run on head and on base plus the changed tests, each in a fresh sandbox.

    `failing_before` are tests of the suite known to fail on base: among changed tests they do not make the head red.
    `beneath` makes the base that sandboxes are filled with into `base`, where that is another.
    """
    existing = Existing(base)
    tests = on_top(beneath, with_tests_only(patch, subject.command, base))
    head = await _attempt(subject, borrow, "reproduction-head", patch, timeout)
    before = await _attempt(subject, borrow, "reproduction-base", tests, timeout)
    result = _judge(subject, before, head, existing, failing_before)
    seconds = head.execution.seconds + before.execution.seconds
    if result.on_base != "red" or result.on_head != "green":
        return result
    if seconds > CHEAP:
        return _noted(result, f"Run once: it takes {seconds:.0f} s.")
    head = await _attempt(subject, borrow, "reproduction-head-again", patch, timeout)
    before = await _attempt(subject, borrow, "reproduction-base-again", tests, timeout)
    again = _judge(subject, before, head, existing, failing_before)
    if again.on_head != "green":
        return _noted(again, "It passed on the head once and failed the second time.")
    if again.on_base != "red":
        return _noted(again, "It failed on the base once and not the second time, so its failure shows nothing.")
    return result


async def reproduce_on_head(
    subject: Subject, patch: Patch, base: Tree, borrow: Borrow, *, timeout: float
) -> Reproduction:
    """Where there is nothing to compare with."""
    head = await _attempt(subject, borrow, "reproduction-head", patch, timeout)
    on_head, why = redness(head, Existing(base))
    note = f"On the head: {why}." if why else ""
    command = subject.command
    return Reproduction(command=command, origin=subject.origin, head=head.execution, on_head=on_head, note=note)


def _judge(
    subject: Subject, before: Attempt, head: Attempt, existing: Existing, failing_before: frozenset[str]
) -> Reproduction:
    on_base, why_base = redness(before, existing)
    on_head, why_head = redness(head, existing)
    if on_base == "red" and subject.suite is None and only_looks(subject.command, existing.tree):
        on_base, why_base = "was_not_there", "the command looks at source text and executes nothing"
    notes = [f"On the base: {why_base}." if why_base else "", f"On the head: {why_head}." if why_head else ""]
    if subject.origin == "changed tests" and before.cases is not None and head.cases is not None:
        failing = {name for name, case in head.cases.items() if case.status in ("failed", "error")}
        if on_head == "red" and failing and failing <= failing_before:
            on_head = "green"
            notes.append(f"Failing on the base as well, before any change: {len(failing)} of these tests.")
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
    )


def _passed(cases: Report, name: str) -> bool:
    """Passed by its own name; a file that could not be collected has its tests' names on the head only."""
    if name in cases:
        return cases[name].status == "passed"
    file = name.removeprefix("unittest.loader._FailedTest.")
    below = (f"{file}::", f"{file}.", f"{PurePosixPath(file).name}.")
    passing = [other for other, case in cases.items() if case.status == "passed"]
    return any(other.startswith(below) for other in passing) or (is_test_file(name) and bool(passing))


def _noted(result: Reproduction, note: str) -> Reproduction:
    return result.model_copy(update={"note": f"{result.note} {note}".strip()})


async def _attempt(subject: Subject, borrow: Borrow, name: str, patch: Patch | None, timeout: float) -> Attempt:
    async with borrow(name, patch) as sandbox:
        if subject.suite is not None:
            measured = await measure_cases(sandbox, subject.suite, timeout=timeout, only=subject.only)
            return Attempt(measured.result.execution, _text(measured.output), measured.cases)
        return await _command(sandbox, subject.command, timeout)


async def _command(sandbox: Sandbox, command: str, timeout: float) -> Attempt:
    """A command of the agent's, run as it is; only a report is asked for where it starts pytest."""
    report = f"/tmp/report-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
    environment = {"PYTEST_ADDOPTS": f"--junitxml={report} -o junit_family=xunit1"}
    ran = await run(sandbox, command, timeout=timeout, env=environment)
    content = await read_file(sandbox, report)
    cases = read_junit(content) if content else read_unittest(ran.output) or read_cargo(ran.output)
    return Attempt(ran.execution, _text(ran.output), cases)


def _text(output: bytes) -> str:
    return plain(output[-4 * LOOKED_AT :].decode(errors="replace"))
