"""The text for the agent: the base's suite before it starts, and after a submission only the facts against it."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from app.core.text import listed
from app.core.verification import Execution, Reproduction, SuiteComparison, SuiteResult, Verification
from app.verify.examples.checks import did
from app.verify.suite import could_not_start
from app.verify.verdict import examples_of

ADVICE: Final[Mapping[str, str]] = {
    "size": "Remove what the task does not need: generated files, formatting, copies.",
    "refused files": "Put each back with `restore`, which removes new ones; put experiments in /tmp.",
    "protected paths": "Put these back with `restore`. If the task needs them, submit the rest and say so.",
    "file kinds": "Put it back with `restore`, or make it a text file or a relative link to a file in the repository.",
    "tests alone": "Put these back with `restore`; put tests in test files. If you found a bug, say so in the summary.",
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
    """The facts that contradict the change, at most 4,000 characters, without praise.

    Of hidden examples only the sentence: no program and no output.
    """
    if verification.verdict == "proved":
        return "Verified: the hidden examples print what was expected; the suite has no new failures."
    found = verification.reproduction
    sections = [
        f"Verdict: {verification.verdict}.",
        *_examples(verification),
        *(f"- {reason[:_COMMAND]}" for reason in verification.reasons if not _is_about_examples(reason, verification)),
        *_gates(verification),
        *(_reproduction(found) if found else ()),
        *_suite(verification.suite),
    ]
    text = "\n".join(section for section in sections if section)
    return text if len(text) <= MAX_FEEDBACK else text[: MAX_FEEDBACK - 30].rstrip() + "\n… (truncated)"


def _examples(verification: Verification) -> Iterable[str]:
    failing = [one for one in examples_of(verification) if one.fails and not one.disputed]
    seen = verification.examples.shown if verification.examples is not None else None
    for title, by_reviewer in (
        ("Examples from the issue print something else than expected:", False),
        ("A reviewer's counter-examples print something else than expected:", True),
    ):
        examples = [one for one in failing if (one.origin == "reviewer") is by_reviewer]
        if examples:
            yield title
        for one in examples:
            known = seen is not None and one.name == seen.name
            yield f"  {one.name}. {one.behaviour}{f' It {did(one.change, one)}.' if known else ''}"
    if failing:
        yield _OBJECT


def _is_about_examples(reason: str, verification: Verification) -> bool:
    return any(one.behaviour in reason for one in examples_of(verification) if one.fails)


_OBJECT = (
    "You do not see the programs of most of these. Fix this behaviour. If the issue does not ask for one, submit with"
    " `objections` that name it and say why: people then decide, and the change is at best `tested`."
)


def _gates(verification: Verification) -> Iterable[str]:
    for gate in verification.gates:
        if gate.outcome in ("blocked", "warned"):
            yield f"{gate.name} ({'must be fixed' if gate.outcome == 'blocked' else 'a person will review this'}):"
            yield from (f"  {detail[:200]}" for detail in gate.details[:_DETAILS])
            if gate.outcome == "blocked" and (advice := ADVICE.get(gate.name)):
                yield f"  → {advice}"


def _reproduction(reproduction: Reproduction) -> Iterable[str]:
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
