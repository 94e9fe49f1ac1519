"""Compares the suite on base and head: what newly fails, what was fixed, what is missing."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from app.core.verification import SuiteComparison, SuiteResult

MAX_LISTED = 5


def compare(command: str, base: SuiteResult, head: SuiteResult) -> SuiteComparison:
    """Compares tests by name; `verdict` looks at the exit codes as well."""
    failed_before, failed_now = set(base.failing or ()), set(head.failing or ())
    passed_before, passed_now = set(base.passing or ()), set(head.passing or ())
    newly = failed_now - failed_before
    if (
        base.failing is None or base.execution.timed_out
    ):  # a test without a result on the base may have failed there as well
        newly &= passed_before
    if base.shared_cause and base.shared_cause == head.shared_cause:
        # A new test that fails as all others do says nothing of the change: nothing can pass in this set-up.
        newly -= failed_now - passed_before - set(head.other_failures)
    # A head whose results are unknown, or were cut short, says nothing of the tests it does not name.
    complete = head.passing is not None and not head.execution.timed_out
    gone = passed_before - passed_now - failed_now if complete else set[str]()
    return SuiteComparison(
        command=command,
        base=base,
        head=head,
        newly_failing=tuple(sorted(newly)),
        fixed=tuple(sorted(failed_before & passed_now)),
        # A failing case stands for one that is gone only if its failure counts itself.
        missing=tuple(sorted(_missing(gone, passed_before, passed_now | newly))),
    )


def suite_regression(suite: SuiteComparison) -> str:
    """How the suite as a whole became worse if no single test is named."""
    base, head = suite.base, suite.head
    if base is None or head is None:
        return ""
    before, now = base.execution, head.execution
    if base.count is None and not before.ok:
        return ""  # without a result on the base, the head cannot be worse
    if now.timed_out and not before.timed_out:
        return "The suite finishes on the base but not on the head."
    if base.count is not None and head.count is None:
        why = f"The suite reports test results on the base but not on the head (exit code {now.exit_code})."
        return f"The suite's results on the head are not trusted: {head.untrusted}" if head.untrusted else why
    if before.exit_code == 0 and now.exit_code != 0 and not head.failing:
        return f"The suite's exit code is 0 on the base and {now.exit_code} on the head."
    return ""


def without_outdated(suite: SuiteComparison, outdated: Collection[str]) -> SuiteComparison:
    """The comparison without tests that the issue contradicts, by their author, and that the patch removes or renames.

    They are still in the base's version of their files, and fail there.
    """
    removed = [(PurePosixPath(one.path).stem, name) for one in suite.changed_tests for name in one.removed]
    gone = {name for name in outdated if any(file in name and _last(name) == one for file, one in removed)}
    left = tuple(name for name in suite.newly_failing if _function(name) not in gone)
    return suite.model_copy(update={"newly_failing": left})


def changes_beyond(suite: SuiteComparison, outdated: Collection[str]) -> tuple[str, ...]:
    """Changes and removals of existing tests that the patch needed without being asked for.

    `outdated` are the ids of tests that an independent test author says the issue contradicts.
    """
    found = []
    for one in suite.changed_tests:
        failing = [name for name in one.failing if name not in outdated]
        removed = [name for name in one.removed if not any(_last(each) == name for each in outdated)]
        if failing:
            found.append(f"{one.path}: without this change {_listed(failing)} would fail")
        if removed:
            found.append(f"{one.path}: {_listed(removed)} removed or renamed")
        if not one.failing and not one.removed:
            found.append(f"{one.path}: without this change the suite would fail")
    return tuple(found)


def _last(name: str) -> str:
    return re.split(r"::|\.", name)[-1]


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MAX_LISTED])}{' …' if len(names) > MAX_LISTED else ''}"


def _missing(gone: set[str], before: set[str], now: set[str]) -> set[str]:
    """Tests that vanished. A parameterised test with changed values has other ids and still exists."""
    if not gone:
        return gone
    cases_before, cases_now = Counter(map(_function, before)), Counter(map(_function, now))
    return {name for name in gone if "[" not in name or cases_now[_function(name)] < cases_before[_function(name)]}


def _function(name: str) -> str:
    return name.split("[", maxsplit=1)[0]
