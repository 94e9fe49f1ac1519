"""What a reader of a pull request is told of the independent tests: who wrote them, what was run, what was argued."""

from app.core.examples import SourceText
from app.core.verification import (
    Control,
    Execution,
    Settlement,
    Specification,
    SpecificationResult,
    SpecifiedTest,
    Verification,
)
from app.publish.verification_text import Caps, control_table, effort, independent_tests, second_tests

CAPS = Caps(output=2_000, items=20, text=600)
RAN = Execution(command="python -m pytest a", exit_code=1, seconds=0.4)
FOUND = SpecificationResult(
    files=(SourceText(path="tests/test_spec.py", text="def test_half(): ...\n"),),
    tests=(
        SpecifiedTest(
            id="t::half", sentence="Half of an odd sum is rounded up.", role="shows", varies=True, head="passed"
        ),
        SpecifiedTest(id="t::none", sentence="Half of nothing is nothing.", role="guards", head="failed"),
    ),
    digest="0123456789abcdef",
    example="tests/test_spec.py",
    base=RAN,
    runs=5,
    model="vendor/author",
    turns=2,
    tokens=8_086,
    cost=12_300,
    seconds=14.2,
)


def told(found: SpecificationResult | None) -> str:
    return independent_tests(Verification(specification=found, verdict="tested"), CAPS)


def test_evidence_names_author_cost_and_runs_of_the_tests() -> None:
    first = told(FOUND).partition("\n")[0]
    assert (
        "a separate test author (`vendor/author`, 2 calls, 8,086 tokens, $0.01, 14 s) wrote them from the issue"
        in first
    )
    assert "run on the base 5 times and then frozen (`0123456789ab`)" in first
    assert "The agent that made the change saw the first of them." in first
    assert "saw none of them." in told(FOUND.model_copy(update={"example": ""}))


def test_each_behaviour_is_listed_with_base_and_head_results() -> None:
    rows = [line for line in told(FOUND).splitlines() if line.startswith("| Half")]
    assert rows == [
        "| Half of an odd sum is rounded up. | 🔴 fails | 🟢 passes | `t::half` |",
        "| Half of nothing is nothing. | 🟢 passes | 🔴 fails | `t::none` |",
    ]


def test_failed_attempts_are_listed_with_their_result() -> None:
    tried = SpecificationResult(absent="none of the tests fails.", turns=3, tokens=900, seconds=2.0)
    assert told(tried) == "**Independent tests:** none of the tests fails. (3 calls, 900 tokens, 2.0 s)"
    assert told(SpecificationResult(absent="none were requested.")) == "**Independent tests:** none were requested."
    assert told(None) == ""


def test_objection_and_decision_are_both_shown() -> None:
    settled = Settlement(objection="Zero is not in the issue.", withdrawn=("t::none",), reason="It leaves that open.")
    body = told(FOUND.model_copy(update={"settlement": settled}))
    assert "> Zero is not in the issue." in body
    assert "withdrew 1 test and upheld 0. Its reason:\n\n> It leaves that open." in body


def test_a_price_of_zero_is_left_out() -> None:
    assert effort(Specification(turns=1, tokens=10, seconds=1)) == "1 call, 10 tokens, 1.0 s"


def test_controls_are_expanded_only_if_one_failed() -> None:
    held = Control(name="repeats_agree", outcome="held", detail="5 executions on the head.")
    failed = Control(name="noise_stays_red", outcome="failed", detail="t::half passed there.")
    assert "<summary>Controls of these runs: 1 of 1 held, none failed</summary>" in control_table((held,))
    assert "<details>" not in control_table((held, failed))
    assert (
        "| comments and shifted lines do not fix the base | 🔴 did not hold | t::half passed there. |"
        in control_table((held, failed))
    )


def against(found: SpecificationResult | None) -> str:
    return second_tests(Verification(second_tests=found, verdict="tested"), CAPS)


def test_tests_against_a_change_say_who_wrote_them_and_that_they_only_make_a_verdict_worse() -> None:
    text = against(FOUND.model_copy(update={"example": ""}))
    assert text.startswith("**Tests against the change:** a second author (`vendor/author`, 2 calls, 8,086 tokens")
    assert "They can only make the verdict worse." in text
    assert "| Half of nothing is nothing. | 🟢 passes | 🔴 fails | `t::none` |" in text
    passed = [test.model_copy(update={"head": "passed"}) for test in FOUND.tests]
    assert "<summary>2 of 2 tests passed on the head" in against(FOUND.model_copy(update={"tests": tuple(passed)}))


def test_a_second_author_without_tests_is_named_with_the_reason() -> None:
    assert against(None) == ""
    absent = SpecificationResult(absent="the second author wrote the first one's tests again.")
    assert against(absent).endswith("none. The second author wrote the first one's tests again.")
