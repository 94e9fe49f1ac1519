"""The verdict over all combinations of facts: what each one needs, and that no failure ever helps."""

import itertools
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.evidence import Execution
from app.core.verification import (
    FailureReason,
    GateResult,
    Reproduction,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
)
from app.verify.suite_comparison import compare
from app.verify.verdict import verdict

RANK: dict[Verdict, int] = {"broken": 0, "unproved": 1, "tested": 2, "proved": 3}
REDNESS: tuple[FailureReason, ...] = get_args(FailureReason)
NAMES = ("a", "b", "c[1]", "c[2]")


def execution(exit_code: int = 0, *, timed_out: bool = False) -> Execution:
    return Execution(command="suite", exit_code=exit_code, seconds=1, timed_out=timed_out)


def result(passing: tuple[str, ...] = (), failing: tuple[str, ...] = (), *, timed_out: bool = False) -> SuiteResult:
    count = TestCount(passed=len(passing), failed=len(failing))
    return SuiteResult(
        execution=execution(1 if failing else 0, timed_out=timed_out), count=count, passing=passing, failing=failing
    )


def unnamed(exit_code: int, *, timed_out: bool = False) -> SuiteResult:
    return SuiteResult(execution=execution(exit_code, timed_out=timed_out))


def reproduction(on_base: FailureReason = "red", on_head: FailureReason = "green") -> Reproduction:
    return Reproduction(command="r", on_base=on_base, on_head=on_head, base=execution(1), head=execution(0))


PASSED = (GateResult(name="size", outcome="passed"),)
BLOCKED = (*PASSED, GateResult(name="secrets", outcome="blocked", details=("a.py:3: a token",)))
GREEN = compare("suite", result(("a", "b")), result(("a", "b")))
NO_SUITE = SuiteComparison(command="", not_run="No test command was found in the repository.")


def test_red_to_green_and_a_green_suite_is_proved() -> None:
    outcome, reasons = verdict(reproduction(), GREEN, PASSED)
    assert outcome == "proved"
    assert reasons == (
        "The reproduction fails on the base and passes on the head.",
        "The suite was run on both, with nothing newly failing (2 passed).",
    )


def test_red_to_green_without_a_suite_is_tested_and_says_so() -> None:
    outcome, reasons = verdict(reproduction(), NO_SUITE, PASSED)
    assert outcome == "tested"
    assert "No test command was found in the repository." in reasons
    assert verdict(reproduction(), None, PASSED)[0] == "tested"


def test_a_suite_without_red_to_green_is_tested() -> None:
    assert verdict(None, GREEN, PASSED)[0] == "tested"
    assert verdict(reproduction("green"), GREEN, PASSED)[0] == "tested"
    assert verdict(reproduction("was_not_there"), GREEN, PASSED)[0] == "tested"


def test_nothing_run_is_unproved() -> None:
    assert verdict(None, None, PASSED)[0] == "unproved"
    assert verdict(None, NO_SUITE, PASSED)[0] == "unproved"
    assert verdict(reproduction("was_not_there"), NO_SUITE, PASSED)[0] == "unproved"


def test_a_gate_breaks_whatever_else_is_true() -> None:
    outcome, reasons = verdict(reproduction(), GREEN, BLOCKED)
    assert outcome == "broken"
    assert reasons == ("secrets: a.py:3: a token",)


def test_a_suite_in_which_nothing_passes_shows_nothing() -> None:
    all_red = compare("suite", result((), ("a",)), result((), ("a",)))
    assert verdict(reproduction(), all_red, PASSED)[0] == "tested"
    assert verdict(None, all_red, PASSED)[0] == "unproved"
    empty = compare("suite", result(), result())
    assert verdict(None, empty, PASSED)[0] == "unproved"


def test_exit_codes_alone() -> None:
    def outcome(base: SuiteResult, head: SuiteResult) -> Verdict:
        return verdict(None, compare("suite", base, head), PASSED)[0]

    assert outcome(unnamed(0), unnamed(0)) == "tested"
    assert outcome(unnamed(0), unnamed(1)) == "broken"
    assert outcome(unnamed(0), unnamed(0, timed_out=True)) == "broken"
    assert outcome(unnamed(1), unnamed(1)) == "unproved"
    assert outcome(unnamed(1), unnamed(0)) == "unproved"


def test_a_head_that_crashes_or_hangs_where_the_base_told_results_is_broken() -> None:
    base = result(("a",), ("b",))
    assert verdict(reproduction(), compare("suite", base, unnamed(139)), PASSED)[0] == "broken"
    assert verdict(reproduction(), compare("suite", base, unnamed(0)), PASSED)[0] == "broken"
    assert verdict(reproduction(), compare("suite", base, result(("a",), timed_out=True)), PASSED)[0] == "broken"


def test_an_exit_code_that_no_test_explains_is_broken() -> None:
    head = result(("a", "b")).model_copy(update={"execution": execution(3)})
    assert verdict(reproduction(), compare("suite", result(("a", "b")), head), PASSED)[0] == "broken"


def test_failures_that_were_there_before_are_nobodys_fault() -> None:
    both = compare("suite", result(("a",), ("b",)), result(("a",), ("b",)))
    assert both.newly_failing == ()
    assert verdict(reproduction(), both, PASSED)[0] == "proved"


def test_vanished_and_skipped_tests_do_not_look_green() -> None:
    suite = compare("suite", result(("a", "b")), result(("a",)))
    assert suite.missing == ("b",)
    outcome, reasons = verdict(reproduction(), suite, PASSED)
    assert outcome == "unproved"
    assert "b" in reasons[0]


def test_changed_parameters_are_not_vanished_tests() -> None:
    base, head = result(("t::c[1-2]", "t::c[3]")), result(("t::c[1-3]", "t::c[3]"))
    assert compare("suite", base, head).missing == ()
    fewer = compare("suite", base, result(("t::c[3]",)))
    assert fewer.missing == ("t::c[1-2]",)


def test_a_new_test_that_fails_is_newly_failing_and_a_mended_one_is_fixed() -> None:
    suite = compare("suite", result(("a",), ("b",)), result(("a", "b"), ("new",)))
    assert (suite.newly_failing, suite.fixed) == (("new",), ("b",))


def test_beside_a_base_that_was_cut_short_only_what_it_told_can_newly_fail() -> None:
    base = result(("a",), (), timed_out=True)
    suite = compare("suite", base, result(("c[1]",), ("a", "b")))
    assert suite.newly_failing == ("a",)


tests_of = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["passed", "failed"]))
results = st.one_of(
    st.builds(
        lambda tests, cut: result(
            tuple(sorted(name for name, status in tests.items() if status == "passed")),
            tuple(sorted(name for name, status in tests.items() if status == "failed")),
            timed_out=cut,
        ),
        tests_of,
        st.booleans(),
    ),
    st.builds(lambda code, cut: unnamed(code, timed_out=cut), st.sampled_from([0, 1, 139]), st.booleans()),
)
suites = st.one_of(
    st.none(),
    st.just(NO_SUITE),
    st.builds(lambda base, head: compare("suite", base, head), results, results),
    st.builds(lambda base: SuiteComparison(command="suite", base=base, not_run="pytest is not installed."), results),
)
reproductions = st.one_of(st.none(), st.builds(reproduction, st.sampled_from(REDNESS), st.sampled_from(REDNESS)))
gates = st.lists(
    st.builds(
        lambda outcome: GateResult(name="g", outcome=outcome),
        st.sampled_from(["passed", "warned", "blocked", "not_run"]),
    ),
    max_size=3,
).map(tuple)


@settings(max_examples=1_000)
@given(reproductions, suites, gates)
def test_what_proved_and_tested_need(
    shown: Reproduction | None, suite: SuiteComparison | None, found: tuple[GateResult, ...]
) -> None:
    outcome, reasons = verdict(shown, suite, found)
    assert reasons
    assert all(reasons)
    red_green = shown is not None and (shown.on_base, shown.on_head) == ("red", "green")
    ran_on_both = suite is not None and suite.base is not None and suite.head is not None and not suite.not_run
    if outcome in ("proved", "tested"):
        assert not any(gate.outcome == "blocked" for gate in found)
        assert shown is None or shown.on_head in ("green", "not_run")
        assert suite is None or not (suite.newly_failing or suite.missing)
        assert red_green or ran_on_both
    if outcome == "proved":
        assert red_green
        assert ran_on_both
        assert suite is not None
        assert suite.head is not None
        assert suite.head.count is None or suite.head.count.passed > 0
    if any(gate.outcome == "blocked" for gate in found) or (suite is not None and suite.newly_failing):
        assert outcome == "broken"


def test_every_combination_of_reproduction_gate_and_suite() -> None:
    """The table of the design, written a second time."""
    failing = compare("suite", result(("a",)), result((), ("a",)))
    gone = compare("suite", result(("a", "b")), result(("a",)))
    for on_base, on_head, gate, (suite, kind) in itertools.product(
        REDNESS, REDNESS, (PASSED, BLOCKED), ((GREEN, "green"), (failing, "failing"), (gone, "gone"), (None, "none"))
    ):
        if gate is BLOCKED or kind == "failing" or on_head in ("red", "was_not_there"):
            expected: Verdict = "broken"
        elif kind == "gone":
            expected = "unproved"
        elif on_base == "red" and on_head == "green":
            expected = "proved" if kind == "green" else "tested"
        else:
            expected = "tested" if kind == "green" else "unproved"
        assert verdict(reproduction(on_base, on_head), suite, gate)[0] == expected, (on_base, on_head, gate, kind)


@settings(max_examples=1_000)
@given(reproductions, st.tuples(results, results), gates, st.sampled_from(NAMES), st.data())
def test_one_more_failure_never_makes_it_better(
    shown: Reproduction | None,
    sides: tuple[SuiteResult, SuiteResult],
    found: tuple[GateResult, ...],
    name: str,
    data: st.DataObject,
) -> None:
    base, head = sides
    before = verdict(shown, compare("suite", base, head), found)[0]
    worse_head = result(
        tuple(test for test in head.passing or () if test != name), tuple(sorted({*(head.failing or ()), name}))
    )
    worse_head = worse_head.model_copy(update={"execution": execution(1, timed_out=head.execution.timed_out)})
    if head.count is None:
        worse_head = unnamed(head.execution.exit_code or 1, timed_out=head.execution.timed_out)
    worse_shown = shown.model_copy(update={"on_head": "red"}) if shown else None
    weaker = data.draw(st.sampled_from(["green", "was_not_there", "not_run"]))
    worse_base = shown.model_copy(update={"on_base": weaker}) if shown else None
    after = [
        verdict(worse_shown, compare("suite", base, head), found)[0],
        verdict(worse_base, compare("suite", base, head), found)[0],
        verdict(shown, compare("suite", base, worse_head), found)[0],
        verdict(shown, compare("suite", base, head), (*found, BLOCKED[-1]))[0],
        verdict(shown, None, found)[0] if before != "broken" and not compare("suite", base, head).missing else "broken",
    ]
    assert all(RANK[outcome] <= RANK[before] for outcome in after), (before, after)
