"""Summarises the verification for the terminal: red on the base, green on the head, and what was found besides."""

from collections.abc import Iterator

from app.core.evidence import Execution
from app.core.text import one_line
from app.core.verification import FailureReason, Reproduction, SuiteResult, Verification
from app.publish.plaintext import count, duration
from app.verify.verdict import CONTROLS

_WORDS: dict[FailureReason, str] = {
    "green": "passes",
    "red": "fails",
    "was_not_there": "could not start",
    "not_run": "was not run",
}


def red_line(facts: Verification) -> str:
    """What was run without the change."""
    return " · ".join(filter(None, (_on_base(facts), _suite(facts, facts.suite.base if facts.suite else None))))


def green_line(facts: Verification) -> str:
    """What was run with the change."""
    return " · ".join(filter(None, (_on_head(facts), _suite(facts, facts.suite.head if facts.suite else None))))


def finding_lines(facts: Verification) -> Iterator[str]:
    """Everything that failed or needs a look; nothing if all is well."""
    if facts.specification is not None:
        if not facts.specification.tests:
            yield f"no independent tests: {one_line(facts.specification.absent)}"
        yield from (f"does not hold: {test.sentence}" for test in facts.specification.failing[:10])
    if facts.suite is not None:
        yield from (f"newly failing: {one_line(test)}" for test in facts.suite.newly_failing[:10])
        yield from filter(None, (facts.suite.not_run,))
    for control in facts.controls:
        if control.outcome == "failed":
            yield f"control failed: {CONTROLS[control.name]} {one_line(control.detail)}".rstrip()
    for gate in facts.gates:
        if gate.outcome in {"blocked", "warned"}:
            details = "; ".join(one_line(detail) for detail in gate.details[:3])
            yield f"{gate.outcome}: {gate.name}: {details}"


def _on_base(facts: Verification) -> str:
    found = facts.specification
    if found is not None and found.tests:
        red = sum(test.role == "shows" for test in found.tests)
        return f"{red} of {count(len(found.tests), 'independent test')} {'fails' if red == 1 else 'fail'}"
    return _reproduction(facts.reproduction, on_base=True)


def _on_head(facts: Verification) -> str:
    found = facts.specification
    if found is not None and found.tests:
        green = sum(test.head == "passed" for test in found.tests)
        return f"{green} of {count(len(found.tests), 'independent test')} {'passes' if green == 1 else 'pass'}"
    return _reproduction(facts.reproduction, on_base=False)


def _reproduction(found: Reproduction | None, *, on_base: bool) -> str:
    if found is None:
        return "no test shows the problem" if on_base else ""
    word = _WORDS[found.on_base if on_base else found.on_head]
    return f"{one_line(found.command)[:60]} {word}{_end(found.base if on_base else found.head)}"


def _end(execution: Execution | None) -> str:
    if execution is None:
        return ""
    how = "timed out" if execution.timed_out else f"exit {execution.exit_code}"
    return f" ({how}, {duration(execution.seconds)})"


def _suite(facts: Verification, result: SuiteResult | None) -> str:
    """The suite's numbers on one side."""
    if facts.suite is None or facts.suite.not_run:
        return ""
    if result is None:
        return "suite not run"
    if result.count is None:
        return f"suite exit {result.execution.exit_code}"
    parts = [(result.count.passed, "passed"), (result.count.failed, "failed"), (result.count.skipped, "skipped")]
    return f"suite {', '.join(f'{number} {name}' for number, name in parts if number) or 'without tests'}"
