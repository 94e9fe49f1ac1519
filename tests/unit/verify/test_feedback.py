"""What the agent is told: facts, short, and only what speaks against the patch."""

import re
from pathlib import Path

import pytest

from app.core.verification import (
    Execution,
    GateResult,
    Reproduction,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verification,
)
from app.verify import gates
from app.verify.feedback import ADVICE, MAX_FEEDBACK, MAX_IDS, baseline_brief, feedback


def execution(excerpt: str = "", exit_code: int = 1, *, timed_out: bool = False) -> Execution:
    return Execution(command="run", exit_code=exit_code, seconds=2, timed_out=timed_out, excerpt=excerpt)


def test_everything_at_once_still_fits() -> None:
    names = tuple(f"tests/test_{number}.py::test_with_a_long_name" for number in range(500))
    verification = Verification(
        verdict="broken",
        reasons=("x" * 500,) * 5,
        reproduction=Reproduction(
            command="r" * 5_000, base=execution("b" * 4_000), head=execution("h" * 4_000), on_base="red", on_head="red"
        ),
        suite=SuiteComparison(command="s", newly_failing=names, missing=names, recheck=execution("line\n" * 1_000)),
        gates=(GateResult(name="secrets", outcome="blocked", details=("d" * 900,) * 20),),
    )
    text = feedback(verification)
    assert len(text) <= MAX_FEEDBACK
    assert "secrets" in text
    assert "On the head:" in text
    assert text.endswith("(truncated)")


def test_newly_failing_tests_are_shown_with_the_output_of_just_these() -> None:
    suite = SuiteComparison(
        command="s",
        head=SuiteResult(execution=execution("everything")),
        recheck=execution("only these"),
        newly_failing=tuple(f"t{number}" for number in range(MAX_IDS + 3)),
        notes=("t9 is flaky.",),
    )
    text = feedback(Verification(verdict="broken", suite=suite))
    assert "t19 and 3 more" in text
    assert "only these" in text
    assert "everything" not in text
    assert "t9 is flaky." in text


def test_warnings_are_not_orders() -> None:
    gates = (
        GateResult(name="dependencies", outcome="warned", details=("uv.lock: needs review",)),
        GateResult(name="size", outcome="passed"),
        GateResult(name="syntax", outcome="blocked", details=("a.py:1: missing `)`",)),
    )
    text = feedback(Verification(verdict="broken", gates=gates))
    assert "dependencies (a person will review this):\n  uv.lock: needs review" in text
    assert "syntax (must be fixed):\n  a.py:1: missing `)`" in text
    assert "size" not in text


def test_a_proved_verdict_adds_no_caveat() -> None:
    assert len(feedback(Verification(verdict="proved")).splitlines()) == 1


def test_the_base_in_one_line() -> None:
    count = TestCount(passed=212, failed=3, skipped=1)
    result = SuiteResult(execution=execution(), count=count, failing=("a", "b", "c"), passing=())
    assert baseline_brief("pytest", result) == (
        "The suite (`pytest`) on the base: 212 passed, 3 failed, 1 skipped in 2 s. Failing before any change: a, b, c."
    )


def test_a_base_whose_suite_reports_no_tests() -> None:
    assert baseline_brief("", None).startswith("No test command was found")
    assert baseline_brief("make test", SuiteResult(execution=execution())) == (
        "The suite (`make test`) on the base: exit code 1 in 2.0 s."
    )
    missing = SuiteResult(execution=execution("bash: line 1: nox: command not found", 127))
    assert baseline_brief("nox", missing).startswith(
        "The suite (`nox`) could not be run on the base: The command nox is not in the sandbox. Nor can a reproduction"
    )
    traceback = (
        'Traceback (most recent call last):\n  File "a.py", line 1\n    import b\nImportError: no b\n\nmake: *** [test]'
    )
    shown = baseline_brief("make test", SuiteResult(execution=execution(traceback)))
    assert shown.endswith("in 2.0 s. Of its output:\n\nImportError: no b")
    assert baseline_brief("make", SuiteResult(execution=execution("a\nb"))).endswith("Of its output:\n\na\nb")
    stopped = SuiteResult(execution=execution("", 124, timed_out=True), partial="The suite was stopped.")
    assert baseline_brief("x", stopped).endswith("was stopped after 2 s. The suite was stopped.")


def test_every_gate_that_can_block_has_advice() -> None:
    """The names are those that the gates' own sources give."""
    package = Path(gates.__file__).parent
    sources = "".join(path.read_text("utf-8") for path in package.glob("*.py"))
    blocking = set(re.findall(r'gate\(\s*"([a-z ]+)",\s*blocked', sources))
    blocking |= set(re.findall(r'GateResult\(name="([a-z ]+)", outcome="blocked"', sources))
    assert blocking == ADVICE.keys()


@pytest.mark.parametrize("name", ADVICE)
def test_a_blocking_gate_ends_with_its_advice(name: str) -> None:
    gate = GateResult(name=name, outcome="blocked", details=("x: y",))
    text = feedback(Verification(verdict="broken", gates=(gate,)))
    assert f"{name} (must be fixed):\n  x: y\n  → {ADVICE[name]}" in text


def test_a_warning_comes_without_advice() -> None:
    gate = GateResult(name="tests", outcome="warned", details=("x: y",))
    assert "→" not in feedback(Verification(verdict="tested", gates=(gate,)))


def test_tests_of_a_fix_are_spoken_of_as_what_they_are() -> None:
    found = Reproduction(command="run", base=execution(exit_code=0), head=execution(exit_code=0), without="a" * 40)
    found = found.model_copy(update={"on_base": "green", "on_head": "green"})
    text = feedback(Verification(verdict="tested", reproduction=found))
    assert "base without aaaaaaaaaa exit code 0" in text
    assert "with your tests but without that fix" in text


def test_tasks_without_a_red_test_ask_for_no_reproduction() -> None:
    facts = Verification(verdict="broken", suite=SuiteComparison(command="s", newly_failing=("t",)), expects_red=False)
    assert "Submit a reproduction" not in feedback(facts)
    assert "Newly failing: t." in feedback(facts)
