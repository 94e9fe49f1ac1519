"""The text for the agent: the base's suite before it starts, and after a submission only the facts against it."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from app.core.text import listed
from app.core.verification import Execution, Facts, Reproduction, SuiteComparison, SuiteResult, Verification
from app.verify.suite import could_not_start
from app.verify.verdict import facts_of, specification_supports_change, with_verdict

ADVICE: Final[Mapping[str, str]] = {
    "size": "Remove what the task does not need: generated files, formatting, copies.",
    "refused files": "Remove these from /workspace; put experiments in /tmp.",
    "protected paths": "Revert these changes. If the task needs them, submit the rest and say so.",
    "file kinds": "Revert this file, or make it a text file or a relative link to a file in the repository.",
    "tests alone": "Revert these files; put tests in test files. If you found a bug, describe it in the summary.",
    "conflicts": "Resolve these conflicts and remove git's marker lines.",
    "syntax": "View these lines and fix the syntax.",
    "secrets": "Remove the value: read it from the project's settings, or use an obvious placeholder.",
    "hidden characters": "Rewrite these lines with plain characters, or use escapes where you need the character.",
    "shadowing": "Remove this file: imports must load the standard library and the installed packages.",
    "lint": "Run the command and fix what it reports in your lines; do not silence it.",
}
"""By the gate's name. Gates that only warn are for people and have no advice."""


MAX_FEEDBACK = 4_000
MAX_IDS = 20
_TAIL = 1_400
_COMMAND = 300
_DETAILS = 8


BRIEF_LINES = 5
"""Lines of output of a suite that fails before any change, if its tests are not known by name."""
_ERROR_LINE = re.compile(
    r"\b\w*(?:Error|Exception|NotFound)\b|\berror(?:\[\w+\])?:|\bfatal:|\bpanicked at\b", re.IGNORECASE
)
_WITHOUT_SUITE = (
    "Nor can a reproduction that needs it. Run what can be run, such as the code itself with the reported input, and "
    "say in the summary what could not."
)


def baseline_brief(command: str, result: SuiteResult | None) -> str:
    """One or two sentences for the first message: what is red before any change."""
    if result is None:
        return "No test command was found in this repository, so only your reproduction will be run."
    execution = result.execution
    if result.count is None:
        if reason := could_not_start(execution):
            return f"The suite (`{command}`) could not be run on the base: {reason} {_WITHOUT_SUITE}"
        summary = f"The suite (`{command}`) on the base: {_ended(execution)}. {result.partial}".strip()
        tail = _telling(execution.excerpt)
        return summary if execution.exit_code == 0 or not tail else f"{summary} Of its output:\n\n{tail}"
    count = result.count
    counts = f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped in {execution.seconds:.0f} s"
    failing = f" Failing before any change: {listed(result.failing or (), MAX_IDS)}." if result.failing else ""
    if result.shared_cause:
        failing = f" Most of them fail for one cause, which was there before any change: {result.shared_cause}"
    partial = f" {result.partial}" if result.partial else ""
    return f"The suite (`{command}`) on the base: {counts}.{failing}{partial}"


def _telling(output: str) -> str:
    """The last lines that name an error; of an output that names none, its end."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    return "\n".join(list(dict.fromkeys(errors or lines))[-BRIEF_LINES:])


def feedback(verification: Verification) -> str:
    """The facts that contradict the patch, at most 4,000 characters, without praise.

    Of the tests of both authors only the sentences of failing ones: no code, names or output.
    """
    if verification.verdict == "proved":
        return "Verified: the independent tests fail on the base and pass now; the suite has no new failures."
    found = verification.reproduction
    sections = [
        f"Verdict: {verification.verdict}.",
        *_specification(verification),
        *(f"- {reason[:_COMMAND]}" for reason in _reasons(verification)),
        *_gates(verification),
        *(_reproduction(found) if (verification.expects_red and not _shown(verification)) or found else ()),
        *_suite(verification.suite),
    ]
    text = "\n".join(section for section in sections if section)
    return text if len(text) <= MAX_FEEDBACK else text[: MAX_FEEDBACK - 30].rstrip() + "\n… (truncated)"


def _specification(verification: Verification) -> Iterable[str]:
    for found, titles in ((verification.specification, _ROLES), (verification.second_tests, _SECOND_ROLES)):
        if found is None:
            continue
        for role, title in titles.items():
            if failing := [test.sentence for test in found.failing if test.role == role]:
                yield "\n".join([title, *(f"  - {sentence}" for sentence in failing)])
        if found.failing:
            yield _OBJECTED if found.settlement else _OBJECT


_ROLES = {
    "shows": "Independent tests, written from the issue before you started, still fail. They require:",
    "guards": "Your change broke behaviour that independent tests require to keep working:",
}
_SECOND_ROLES = {
    "shows": "A reviewer of your change wrote tests from the issue that fail on it, as they fail on the base."
    " They require:",
    "guards": "A reviewer of your change wrote tests of behaviour that it broke:",
}
_OBJECT = (
    "You cannot see these tests. Fix this behaviour. If a requirement contradicts the issue, submit with an `objection`"
    " that says which one and why. You can object once."
)
_OBJECTED = "Your objection was reviewed and rejected: these requirements stand."


def _reasons(verification: Verification) -> tuple[str, ...]:
    """The verdict's reasons, without the independent tests and the details of their controls."""
    found = verification.specification
    if found is None:
        return verification.reasons
    bare_facts = facts_of(verification)
    sentences: list[str] = []
    for name, tests in (("specification", found), ("second_tests", verification.second_tests)):
        if tests is not None:
            bare = tuple(control.model_copy(update={"detail": ""}) for control in tests.controls)
            bare_facts[name] = tests.model_copy(update={"controls": bare})
            sentences += [test.sentence for test in tests.failing]
    bare_verdict = with_verdict(Facts(**bare_facts))
    return tuple(reason for reason in bare_verdict.reasons if not any(sentence in reason for sentence in sentences))


def _shown(verification: Verification) -> bool:
    return verification.specification is not None and specification_supports_change(verification.specification)


def _gates(verification: Verification) -> Iterable[str]:
    for gate in verification.gates:
        if gate.outcome in ("blocked", "warned"):
            yield f"{gate.name} ({'must be fixed' if gate.outcome == 'blocked' else 'a person will review this'}):"
            yield from (f"  {detail[:200]}" for detail in gate.details[:_DETAILS])
            if gate.outcome == "blocked" and (advice := ADVICE.get(gate.name)):
                yield f"  → {advice}"


def _reproduction(reproduction: Reproduction | None) -> Iterable[str]:
    if reproduction is None:
        yield "Submit a reproduction (best a new test): a command that fails without your change and passes with it."
        return
    if reproduction.on_head == "not_run":
        return
    base = reproduction.reference.removeprefix("the ")
    sides = f"{_side(base, reproduction.base)}; {_side('head', reproduction.head)}"
    yield f"Reproduction `{reproduction.command[:_COMMAND]}`: {sides}."
    if reproduction.note:
        yield reproduction.note
    if reproduction.on_head != "green" and reproduction.head is not None:
        yield _tail("On the head", reproduction.head)
    elif reproduction.on_base != "red" and reproduction.base is not None:
        if reproduction.without:
            yield (
                f"On {reproduction.reference}, the harness runs it with your tests but without that fix. There it must"
                " fail because of the bug, not because something is missing."
            )
        else:
            yield (
                "On the base, the harness runs it with your changed test files but without your other changes. There"
                " it must fail because of the bug, not because something is missing."
            )
        yield _tail("On the base", reproduction.base)


def _suite(suite: SuiteComparison | None) -> Iterable[str]:
    if suite is None:
        return
    if suite.newly_failing:
        yield (
            f"Newly failing: {listed(suite.newly_failing, MAX_IDS)}."
            " If one of them asserts behaviour the issue reports as wrong, keep its name and change its assertion."
        )
        execution = suite.recheck or (suite.head.execution if suite.head else None)
        yield _tail("Their output", execution) if execution else ""
    elif suite.head is not None and suite.head.count is None and not suite.head.execution.ok:
        yield _tail(f"Suite `{suite.command}` on the head ({_ended(suite.head.execution)})", suite.head.execution)
    if suite.missing:
        yield (
            f"These tests passed on the base and are missing or skipped now: {listed(suite.missing, MAX_IDS)}. Make"
            " them run again. If a test asserts what the issue calls wrong, keep its name and change its assertion."
        )
    yield from suite.notes


def _side(name: str, execution: Execution | None) -> str:
    return f"{name} {_ended(execution)}" if execution else f"{name} not run"


def _ended(execution: Execution) -> str:
    if execution.timed_out:
        return f"was stopped after {execution.seconds:.0f} s"
    return f"exit code {execution.exit_code} in {execution.seconds:.1f} s"


def _tail(title: str, execution: Execution) -> str:
    text = execution.excerpt[-_TAIL:]
    if len(execution.excerpt) > _TAIL:
        text = text[text.find("\n") + 1 :]
    return f"{title}:\n{text}" if text else f"{title}: no output."
