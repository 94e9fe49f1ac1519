"""The reason of an ending: what stopped the job, and what its last submission failed by."""

from typing import Any

import pytest

from app.core.verification import Execution, GateResult, Verdict, Verification
from app.verify.ending import failed_run, why_it_ended
from app.verify.gates.paths import CONFIGURED
from tests.support.pull_requests import reproduction, suite

LIMIT = "All 5 turns are used."
LINT = GateResult(name="lint", outcome="blocked", details=("`ruff check` exit code 1", "a.py:1: F401"))
PROTECTED = GateResult(
    name="protected paths", outcome="blocked", details=(f"shop/money.py: {CONFIGURED}", f"b.py: {CONFIGURED}")
)


def verification(*reasons: str, verdict: Verdict = "broken", **facts: Any) -> Verification:
    return Verification(verdict=verdict, reasons=reasons, **facts)


@pytest.mark.parametrize(
    ("reason", "last", "shown"),
    [
        (LIMIT, verification("Newly failing: a."), f"{LIMIT} The last submission was broken: Newly failing: a."),
        (LIMIT, verification("No test.", verdict="unproved"), f"{LIMIT} The last submission was unproved: No test."),
        (LIMIT, verification("lint: a.py:1: F401"), f"{LIMIT} The last submission was broken: lint: a.py:1: F401"),
        ("", verification("Newly failing: a.", "syntax: a.py:1"), "Newly failing: a. syntax: a.py:1"),
        ("Newly failing: a.", verification("Newly failing: a."), "Newly failing: a."),
        (LIMIT, verification(), LIMIT),
        (LIMIT, None, LIMIT),
    ],
)
def test_neither_reason_replaces_the_other(reason: str, last: Verification | None, shown: str) -> None:
    assert why_it_ended(reason, last) == shown


def test_a_path_that_a_person_can_allow_is_named_with_the_command() -> None:
    told = why_it_ended(LIMIT, verification("protected paths: shop/money.py", gates=(LINT, PROTECTED)))
    assert "`/agent allow shop/money.py`, or `--allow shop/money.py` on the command line." in told
    assert "/agent allow" not in why_it_ended(LIMIT, verification("lint: x", gates=(LINT,)))


def test_the_output_that_is_shown_is_of_what_failed() -> None:
    alone = Execution(command="pytest a", exit_code=1, seconds=1.0, excerpt="E assert 1 == 2")
    red = reproduction(head=Execution(command="python c", exit_code=1, seconds=1.0, excerpt="Error"), on_head="red")
    assert failed_run(verification(suite=suite(newly_failing=("a",), recheck=alone), reproduction=red)) == alone
    assert failed_run(verification(reproduction=red)) == red.head
    assert failed_run(verification(reproduction=reproduction())) is None
    assert failed_run(verification(gates=(LINT,))) is None
