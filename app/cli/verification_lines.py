"""Summarises the verification for the terminal: what was run on base and head, and which checks failed."""

from collections import Counter
from collections.abc import Iterator

from app.core.evidence import Execution
from app.core.text import one_line
from app.core.verification import (
    FailureReason,
    Reproduction,
    SpecificationResult,
    SuiteComparison,
    SuiteResult,
    Verification,
)
from app.publish.evidence import effort
from app.verify.verdict import CONTROLS

_WORDS: dict[FailureReason, str] = {
    "green": "green",
    "red": "red",
    "was_not_there": "could not start",
    "not_run": "not run",
}


def proof_lines(facts: Verification) -> Iterator[str]:
    """One line per command; gates and controls only if they report something."""
    if facts.specification is not None:
        yield f"specification {_specification(facts.specification)}"
        if facts.specification.turns:
            yield f"  their author: {effort(facts.specification)}"
        yield from (f"  does not hold: {test.sentence}" for test in facts.specification.failing[:10])
    if facts.reproduction is not None:
        yield f"reproduction  {_reproduction(facts.reproduction)}"
    if facts.suite is not None:
        yield f"suite         {_suite(facts.suite)}"
        yield from (f"  newly failing: {one_line(test)}" for test in facts.suite.newly_failing[:10])
    for control in facts.controls:
        if control.outcome == "failed":
            yield f"  control failed: {CONTROLS[control.name]} {one_line(control.detail)}".rstrip()
    counted = Counter(gate.outcome.replace("_", " ") for gate in facts.gates)
    yield f"gates         {', '.join(f'{number} {outcome}' for outcome, number in counted.most_common())}"
    for gate in facts.gates:
        if gate.outcome in {"blocked", "warned"}:
            details = "; ".join(one_line(detail) for detail in gate.details[:3])
            yield f"  {gate.outcome}: {gate.name}: {details}"


def _specification(found: SpecificationResult) -> str:
    if not found.tests:
        return f"none: {one_line(found.absent)}"
    prompts = sum(test.role == "shows" for test in found.tests)
    passing = sum(test.head == "passed" for test in found.tests)
    return f"{prompts} of {len(found.tests)} tests red on the base → {passing} green on the head"


def _reproduction(found: Reproduction) -> str:
    base, head = _end(found.base, _WORDS[found.on_base]), _end(found.head, _WORDS[found.on_head])
    return f"{found.reference.removeprefix('the ')} {base} → head {head}   {one_line(found.command)[:100]}"


def _end(execution: Execution | None, word: str) -> str:
    if execution is None:
        return word
    how = "timed out" if execution.timed_out else f"exit {execution.exit_code}"
    return f"{word} ({how}, {execution.seconds:.1f} s)"


def _suite(suite: SuiteComparison) -> str:
    if suite.not_run:
        return suite.not_run
    return f"base {_count(suite.base)} → head {_count(suite.head)}   {one_line(suite.command)[:100]}"


def _count(result: SuiteResult | None) -> str:
    if result is None:
        return "not run"
    if result.count is None:
        return f"exit {result.execution.exit_code}"
    parts = [(result.count.passed, "passed"), (result.count.failed, "failed"), (result.count.skipped, "skipped")]
    return ", ".join(f"{number} {name}" for number, name in parts if number) or "no tests"
