"""Renders the Verification section of a pull request: what was run, on which commit, with which result, and who wrote
the tests."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.core.examples import JudgedExample, ProgramRun
from app.core.text import clip, count
from app.core.verification import (
    Execution,
    FailureReason,
    GateResult,
    Reproduction,
    RestOfSuite,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verdict,
    Verification,
)
from app.publish.markdown import (
    cell,
    code_cell,
    code_span,
    details,
    duration,
    fenced,
    inline,
    paragraphs,
    quoted,
    table,
)
from app.verify.verdict import examples_of


class Caps(NamedTuple):
    """Limits of the long parts: characters of an output, items of a list, characters of a text."""

    output: int
    items: int
    text: int


MAX_ROWS = 3
"""Examples in the open; the others are folded."""


def example_table(facts: Verification, caps: Caps) -> str:
    """The most telling examples: those that fail, then those that turn, the hidden ones first."""
    examples = sorted(examples_of(facts), key=lambda one: (not one.fails, not one.turns, not one.hidden))
    rows = [[_program(one), _printed(one.base), _printed(one.change)] for one in examples[:MAX_ROWS]]
    return table(["Program", "Before", "After"], rows) if rows else ""


def _program(one: JudgedExample) -> str:
    short = one.program.strip()
    marks = {"reviewer": " (reviewer)", "person": " (written by a person)", "plan": ""}[one.origin]
    text = f"{inline(one.behaviour)}{marks}"
    return f"{text}<br>{code_cell(clip(short, 300))}" if short.count("\n") < 8 and len(short) <= 300 else text


def _printed(runs: Sequence[ProgramRun]) -> str:
    return code_cell(clip(printed_text(runs), 200))


def printed_text(runs: Sequence[ProgramRun]) -> str:
    """What a program printed, in a few words if it printed nothing."""
    if not runs:
        return "not run"
    run = runs[0]
    if run.problem:
        return run.problem
    if run.timed_out:
        return f"did not end within {run.seconds:.0f} s"
    text = run.stdout.rstrip()
    last = run.stderr.rstrip().rpartition("\n")[2]
    return text if text or not run.exit_code else f"{last or 'nothing'} (exit code {run.exit_code})"


def all_examples(facts: Verification, caps: Caps) -> str:
    """Every example whole, to be run again as copied."""
    examples = examples_of(facts)
    if not examples or not caps.output:
        return ""
    return details(f"All {count(len(examples), 'example')}", "\n\n".join(_whole(one, caps) for one in examples))


def _whole(one: JudgedExample, caps: Caps) -> str:
    state = "🔴" if one.fails else "🟢" if one.holds else "⚪"
    seen = "hidden from the agent" if one.hidden else "the agent saw it" if one.origin != "reviewer" else "a reviewer's"
    because = f"Because {inline(one.because.source)} says: {inline(clip(one.because.quote, 300))}" if one.quoted else ""
    return paragraphs(
        f"{state} **{inline(one.name)}.** {inline(clip(one.behaviour, caps.text))} ({seen}; {code_span(one.run)})",
        because,
        fenced(clip(one.program.rstrip(), caps.output)),
        f"Expected:\n\n{fenced(clip(one.stdout.rstrip(), caps.output))}",
        f"Before: {_printed(one.base)} · After: {_printed(one.change)}",
        f"Disputed by the agent:\n\n{quoted(clip(one.disputed, caps.text))}" if one.disputed else "",
    )


def about_review(facts: Verification) -> str:
    review = facts.review
    if review is None:
        return ""
    if not review.answered:
        return f"No reviewer: {inline(review.absent)}"
    if not review.examples:
        return f"A reviewer looked for counter-examples and wrote none: {inline(clip(review.nothing, 300))}"
    holding = sum(one.holds for one in review.examples)
    return f"A reviewer wrote {count(len(review.examples), 'counter-example')}; {holding} of them hold."


MEANING: dict[Verdict, str] = {
    "proved": "Examples from the issue that the agent had not seen print what they should, a reviewer found nothing "
    "against it, and the test suite has no new failures.",
    "tested": "Examples or tests fail without this change and pass with it, but something that “proved” requires is "
    "missing; see below.",
    "unproved": "Nothing that was run shows that this change works. Review it with care.",
    "broken": "At least one check failed. The change is shown as it is.",
}
LEGEND = details(
    "What the verdicts mean",
    "| Verdict | Meaning |\n| --- | --- |\n"
    "| Proved | A small program whose output was written down from the issue before the work, and that the agent did "
    "not see, prints something else on the base and exactly that with the change; so do all others, a reviewer's "
    "included. The suite has no new failures. |\n"
    "| Tested | An example or the agent's own test turns, but something that “proved” requires is missing; or, for "
    "tasks that should not change behaviour, the suite has no new failures. |\n"
    "| Unproved | Less evidence than that, and nothing contradicts the change. |\n"
    "| Broken | At least one check failed. |\n\n"
    "agent-fix computes the verdict from what it runs in its own sandbox. Nothing that a model says counts. The "
    "repository's CI is separate and reports under *Checks*; if it has not run, `/agent ci` starts it.",
)
_TESTED = {
    "own": "The tests that came with this change fail without it and pass with it; no hidden example proves it.",
    "suite": "This task changes no behaviour, and the test suite has no new failures.",
    "guards": "The new tests fail without the fix and pass with it.",
}
_ORIGIN = {
    "agent": "written by the agent",
    "asked": "written by the agent on request",
    "changed tests": "the tests that this change adds or changes",
    "issue": "taken from the issue",
}
_REDNESS: dict[FailureReason, str] = {
    "green": "🟢 passes",
    "red": "🔴 fails",
    "was_not_there": "⚪ could not start",
    "not_run": "not run",
}
_GATES = {"passed": "🟢 passed", "blocked": "🔴 blocked", "warned": "🟡 review", "not_run": "⚪ not run"}


def meaning(facts: Verification) -> str:
    """The verdict in a sentence."""
    found = facts.reproduction
    if facts.verdict == "unproved" and red_to_green(found):
        return "The reproduction fails without this change and passes with it, but that is not enough; see why below."
    if facts.verdict == "tested" and not facts.expects_red:
        return _TESTED["suite"]
    if facts.verdict == "tested" and found is not None and found.ids and red_to_green(found):
        return _TESTED["guards" if found.without else "own"]
    return MEANING[facts.verdict]


def red_to_green(found: Reproduction | None) -> bool:
    return found is not None and (found.on_base, found.on_head) == ("red", "green")


def verification_section(facts: Verification, base: str, head: str, caps: Caps) -> str:
    """What was run and found. The verdict itself is above it, once (`app.publish.pull_request_text.banner`)."""
    submissions = f"This is submission {facts.submission} of the job; all {facts.submission} were verified."
    return paragraphs(
        bullets(facts.reasons, caps),
        about_rest(facts.rest),
        example_table(facts, caps),
        about_review(facts),
        all_examples(facts, caps),
        _table(facts, base, head, caps),
        _origin(facts.reproduction, caps),
        submissions if facts.submission > 1 else "",
        *_tests(facts.suite, caps),
        *_tests_of_rest(facts.rest, caps),
        _not_run(facts, caps),
        _gates(facts.gates, caps),
        *_outputs(facts, caps),
        LEGEND,
    )


def bullets(items: Sequence[str], caps: Caps, *, numbered: bool = False) -> str:
    """A list of sentences, with a note if it was shortened."""
    shown = [text for item in items[: caps.items] if (text := inline(clip(item, caps.text)))]
    marked = [f"{number}. {text}" if numbered else f"- {text}" for number, text in enumerate(shown, 1)]
    return "\n".join([*marked, *_more(len(items), caps)])


def known_failures(suite: SuiteComparison | None) -> tuple[str, ...]:
    """Tests that fail on the base and the head, so not because of this change."""
    if suite is None or suite.base is None or suite.head is None:
        return ()
    still = set(suite.head.failing or ())
    return tuple(test for test in suite.base.failing or () if test in still)


def list_of_tests(tests: Sequence[str], caps: Caps) -> str:
    return "\n".join([*(f"- {code_span(clip(test, 200))}" for test in tests[: caps.items]), *_more(len(tests), caps)])


def _more(total: int, caps: Caps) -> list[str]:
    return [f"- and {total - caps.items:,} more"] if total > caps.items else []


def _table(facts: Verification, base: str, head: str, caps: Caps) -> str:
    rows = []
    if (shown := facts.reproduction) is not None:
        without = f"<br>base without {code_span(shown.without[:10])}" if shown.without else ""
        sides = [_reproduced(shown.base, shown.on_base) + without, _reproduced(shown.head, shown.on_head)]
        rows.append(["Reproduction", *sides, code_cell(clip(shown.command, caps.text))])
    if (suite := facts.suite) is not None and suite.command:
        known = known_failures(suite)
        sides = [_ran(suite.base, known), _ran(suite.head, known)]
        rows.append(["Test suite", *sides, code_cell(clip(suite.command, caps.text))])
        if suite.own_tests is not None:
            own, before = suite.own_tests, (suite.base.failing if suite.base else None) or ()
            rows.append(
                ["The change's own tests", "", _ran(own, before), code_cell(clip(own.execution.command, caps.text))]
            )
    if (rest := facts.rest) is not None and rest.parts:
        sides = [_counted(rest.base), _counted(rest.head, is_worse=any(_worse_in_rest(rest)))]
        what = f"{code_cell(clip(rest.command, caps.text))}<br>{count(rest.parts, 'part')}, {duration(rest.seconds)}"
        rows.append(["Remaining tests", *sides, what])
    if not rows:
        return ""
    # The command comes last, so that a narrow page cuts off a long command and not its result.
    return table(["", f"Base {code_span(base[:10])}", f"Head {code_span(head[:10])}", "Command"], rows)


def _counted(counted: TestCount, *, is_worse: bool = False) -> str:
    """One side of the remaining tests, which ran in parts and so have no exit code of their own."""
    icon = "🔴" if is_worse else "🟡" if counted.failed else "🟢"
    return f"{icon} {_numbers(counted)}"


def _numbers(counted: TestCount) -> str:
    numbers = [(counted.failed, "failed"), (counted.passed, "passed"), (counted.skipped, "skipped")]
    return ", ".join(f"{number:,} {name}" for number, name in numbers if number) or "no tests"


def _reproduced(execution: Execution | None, outcome: FailureReason) -> str:
    return _REDNESS["not_run"] if execution is None else f"{_REDNESS[outcome]}<br>{_ending(execution)}"


def _ran(result: SuiteResult | None, known: Sequence[str]) -> str:
    """Green, red, or yellow if all failures are known from the base."""
    if result is None:
        return _REDNESS["not_run"]
    execution, counted = result.execution, result.count
    tolerable = not execution.timed_out and bool(result.failing) and set(result.failing or ()) <= set(known)
    icon = "🟢" if execution.ok else "🟡" if tolerable else "🔴"
    ending = _numbers(counted) if counted is not None else "passes" if execution.ok else "fails"
    return f"{icon} {ending}<br>{_ending(execution)}"


def _ending(execution: Execution) -> str:
    if execution.timed_out:
        return f"stopped after {duration(execution.seconds)}"
    return f"exit code {execution.exit_code}, {duration(execution.seconds)}"


def _origin(found: Reproduction | None, caps: Caps) -> str:
    if found is None:
        return ""
    tests = f" Its tests were then run by their ids: {count(len(found.ids), 'test')}." if found.ids else ""
    sentences = [f"The reproduction is {_ORIGIN[found.origin]}.{tests}"]
    if found.without:
        sentences.append(
            f"The fix {code_span(found.without[:10])} is already in the base: this was run on the base with that fix "
            "reverted and its tests kept."
        )
    if found.on_base == "was_not_there":
        sentences.append(
            f"On {found.reference} it ends in an import, collection or syntax error, which does not prove the bug."
        )
    if found.note:
        sentences.append(inline(clip(found.note, caps.text)))
    return " ".join(sentences)


def _tests(suite: SuiteComparison | None, caps: Caps) -> Iterator[str]:
    if suite is None:
        return
    yield _titled_tests(suite.newly_failing, "newly failing", "🔴", caps)
    yield _titled_tests(suite.missing, "passed on the base and did not run on the head", "🔴", caps)
    yield _titled_tests(suite.fixed, "fixed", "🟢", caps)
    for one in suite.changed_tests[: caps.items]:
        why_changed = [f"{count(len(one.failing), 'test')} would fail without its change"] if one.failing else []
        why_changed += [f"{count(len(one.removed), 'test')} removed or renamed"] if one.removed else []
        reasons = ", ".join(why_changed) or "the suite would fail"
        what = "New tests that existing ones need" if one.added else "Existing tests changed"
        yield f"{what}: {code_span(clip(one.path, caps.text))} ({reasons})"
        yield details("The change to these tests", fenced(clip(one.diff, caps.output), "diff"))


def _titled_tests(tests: Sequence[str], what: str, icon: str, caps: Caps) -> str:
    return f"{icon} **{count(len(tests), 'test')} {what}:**\n\n{list_of_tests(tests, caps)}" if tests else ""


def about_rest(rest: RestOfSuite | None) -> str:
    """How far the remaining tests of a long suite are, in plain words; empty if there are none."""
    if rest is None:
        return ""
    files = f"{count(rest.files, 'test file')} further from the change"
    limit = f"{rest.minutes:g} min"
    if rest.state == "pending":
        return (
            f"⏳ **The remaining tests are still running:** {files}, on base and head, for at most {limit}. Until then"
            " the verdict rests on the tests nearest to the change; this text is written again when they have ended."
        )
    compared = f"{rest.compared:,} of {files} ran on the base and on the head"
    found = "; ".join(_worse_in_rest(rest)) or "nothing newly fails"
    ended = {
        "finished": f"{compared}, and {found}.",
        "out_of_time": f"They did not finish within their limit of {limit}: {compared}, and {found} in these.",
        "stopped": f"They did not finish. {inline(rest.reason)} Until then {compared}, and {found} in these.",
        "given_up": f"They did not finish. {inline(rest.reason)} Until then {compared}, and {found} in these.",
    }
    return f"**The remaining tests:** {ended[rest.state]} {inline(rest.worse)}".rstrip()


def _worse_in_rest(rest: RestOfSuite) -> Iterator[str]:
    if rest.newly_failing:
        yield "a test newly fails" if len(rest.newly_failing) == 1 else f"{len(rest.newly_failing):,} tests newly fail"
    if rest.worse:
        yield "the results are worse on the head"
    if rest.missing:
        yield f"{count(len(rest.missing), 'test')} that passed on the base did not run on the head"


def _tests_of_rest(rest: RestOfSuite | None, caps: Caps) -> Iterator[str]:
    if rest is not None:
        missing = "among the remaining tests passed on the base and did not run on the head"
        yield _titled_tests(rest.newly_failing, "newly failing among the remaining tests", "🔴", caps)
        yield _titled_tests(rest.missing, missing, "🔴", caps)
        yield bullets(rest.notes, caps)


def _not_run(facts: Verification, caps: Caps) -> str:
    """What a reader might expect to have been run, but was not."""
    sentences = []
    if facts.suite is None:
        sentences.append("The test suite: no result.")
    elif facts.suite.not_run:
        sentences.append(f"The test suite: {facts.suite.not_run}")
    for side, result in (("base", facts.suite and facts.suite.base), ("head", facts.suite and facts.suite.head)):
        if result and result.partial:
            sentences.append(f"Part of the suite on the {side}: {result.partial}")
    not_run = [gate for gate in facts.gates if gate.outcome == "not_run"]
    sentences += [f"The check “{gate.name}”: {'; '.join(gate.details) or 'no reason given'}" for gate in not_run]
    return f"**Not run:**\n\n{bullets(sentences, caps)}" if sentences else ""


def _gates(gates: Sequence[GateResult], caps: Caps) -> str:
    """Checks with findings in full, the others in one line."""
    rows = []
    for gate in gates:
        if gate.outcome in {"blocked", "warned"}:
            found = [cell(clip(detail, min(caps.text, 300))) for detail in gate.details[: caps.items]]
            if len(gate.details) > caps.items:
                found.append(f"and {len(gate.details) - caps.items:,} more")
            rows.append([cell(clip(gate.name, 60)), _GATES[gate.outcome], "<br>".join(found)])
    passed = [clip(": ".join((gate.name, *gate.details[:1])), 120) for gate in gates if gate.outcome == "passed"]
    return paragraphs(
        table(["Check", "Outcome", "Details"], rows) if rows else "",
        f"Checks passed: {inline(', '.join(passed))}." if passed else "",
    )


def _outputs(facts: Verification, caps: Caps) -> Iterator[str]:
    """Outputs of what failed; of what passed only if the verdict leaves it to the reader to judge them."""
    doubtful = facts.verdict in {"unproved", "broken"}
    found, suite = facts.reproduction, facts.suite
    executions = (
        ("Output of the reproduction on the base", found.base if found else None),
        ("Output of the reproduction on the head", found.head if found else None),
        ("Output of the test suite on the base", suite.base.execution if suite and suite.base else None),
        ("Output of the test suite on the head", suite.head.execution if suite and suite.head else None),
        ("Output of the newly failing tests, alone on the head", facts.rest.recheck if facts.rest else None),
    )
    for title, execution in executions:
        if execution is not None and execution.excerpt.strip() and (execution.exit_code or doubtful):
            text = execution.excerpt
            left_out = max(0, len(text) - caps.output)  # the end of an output says most
            note = f"The first {left_out:,} characters are left out." if left_out else ""
            shown = paragraphs(code_span(clip(execution.command, caps.text)), note, fenced(text[left_out:]))
            yield details(f"{title} (exit code {execution.exit_code})", shown)
