"""The suite on base beside the suite on head: what fails anew, what was mended, what is gone."""

from collections import Counter

from app.core.verification import SuiteComparison, SuiteResult


def compare(command: str, base: SuiteResult, head: SuiteResult) -> SuiteComparison:
    """Only tests with names can be told apart; `verdict` looks at the exit codes as well."""
    failed_before, failed_now = set(base.failing or ()), set(head.failing or ())
    passed_before, passed_now = set(base.passing or ()), set(head.passing or ())
    newly = failed_now - failed_before
    if (
        base.failing is None or base.execution.timed_out
    ):  # a test that base did not tell of may have failed there as well
        newly &= passed_before
    # A head whose results are unknown, or were cut short, says nothing of the tests it does not name.
    complete = head.passing is not None and not head.execution.timed_out
    gone = passed_before - passed_now - failed_now if complete else set[str]()
    return SuiteComparison(
        command=command,
        base=base,
        head=head,
        newly_failing=tuple(sorted(newly)),
        fixed=tuple(sorted(failed_before & passed_now)),
        missing=tuple(sorted(_missing(gone, passed_before, passed_now | (failed_now - failed_before)))),
    )


def _missing(gone: set[str], before: set[str], now: set[str]) -> set[str]:
    """Tests that vanished. A parameterised test whose values were changed has other ids and is still there."""
    if not gone:
        return gone
    cases_before, cases_now = Counter(map(_function, before)), Counter(map(_function, now))
    return {name for name in gone if "[" not in name or cases_now[_function(name)] < cases_before[_function(name)]}


def _function(name: str) -> str:
    return name.split("[", maxsplit=1)[0]
