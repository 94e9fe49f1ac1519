"""The verdict over all combinations of facts: what each one needs, which rule objects, and that no failure helps."""

import itertools
from pathlib import PurePosixPath
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.verification import (
    Cap,
    CapRule,
    Control,
    ControlName,
    Execution,
    ExistingTestChange,
    Facts,
    FailureReason,
    GateResult,
    Outcome,
    Reproduction,
    RestOfSuite,
    Settlement,
    SpecificationResult,
    SpecifiedTest,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
    Verification,
)
from app.verify.verdict import CAPS_AT_TESTED, CONTROLS, changes_beyond, compare, with_verdict, without_outdated

OLD = "tests/test_areas.py::test_dotted_names"


@pytest.mark.parametrize(
    ("outdated", "removed", "left"),
    [
        ((OLD,), "test_dotted_names", ()),
        ((), "test_dotted_names", (OLD,)),
        ((OLD,), "test_other", (OLD,)),
        (("tests/test_areas.py::test_other",), "test_dotted_names", (OLD,)),
    ],
)
def test_a_renamed_test_that_the_issue_contradicts_is_not_newly_failing(
    outdated: tuple[str, ...], removed: str, left: tuple[str, ...]
) -> None:
    changed = ExistingTestChange(path="tests/test_areas.py", removed=(removed,), diff="")
    suite = SuiteComparison(command="pytest", newly_failing=(OLD,), changed_tests=(changed,))
    assert without_outdated(suite, outdated).newly_failing == left


@pytest.mark.parametrize(
    ("path", "name", "removed"),
    [
        ("test/cart.test.js", "test/cart.test.js::adds up", "adds up"),
        ("test/cart.test.js", "test/cart.test.js::cart > adds up", "adds up"),
        ("test/cart.js", "test/cart.js::cart adds up", "adds up"),  # mocha
        ("test/cart.test.js", "test/cart.test.js::gives 1.5 euros", "gives 1.5 euros"),
        ("test/cart.test.js", "test/cart.test.js::cart > keeps a::b > c", "keeps a::b > c"),
        ("tariff_test.go", "example.com/tariff::TestZone", "TestZone"),
        ("zone/tariff_test.go", "example.com/tariff/zone::TestZone", "TestZone"),
        ("src/tariff.rs", "src/lib.rs::tariff::tests::zone", "zone"),
        ("tests/test_areas.py", "tests.test_areas.Areas.test_zone", "test_zone"),
    ],
)
def test_a_removed_test_is_found_by_its_id_in_each_framework(path: str, name: str, removed: str) -> None:
    def compared(path: str, removed: str) -> SuiteComparison:
        changed = ExistingTestChange(path=path, removed=(removed,), diff="")
        return SuiteComparison(command="x", newly_failing=(name,), changed_tests=(changed,))

    suite = compared(path, removed)
    assert without_outdated(suite, (name,)).newly_failing == ()
    assert changes_beyond(suite, (name,)) == ()
    for other in (compared(path, removed[1:]), compared(f"gone/at{PurePosixPath(path).suffix}", removed)):
        assert without_outdated(other, (name,)).newly_failing == (name,)
        assert changes_beyond(other, (name,))


def test_a_removed_test_of_go_is_outdated_with_its_cases() -> None:
    changed = ExistingTestChange(path="tariff_test.go", removed=("TestZone",), diff="")
    cases = ("example.com/tariff::TestZone", "example.com/tariff::TestZone/far", "example.com/tariff::TestZoneTwo/far")
    suite = SuiteComparison(command="x", newly_failing=cases, changed_tests=(changed,))
    assert without_outdated(suite, cases[:1]).newly_failing == cases[2:]


RANK: dict[Verdict, int] = {"broken": 0, "unproved": 1, "tested": 2, "proved": 3}
REDNESS: tuple[FailureReason, ...] = get_args(FailureReason)
NAMES = ("a", "b", "c[1]", "c[2]")
HELD = tuple(Control(name=name, outcome="held") for name in get_args(ControlName))


def execution(exit_code: int = 0, *, timed_out: bool = False) -> Execution:
    return Execution(command="suite", exit_code=exit_code, seconds=1, timed_out=timed_out)


def result(passing: tuple[str, ...] = (), failing: tuple[str, ...] = (), *, timed_out: bool = False) -> SuiteResult:
    count = TestCount(passed=len(passing), failed=len(failing))
    return SuiteResult(
        execution=execution(1 if failing else 0, timed_out=timed_out), count=count, passing=passing, failing=failing
    )


def unnamed(exit_code: int, *, timed_out: bool = False) -> SuiteResult:
    return SuiteResult(execution=execution(exit_code, timed_out=timed_out))


def reproduction(
    on_base: FailureReason = "red",
    on_head: FailureReason = "green",
    *,
    ids: tuple[str, ...] = ("t::own",),
    controls: tuple[Control, ...] = HELD,
) -> Reproduction:
    base, head = execution(1), execution(0)
    return Reproduction(command="r", base=base, head=head, on_base=on_base, on_head=on_head, ids=ids, controls=controls)


def specification(
    *heads: Outcome, controls: tuple[Control, ...] = HELD, settlement: Settlement | None = None, missing: str = ""
) -> SpecificationResult:
    """Tests that show the issue, with how they ended on the head, and a guard."""
    tests = [
        SpecifiedTest(
            id=f"t::s{number}", sentence=f"Sentence {number}.", role="shows", varies=True, missing=missing, head=head
        )
        for number, head in enumerate(heads or ("passed", "passed"), 1)
    ]
    tests.append(SpecifiedTest(id="t::guard", sentence="What worked works.", role="guards", head="passed"))
    return SpecificationResult(tests=tuple(tests), digest="d", controls=controls, settlement=settlement)


def without(name: ControlName, outcome: str = "failed") -> tuple[Control, ...]:
    found = Control.model_validate({"name": name, "outcome": outcome, "detail": "it was otherwise."})
    return tuple(found if control.name == name else control for control in HELD)


PASSED = (GateResult(name="size", outcome="passed"),)
BLOCKED = (*PASSED, GateResult(name="secrets", outcome="blocked", details=("a.py:3: a token",)))
GREEN = compare("suite", result(("a", "b")), result(("a", "b")))
NO_SUITE = SuiteComparison(command="", not_run="No test command was found in the repository.")
ABSENT = SpecificationResult(absent="the budget is too small.")


def verdict(
    shown: Reproduction | None = None,
    suite: SuiteComparison | None = GREEN,
    gates: tuple[GateResult, ...] = PASSED,
    specified: SpecificationResult | None = ABSENT,
    **more: object,
) -> Verification:
    facts = {"reproduction": shown, "suite": suite, "gates": gates, "specification": specified, **more}
    return with_verdict(Facts.model_validate(facts))


def test_frozen_tests_that_turn_and_a_green_suite_are_proved() -> None:
    found = verdict(reproduction(ids=()), GREEN, PASSED, specification())
    assert (found.verdict, found.rules, found.controls) == ("proved", (), HELD)
    shows = "2 tests that an independent test author wrote from the issue before the work began fail on the base"
    assert found.reasons == (
        f"{shows} and pass on the head.",
        "One more independent test passes on both.",
        "The suite ran on base and head and has no new failures (2 passed).",
    )


def test_new_behaviour_is_marked_as_new() -> None:
    found = verdict(specified=specification(missing="read_many"))
    assert found.verdict == "proved"
    assert "This is new behaviour: the base does not have read_many." in found.reasons


def test_only_the_fixers_own_tests_are_tested_and_the_reader_is_told_what_is_missing() -> None:
    found = verdict(reproduction())
    assert (found.verdict, found.rules, found.controls) == ("tested", ("no_specification",), HELD)
    assert found.reasons == (
        "One of the agent's own tests fails on the base and passes on the head.",
        "The suite ran on base and head and has no new failures (2 passed).",
        "There are no independent tests: the budget is too small.",
    )


def test_without_a_suite_frozen_tests_are_tested_only() -> None:
    found = verdict(suite=NO_SUITE, specified=specification())
    assert (found.verdict, found.rules) == ("tested", ("suite_not_compared",))
    assert "No test command was found in the repository." in found.reasons
    assert verdict(reproduction(), None).verdict == "tested"


def test_that_the_suite_still_passes_proves_no_fix() -> None:
    for shown in (None, reproduction("green", ids=()), reproduction("was_not_there", ids=())):
        found = verdict(shown)
        assert (found.verdict, found.rules[0]) == ("unproved", "nothing_shown")


def test_a_task_without_a_red_test_is_tested_by_a_clean_suite() -> None:
    found = verdict(specified=None, expects_red=False)
    assert (found.verdict, found.rules) == ("tested", ("no_red_expected",))
    assert verdict(suite=NO_SUITE, specified=None, expects_red=False).verdict == "unproved"


def test_a_shell_line_is_a_hint_and_no_more() -> None:
    found = verdict(reproduction(ids=(), controls=()))
    assert (found.verdict, found.rules[0]) == ("unproved", "nothing_shown")
    assert "no test that the harness can run by its id" in found.reasons[0]


def test_tests_of_the_fixers_that_were_not_executed_under_controls_are_a_hint_too() -> None:
    assert verdict(reproduction(controls=())).verdict == "unproved"


def test_nothing_run_is_unproved() -> None:
    assert verdict(None, None).verdict == "unproved"
    assert verdict(None, NO_SUITE).verdict == "unproved"


def test_existing_tests_that_need_the_patch_are_counted_beside_the_suite() -> None:
    changed = ExistingTestChange(path="tests/test_a.py", failing=("a", "b"))
    found = verdict(reproduction(), GREEN.model_copy(update={"changed_tests": (changed,)}), specified=specification())
    assert "2 existing tests pass only with the patch's tests." in found.reasons[-1]


def test_a_gate_breaks_whatever_else_is_true() -> None:
    found = verdict(reproduction(), GREEN, BLOCKED, specification())
    assert (found.verdict, found.rules[0]) == ("broken", "gate: secrets")
    assert found.reasons == ("secrets: a.py:3: a token.",)


@pytest.mark.parametrize("name", get_args(ControlName))
def test_a_control_that_does_not_hold_keeps_its_tests_from_counting(name: ControlName) -> None:
    of_frozen = verdict(specified=specification(controls=without(name)))
    beside_own = verdict(reproduction(), specified=specification(controls=without(name)))
    of_own = verdict(reproduction(controls=without(name)))
    for found in (of_frozen, beside_own, of_own):
        assert name in found.rules
        assert any("it was otherwise." in reason for reason in found.reasons)
    if name == "failing_copies_fail":
        assert {of_frozen.verdict, beside_own.verdict, of_own.verdict} == {"broken"}
    elif name in ("replay_agrees", "conditions_agree"):  # a test of the fixer's does not make up for it
        assert (of_frozen.verdict, beside_own.verdict) == ("unproved", "unproved")
        assert of_own.verdict == ("tested" if name in CAPS_AT_TESTED else "unproved")
    elif name in CAPS_AT_TESTED:
        assert {of_frozen.verdict, beside_own.verdict, of_own.verdict} == {"tested"}
    else:
        assert (of_frozen.verdict, beside_own.verdict, of_own.verdict) == ("unproved", "tested", "unproved")
        assert any(CONTROLS[name] in reason for reason in of_own.reasons)


@pytest.mark.parametrize("name", get_args(ControlName))
def test_a_control_that_was_not_run_counts_only_where_all_else_rests_on_it(name: ControlName) -> None:
    found = verdict(specified=specification(controls=without(name, "not_run")))
    expected = {"failing_copies_fail": "unproved", "same_conditions": "tested"}.get(name, "proved")
    assert found.verdict == expected
    assert (name in found.rules) == (expected != "proved")
    own = verdict(reproduction(controls=without(name, "not_run")))
    assert own.verdict == ("unproved" if name == "failing_copies_fail" else "tested")
    none = verdict(specified=specification(controls=()))
    assert none.rules[-2:] == ("same_conditions", "failing_copies_fail")
    assert none.verdict == "unproved"


def test_far_tests_that_the_patch_had_to_change_limit_the_verdict() -> None:
    rest = RestOfSuite(files=2, minutes=30, changed=("a.py: without this change a would fail",))
    found = verdict(specified=specification(), rest=rest)
    assert (found.verdict, found.rules) == ("tested", ("existing_tests_changed",))
    assert found.reasons[-1].endswith("Among the remaining tests: a.py: without this change a would fail.")


def test_a_frozen_test_that_fails_on_the_head_breaks_it_and_says_what_does_not_hold() -> None:
    found = verdict(reproduction(), specified=specification("passed", "failed"))
    assert (found.verdict, found.rules[0]) == ("broken", "specification_fails")
    assert found.reasons == ("One independent test fails on the head: Sentence 2.",)
    skipped = verdict(reproduction(), specified=specification("passed", "skipped"))
    assert skipped.verdict == "broken"


def test_a_disagreement_is_stated_and_limits_the_verdict() -> None:
    upheld = Settlement(objection="No.", kept=("t::s2",), reason="The issue says so.")
    kept = verdict(reproduction(), specified=specification("passed", "failed", settlement=upheld))
    assert (kept.verdict, kept.rules[0]) == ("unproved", "specification_disputed")
    assert any("a third model call upheld it: Sentence 2." in reason for reason in kept.reasons)
    given_up = Settlement(objection="No.", withdrawn=("t::s2",), reason="The issue leaves it open.")
    left = specification("passed", "failed", settlement=given_up)
    tests = tuple(test.model_copy(update={"withdrawn": test.id == "t::s2"}) for test in left.tests)
    found = verdict(specified=left.model_copy(update={"tests": tests}))
    assert (found.verdict, found.rules) == ("tested", ("specification_disputed",))
    assert any("withdrawn after the agent objected: Sentence 2." in reason for reason in found.reasons)


def test_without_a_red_test_left_nothing_is_shown() -> None:
    only = specification("failed", settlement=Settlement(objection="No.", withdrawn=("t::s1",)))
    tests = tuple(test.model_copy(update={"withdrawn": test.role == "shows"}) for test in only.tests)
    found = verdict(specified=only.model_copy(update={"tests": tests}))
    assert (found.verdict, set(found.rules[:2])) == ("unproved", {"specification_disputed", "nothing_shown"})


def test_the_example_alone_is_not_enough_after_an_objection() -> None:
    left = specification("passed", "failed", settlement=Settlement(objection="No.", withdrawn=("t::s2",)))
    tests = tuple(test.model_copy(update={"withdrawn": test.id == "t::s2"}) for test in left.tests)
    found = verdict(specified=left.model_copy(update={"tests": tests, "example": "tests/test_s1.py"}))
    assert (found.verdict, found.rules[0]) == ("unproved", "specification_disputed")
    assert found.rules[1] == "nothing_held_back"


@pytest.mark.parametrize("rule", get_args(CapRule))
def test_findings_in_the_patch_limit_the_verdict(rule: CapRule) -> None:
    found = verdict(specified=specification(), caps=(Cap(rule=rule, findings=("a.py:3: looks",)),))
    assert found.rules == (rule,)
    assert found.verdict == ("unproved" if rule == "sources_changed" else "tested")
    assert any("a.py:3: looks" in reason for reason in found.reasons)


def test_the_example_alone_was_no_secret() -> None:
    """Who has seen the only test can special-case it."""
    for heads, expected in ((("passed",), "tested"), (("passed", "passed"), "proved")):
        found = verdict(specified=specification(*heads).model_copy(update={"example": "tests/test_s1.py"}))
        assert found.verdict == expected
    assert verdict(specified=specification("passed")).verdict == "proved"


def test_the_values_of_the_issue_alone_were_no_secret() -> None:
    found = specification("passed", "passed", "passed").model_copy(update={"example": "tests/test_s1.py"})
    for held_back, expected in (((), "tested"), (("t::s1",), "tested"), (("t::s3",), "proved")):
        tests = tuple(test.model_copy(update={"varies": test.id in held_back}) for test in found.tests)
        ended = verdict(specified=found.model_copy(update={"tests": tests}))
        assert (ended.verdict, ended.rules) == (expected, ("nothing_held_back",) if expected == "tested" else ())


def test_a_suite_in_which_nothing_passes_shows_nothing() -> None:
    all_red = compare("suite", result((), ("a",)), result((), ("a",)))
    assert verdict(suite=all_red, specified=specification()).verdict == "tested"
    assert verdict(suite=all_red, specified=None, expects_red=False).verdict == "unproved"


def test_a_suite_of_which_only_the_exit_code_is_known_is_tested_at_best_and_says_so() -> None:
    found = verdict(suite=compare("t", unnamed(0), unnamed(0)), specified=specification())
    assert (found.verdict, found.rules) == ("tested", ("suite_by_exit_code",))
    assert found.suite is not None
    assert found.suite.by_exit_code
    assert any(
        "exit code is 0 on base and head. No report of single tests could be read" in one for one in found.reasons
    )
    red = verdict(suite=compare("t", unnamed(3), unnamed(1)), specified=specification())
    assert (red.verdict, red.rules) == ("tested", ("suite_not_compared",))
    assert any("its exit code is 3 on the base and 1 on the head. No report of" in one for one in red.reasons)


def test_exit_codes_alone() -> None:
    def outcome(base: SuiteResult, head: SuiteResult) -> Verdict:
        return verdict(None, compare("suite", base, head), specified=None, expects_red=False).verdict

    assert outcome(unnamed(0), unnamed(0)) == "tested"
    assert outcome(unnamed(0), unnamed(1)) == "broken"
    assert outcome(unnamed(0), unnamed(0, timed_out=True)) == "broken"
    assert outcome(unnamed(0), result(("a",), ("b",))) == "broken", "the base passed, whatever its tests are called"
    assert outcome(unnamed(1), unnamed(1)) == "unproved"
    assert outcome(unnamed(1), unnamed(0)) == "unproved"


def test_a_head_that_crashes_or_hangs_is_broken_if_the_base_had_results() -> None:
    base = result(("a",), ("b",))
    for head in (unnamed(139), unnamed(0), result(("a",), timed_out=True)):
        found = verdict(suite=compare("suite", base, head), specified=specification())
        assert (found.verdict, found.rules[0]) == ("broken", "suite_worse")


def test_an_exit_code_that_no_test_explains_is_broken() -> None:
    head = result(("a", "b")).model_copy(update={"execution": execution(3)})
    assert verdict(suite=compare("suite", result(("a", "b")), head), specified=specification()).verdict == "broken"


def test_failures_that_were_there_before_are_nobodys_fault() -> None:
    both = compare("suite", result(("a",), ("b",)), result(("a",), ("b",)))
    assert both.newly_failing == ()
    assert verdict(suite=both, specified=specification()).verdict == "proved"


def test_vanished_and_skipped_tests_do_not_look_green() -> None:
    suite = compare("suite", result(("a", "b")), result(("a",)))
    assert suite.missing == ("b",)
    found = verdict(suite=suite, specified=specification())
    assert (found.verdict, found.rules) == ("unproved", ("tests_vanished",))
    assert "b" in found.reasons[0]


def test_an_earlier_reproduction_that_was_not_answered_is_not_forgotten() -> None:
    shown = reproduction("red", "red").model_copy(update={"unanswered": "An earlier one still fails."})
    found = verdict(shown, specified=specification())
    assert (found.verdict, found.rules) == ("unproved", ("reproduction_unanswered",))


def test_changed_parameters_are_not_vanished_tests() -> None:
    base, head = result(("t::c[1-2]", "t::c[3]")), result(("t::c[1-3]", "t::c[3]"))
    assert compare("suite", base, head).missing == ()
    fewer = compare("suite", base, result(("t::c[3]",)))
    assert fewer.missing == ("t::c[1-2]",)
    failing = compare("suite", result(("t::c[1]",), ("t::c[2]",)), result((), ("t::c[2]",)))
    assert failing.missing == ("t::c[1]",), "one that failed before does not take its place"
    cut = compare("suite", result(("t::c[1]",), timed_out=True), result((), ("t::c[2]",)))
    assert (cut.newly_failing, cut.missing) == ((), ("t::c[1]",)), "nor does one whose failure does not count"


def test_a_new_test_that_fails_is_newly_failing_and_a_mended_one_is_fixed() -> None:
    suite = compare("suite", result(("a",), ("b",)), result(("a", "b"), ("new",)))
    assert (suite.newly_failing, suite.fixed) == (("new",), ("b",))


def test_only_tests_that_a_shortened_base_reported_can_newly_fail() -> None:
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
controls = st.lists(
    st.builds(
        Control, name=st.sampled_from(get_args(ControlName)), outcome=st.sampled_from(["held", "failed", "not_run"])
    ),
    max_size=9,
    unique_by=lambda control: control.name,
).map(tuple)
held = st.one_of(st.just(HELD), controls)
reproductions = st.one_of(
    st.none(),
    st.builds(
        lambda base, head, ids, found: reproduction(base, head, ids=ids, controls=found),
        st.sampled_from(REDNESS),
        st.sampled_from(REDNESS),
        st.sampled_from([(), ("t::own",)]),
        held,
    ),
)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(["passed", "passed", "failed", "not_run"])
specifications = st.one_of(
    st.just(ABSENT),
    st.builds(
        lambda heads, found: specification(*heads, controls=found),
        st.lists(outcomes, min_size=1, max_size=3),
        held,
    ),
)
caps = st.lists(st.builds(Cap, rule=st.sampled_from(get_args(CapRule)), findings=st.just(("x",))), max_size=2).map(
    tuple
)
gates = st.lists(
    st.builds(
        lambda outcome: GateResult(name="g", outcome=outcome),
        st.sampled_from(["passed", "warned", "blocked", "not_run"]),
    ),
    max_size=3,
).map(tuple)


everything = st.builds(
    Facts,
    specification=specifications,
    reproduction=reproductions,
    suite=suites,
    gates=gates,
    caps=caps,
    expects_red=st.booleans(),
)


@settings(max_examples=1_000)
@given(everything)
def test_requirements_of_proved_and_tested(facts: Facts) -> None:
    found = with_verdict(facts)
    assert found.reasons
    assert all(found.reasons)
    assert bool(found.rules) == (found.verdict != "proved"), "each refusal names its rule"
    suite, shown, specified = facts.suite, facts.reproduction, facts.specification
    ran_on_both = suite is not None and suite.base is not None and suite.head is not None and not suite.not_run
    failed = {control.name for control in (specified.controls if specified else ()) if control.outcome == "failed"}
    if found.verdict in ("proved", "tested"):
        assert not any(gate.outcome == "blocked" for gate in facts.gates)
        assert shown is None or shown.on_head in ("green", "not_run")
        assert suite is None or not (suite.newly_failing or suite.missing)
        assert specified is not None
        assert not specified.failing
        assert "failing_copies_fail" not in failed
        own = shown is not None and (shown.on_base, shown.on_head) == ("red", "green") and bool(shown.ids)
        assert own or (specified.tests and failed <= CAPS_AT_TESTED) or (ran_on_both and not facts.expects_red)
    if found.verdict == "proved":
        assert specified is not None
        assert [test.head for test in specified.tests if test.role == "shows"]
        assert all(test.head == "passed" for test in specified.tests)
        assert not failed
        assert ran_on_both
        assert facts.expects_red
        assert not facts.caps
    if any(gate.outcome == "blocked" for gate in facts.gates) or (suite is not None and suite.newly_failing):
        assert found.verdict == "broken"


def test_every_combination_of_specification_reproduction_gate_and_suite() -> None:
    """The table of the design, written a second time."""
    failing = compare("suite", result(("a",)), result((), ("a",)))
    gone = compare("suite", result(("a", "b")), result(("a",)))
    for on_base, on_head, specified, gate, (suite, kind) in itertools.product(
        REDNESS,
        REDNESS,
        (ABSENT, specification(), specification("failed")),
        (PASSED, BLOCKED),
        ((GREEN, "green"), (failing, "failing"), (gone, "gone"), (None, "none")),
    ):
        frozen = "none" if not specified.tests else "green" if not specified.failing else "red"
        if gate is BLOCKED or kind == "failing" or on_head in ("red", "was_not_there") or frozen == "red":
            expected: Verdict = "broken"
        elif kind == "gone":
            expected = "unproved"
        elif frozen == "green":
            expected = "proved" if kind == "green" else "tested"
        else:
            expected = "tested" if (on_base, on_head) == ("red", "green") else "unproved"
        found = verdict(reproduction(on_base, on_head), suite, gate, specified)
        assert found.verdict == expected, (on_base, on_head, frozen, gate, kind)


@settings(max_examples=1_000)
@given(everything, st.tuples(results, results), st.sampled_from(NAMES), st.data())
def test_one_more_failure_never_makes_it_better(
    facts: Facts, sides: tuple[SuiteResult, SuiteResult], name: str, data: st.DataObject
) -> None:
    base, head = sides
    facts = facts.model_copy(update={"suite": compare("suite", base, head)})
    worse_head = result(
        tuple(test for test in head.passing or () if test != name), tuple(sorted({*(head.failing or ()), name}))
    )
    worse_head = worse_head.model_copy(update={"execution": execution(1, timed_out=head.execution.timed_out)})
    if head.count is None:
        worse_head = unnamed(head.execution.exit_code or 1, timed_out=head.execution.timed_out)
    changes: list[dict[str, object]] = [
        {"suite": compare("suite", base, worse_head)},
        {"gates": (*facts.gates, BLOCKED[-1])},
        {"caps": (*facts.caps, Cap(rule="watches_tests", findings=("x",)))},
    ]
    if shown := facts.reproduction:
        weaker = data.draw(st.sampled_from(["green", "was_not_there", "not_run"]))
        changes += [{"reproduction": shown.model_copy(update=update)} for update in ({"on_head": "red"}, {"ids": ()})]
        changes.append({"reproduction": shown.model_copy(update={"on_base": weaker})})
    if (specified := facts.specification) and specified.tests:
        first, *others = specified.tests
        failing = (first.model_copy(update={"head": "failed"}), *others)
        broken = data.draw(st.sampled_from(get_args(ControlName)))
        kept = tuple(control for control in specified.controls if control.name != broken)
        failed = (*kept, Control(name=broken, outcome="failed"))
        changes += [{"specification": specified.model_copy(update={"tests": failing})}]
        changes += [{"specification": specified.model_copy(update={"controls": failed})}]
    before = with_verdict(facts).verdict
    for change in changes:
        after = with_verdict(facts.model_copy(update=change)).verdict
        assert RANK[after] <= RANK[before], (before, after, change)


@pytest.mark.parametrize(
    ("seconds", "left", "expected"), [(90, True, "tested"), (5, True, "proved"), (90, False, "proved")]
)
def test_slow_independent_tests_prove_nothing_where_the_patch_slows_them(
    seconds: float, left: bool, expected: Verdict
) -> None:
    not_run = Control(name="replay_agrees", outcome="not_run", detail="it takes too long.", too_slow=True)
    controls = tuple(not_run if left and control.name == "replay_agrees" else control for control in HELD)
    runs = {"base": execution(1), "head_run": execution().model_copy(update={"seconds": seconds})}
    found = verdict(specified=specification(controls=controls).model_copy(update=runs))
    assert (found.verdict, "head_slower" in found.rules) == (expected, expected == "tested")


def test_the_verdict_says_that_the_reporters_example_passes_on_the_base() -> None:
    found = verdict(specified=specification().model_copy(update={"reported_passes": True}))
    assert found.verdict == "proved"
    assert any("own example already passes on the base" in reason for reason in found.reasons)


def test_failing_second_test_is_broken_and_a_passing_one_changes_nothing() -> None:
    passing = SpecifiedTest(id="s", sentence="It holds.", role="guards", head="passed")
    facts = Facts(specification=specification(), suite=GREEN, gates=PASSED)

    def with_second(head: Outcome, *controls: Control) -> Verification:
        second = SpecificationResult(tests=(passing.model_copy(update={"head": head}),), controls=controls)
        return with_verdict(facts.model_copy(update={"second_tests": second}))

    assert with_verdict(facts).verdict == with_second("passed").verdict == "proved"
    assert (with_second("failed").verdict, with_second("failed").rules[0]) == ("broken", "second_tests_fails")
    untrusted = Control(name="failing_copies_fail", outcome="failed", detail="t passed.")
    assert with_second("passed", untrusted).verdict == "broken"
