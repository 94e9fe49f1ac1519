"""The verdict as a table: what each kind of evidence allows, and that one more failure never makes it better."""

from itertools import product

import pytest

from app.core.examples import Because, JudgedExample, OutdatedTest, PlanExamples, ProgramRun, Review
from app.core.verification import (
    EarlierProof,
    Execution,
    ExistingTestChange,
    Facts,
    GateResult,
    Reproduction,
    RestOfSuite,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
)
from app.verify.verdict import earlier_proof, is_name_of, with_rest, with_verdict

RANK: dict[Verdict, int] = {"broken": 0, "unproved": 1, "tested": 2, "proved": 3}
OK = Execution(command="pytest", exit_code=0, seconds=1)


def example(name: str, *, base: str = "wrong", change: str = "right", **changes: object) -> JudgedExample:
    values: dict[str, object] = {
        "name": name,
        "behaviour": f"Behaviour {name}.",
        "because": Because(quote="It must be so.", source="issue"),
        "run": "python",
        "program": "print(1)",
        "stdout": "right\n",
        "quoted": True,
        "base": (ProgramRun(stdout=f"{base}\n"),) * 2,
        "change": (ProgramRun(stdout=f"{change}\n"),) * 2,
    }
    return JudgedExample.model_validate(values | changes)


def suite(**changes: object) -> SuiteComparison:
    side = SuiteResult(execution=OK, count=TestCount(passed=3), failing=(), passing=("a", "b", "c"))
    return SuiteComparison.model_validate({"command": "pytest", "base": side, "head": side} | changes)


SHOWN, HIDDEN, KEPT = example("1"), example("2", hidden=True), example("3", kind="keeps", base="right", hidden=True)
NOTHING = Review(nothing="I found none.")


def facts(*examples: JudgedExample, **changes: object) -> Facts:
    found = PlanExamples(examples=examples or (SHOWN, HIDDEN, KEPT))
    return Facts.model_validate({"examples": found, "review": NOTHING, "suite": suite()} | changes)


def verdict(found: Facts) -> tuple[Verdict, tuple[str, ...]]:
    judged = with_verdict(found)
    return judged.verdict, judged.rules


def test_all_evidence_together_is_proof() -> None:
    assert verdict(facts()) == ("proved", ())


OWN = Reproduction(command="pytest t", on_base="red", on_head="green", ids=("t::test",))
NO_TESTS = SuiteResult(execution=OK)


def counter(base: str = "wrong") -> Review:
    """A reviewer's example that fails on the change."""
    return Review(examples=(example("r1", base=base, change="wrong", origin="reviewer", quoted=False),))


@pytest.mark.parametrize(
    ("found", "expected", "rule"),
    [
        (facts(SHOWN, KEPT), "tested", "no_hidden_example"),
        (facts(SHOWN, example("2", hidden=True, quoted=False)), "tested", "no_hidden_example"),
        (facts(review=None), "tested", "no_reviewer"),
        (facts(review=Review(absent="it is off.")), "tested", "no_reviewer"),
        (facts(suite=None), "tested", "suite_not_compared"),
        (facts(suite=suite(base=NO_TESTS, head=NO_TESTS, by_exit_code=True)), "tested", "suite_by_exit_code"),
        (facts(isolated=False), "tested", "isolation"),
        (facts(examples=PlanExamples(absent="none."), reproduction=OWN), "tested", "no_hidden_example"),
        (facts(examples=PlanExamples(absent="none.")), "unproved", "nothing_shown"),
        (facts(KEPT), "unproved", "nothing_shown"),
        (facts(SHOWN, HIDDEN, example("4", change="wrong", disputed="No.")), "tested", "example_disputed"),
        (facts(SHOWN, example("4", change="wrong", hidden=True, disputed="No.")), "unproved", "example_disputed"),
        (facts(SHOWN, HIDDEN, example("4", change="wrong")), "broken", "example_fails"),
        (facts(review=counter()), "tested", "reviewer_asks"),
        (
            facts(review=counter("right")),
            "broken",
            "example_fails",
        ),
        (facts(suite=suite(newly_failing=("a",))), "broken", "suite_newly_failing"),
        (facts(suite=suite(missing=("a",))), "unproved", "tests_vanished"),
        (
            facts(suite=suite(changed_tests=(ExistingTestChange(path="t.py", failing=("t.py::test",)),))),
            "tested",
            "existing_tests_changed",
        ),
        (facts(gates=(GateResult(name="secrets", outcome="blocked", details=("a key",)),)), "broken", "gate: secrets"),
        (facts(reproduction=Reproduction(command="c", on_base="red", on_head="red")), "broken", "reproduction_fails"),
    ],
)
def test_missing_or_failing_evidence_lowers_the_verdict(found: Facts, expected: Verdict, rule: str) -> None:
    judged = with_verdict(found)
    assert judged.verdict == expected
    assert judged.rules[0] == rule
    assert judged.reasons


def test_a_test_that_the_plan_calls_outdated_may_change() -> None:
    changed = suite(changed_tests=(ExistingTestChange(path="t.py", failing=("t.py::test",)),))
    outdated = OutdatedTest(test="t.py::test", because="It was wrong.")
    plan = PlanExamples(examples=(SHOWN, HIDDEN), outdated=(outdated,))
    assert verdict(facts(examples=plan, suite=changed))[0] == "proved"


JAVA = ("org.acme.CsvTest::testEmpty", "src/test/java/org/acme/CsvTest.java")
PYTEST = ("tests/test_csv.py::TestEmpty::test_row[a-1]", "tests/test_csv.py")
GO = ("github.com/acme/csv::TestRows/empty_row", "rows_test.go")
TITLE = ("test.js::rows have a header option", "test.js")
CARGO = ("csv::tests::empty_row", "src/csv.rs")


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("testEmpty", JAVA),
        ("testEmpty()", JAVA),
        ("CsvTest.testEmpty", JAVA),
        ("org.acme.CsvTest.testEmpty", JAVA),
        ("CsvTest#testEmpty", JAVA),
        ("src/test/java/org/acme/CsvTest.java::testEmpty", JAVA),
        ("CsvTest.java: testEmpty", JAVA),
        ("test_row", PYTEST),
        ("tests/test_csv.py::TestEmpty::test_row", PYTEST),
        ("tests.test_csv.TestEmpty.test_row", PYTEST),
        ("tests/test_csv.py::TestEmpty::test_row[a-1]", PYTEST),
        ("TestRows", GO),
        ("TestRows/empty_row", GO),
        ("rows_test.go: TestRows", GO),
        ("have a header option", TITLE),
        ("test.js > rows have a header option", TITLE),
        ("src/csv.rs: tests::empty_row", CARGO),
    ],
)
def test_a_plan_names_outdated_tests_in_its_own_words(name: str, test: tuple[str, str]) -> None:
    assert is_name_of(name, *test)


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("testEmpty2", JAVA),
        ("Empty", JAVA),
        ("OtherTest.testEmpty", JAVA),
        ("CsvTest.java", JAVA),
        ("src/test/java/org/acme/CsvTest.java", JAVA),
        ("tests/test_csv.py", PYTEST),
        ("tests/test_tsv.py::TestEmpty::test_row", PYTEST),
        ("TestRow", GO),
        ("option", TITLE),
        ("", JAVA),
    ],
)
def test_names_of_other_tests_and_of_whole_files_excuse_nothing(name: str, test: tuple[str, str]) -> None:
    assert not is_name_of(name, *test)


def test_work_that_changes_no_behaviour_is_tested_by_the_suite() -> None:
    upkeep = {"examples": None, "review": None, "expects_red": False}
    assert verdict(facts(**upkeep))[0] == "tested"
    assert verdict(facts(**upkeep, suite=None))[0] == "unproved"
    assert verdict(facts(**upkeep, suite=suite(newly_failing=("a",))))[0] == "broken"


def again(known: Verdict, *examples: JudgedExample) -> EarlierProof:
    return EarlierProof(commit="1" * 40, verdict=known, examples=examples or (SHOWN, HIDDEN, KEPT))


NO_PLAN: dict[str, object] = {"examples": PlanExamples(absent="the job has no plan."), "review": None}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({**NO_PLAN, "tests_or_text_only": True}, "proved"),
        ({**NO_PLAN, "expects_red": False}, "proved"),
        ({**NO_PLAN, "tests_or_text_only": True, "suite": suite(newly_failing=("a",))}, "broken"),
        ({**NO_PLAN, "tests_or_text_only": True, "suite": None}, "unproved"),
        ({**NO_PLAN, "tests_or_text_only": True, "earlier": again("tested")}, "tested"),
        (
            {**NO_PLAN, "tests_or_text_only": True, "earlier": again("broken")},
            "unproved",
        ),
        ({**NO_PLAN, "earlier": again("proved", example("e1", change="wrong"))}, "broken"),
        ({**NO_PLAN}, "tested"),
        ({**NO_PLAN, "review": NOTHING, "reproduction": OWN}, "tested"),
        ({}, "proved"),
        ({"review": None}, "tested"),
        ({"earlier": again("unproved")}, "unproved"),
    ],
)
def test_a_follow_up_is_judged_by_what_was_proved_before(changes: dict[str, object], expected: Verdict) -> None:
    assert verdict(facts(**({"earlier": again("proved")} | changes)))[0] == expected


def test_earlier_examples_that_held_are_run_again_under_names_of_their_own() -> None:
    known = with_verdict(facts(SHOWN, HIDDEN, example("4", change="wrong", disputed="No."), review=counter()))
    found = earlier_proof("2" * 40, known)
    assert [(one.name, one.hidden, one.base, one.change) for one in found.examples] == [
        ("e1", False, SHOWN.base, ()),
        ("e2", True, HIDDEN.base, ()),
    ]
    assert (found.commit, found.verdict) == ("2" * 40, known.verdict)


def test_a_program_that_hangs_or_cannot_run_prints_nothing_right() -> None:
    hanging = HIDDEN.model_copy(update={"change": (ProgramRun(stdout="right\n", timed_out=True),)})
    missing = HIDDEN.model_copy(update={"change": (ProgramRun(stdout="right\n", problem="no node"),)})
    unequal = HIDDEN.model_copy(update={"change": (ProgramRun(stdout="right\n"), ProgramRun(stdout="wrong\n"))})
    exited = HIDDEN.model_copy(update={"change": (ProgramRun(stdout="right\n", exit_code=1),)})
    for one in (hanging, missing, unequal, exited):
        assert verdict(facts(SHOWN, one))[0] == "broken"


def test_one_more_failure_never_makes_it_better() -> None:
    worse: list[dict[str, object]] = [
        {"suite": None},
        {"suite": suite(newly_failing=("a",))},
        {"suite": suite(missing=("a",))},
        {"review": None},
        {"review": counter()},
        {"review": counter("right")},
        {"examples": PlanExamples(examples=(SHOWN,))},
        {"examples": PlanExamples(examples=(SHOWN, HIDDEN, example("4", change="wrong", disputed="No.")))},
        {"examples": PlanExamples(examples=(SHOWN, HIDDEN, example("4", change="wrong")))},
        {"isolated": False},
        {"gates": (GateResult(name="size", outcome="blocked"),)},
    ]
    for one, other in product(worse, repeat=2):
        alone, both = verdict(facts(**one))[0], verdict(facts(**{**one, **other}))[0]
        if not one.keys() & other.keys():
            assert RANK[both] <= min(RANK[alone], RANK[verdict(facts(**other))[0]])


def test_the_rest_of_a_suite_only_makes_a_verdict_worse() -> None:
    proved, tested = with_verdict(facts()), with_verdict(facts(review=None))
    clean = RestOfSuite(state="finished", files=3, minutes=30.0, compared=3)
    failing = clean.model_copy(update={"newly_failing": ("z",)})
    assert [with_rest(each, clean).verdict for each in (proved, tested)] == ["proved", "tested"]
    assert [with_rest(each, failing).verdict for each in (proved, tested)] == ["broken", "broken"]
    assert with_rest(tested, clean).rules == tested.rules
