"""Renders what was run and found as Markdown: for the check run, the Action's summary and the folded part of a body."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from app.core.examples import JudgedExample, PlanExamples
from app.core.job import JobResult
from app.core.text import clip, count
from app.core.verification import Verification
from app.publish.markdown import cell, code_cell, code_span, details, fenced, inline, paragraphs, table
from app.publish.result_view import Finding, Mark, Ran, ResultView, RunSide, about_rest, printed_text, view_of

MARKS: Final[dict[Mark, str]] = {"good": "🟢", "known": "🟡", "bad": "🔴", "none": "⚪"}


class Caps(NamedTuple):
    """Limits of the long parts: characters of an output, items of a list, characters of a text."""

    output: int
    items: int
    text: int


_EXAMPLES_SHARE: Final = 8
"""How often the space of an output fits into that of all examples."""
LEGEND: Final = details(
    "What the verdicts mean",
    "- **Proved:** a small program whose output was written down from the issue before the work, and that the agent "
    "did not see, prints something else on the base and exactly that with the change; so do all others, a reviewer's "
    "included; the suite has no new failures.\n"
    "- **Tested:** an example or the agent's own test turns, but something that “proved” requires is missing; or the "
    "task changes no behaviour, and the suite has no new failures.\n"
    "- **Unproved:** less evidence than that, and nothing contradicts the change.\n"
    "- **Broken:** at least one check failed.\n\n"
    "agent-fix computes the verdict from what it runs in its own sandbox; nothing that a model says counts. No verdict "
    "can tell whether the examples match what the issue's author meant. The repository's CI is separate: `/agent ci` "
    "starts it.",
)


def verification_section(facts: Verification, base: str, change: str, caps: Caps) -> str:
    """What was run and found. The verdict itself is above it, once (`app.publish.pull_request_text.banner`)."""
    view = view_of(facts)
    submissions = f"This is submission {facts.submission} of the job; all {facts.submission} were verified."
    return paragraphs(
        bullets(view.reasons, caps),
        inline(about_rest(facts.rest)),
        ran_table(view.ran, base, change, caps),
        _examples(view, caps, of_others=facts.of_others),
        *_findings(view.findings, caps),
        not_run(view, caps),
        submissions if facts.submission > 1 else "",
        f"Checks passed: {inline(', '.join(view.passed))}." if view.passed else "",
        *_outputs(view, facts, caps),
        "" if facts.of_others else LEGEND,
    )


def bullets(items: Sequence[str], caps: Caps, *, numbered: bool = False) -> str:
    """A list of sentences, with a note if it was shortened."""
    shown = [text for item in items[: caps.items] if (text := inline(clip(item, caps.text)))]
    marked = [f"{number}. {text}" if numbered else f"- {text}" for number, text in enumerate(shown, 1)]
    return "\n".join([*marked, *_more(len(items), caps)])


def _more(total: int, caps: Caps) -> list[str]:
    return [f"- and {total - caps.items:,} more"] if total > caps.items else []


def ran_table(ran: Sequence[Ran], base: str, change: str, caps: Caps) -> str:
    if not ran:
        return ""
    rows = [
        [cell(each.name), _side(each.base), _side(each.change), code_cell(clip(each.command, min(caps.text, 200)))]
        for each in ran
    ]
    # The command comes last, so that a narrow page cuts off a long command and not its result.
    return table(["", f"Base {code_span(base[:10])}", f"Change {code_span(change[:10])}", "Command"], rows)


def _side(side: RunSide) -> str:
    if not side.text:
        return ""
    return f"{MARKS[side.mark]} {side.text}{f'<br>{side.ending}' if side.ending else ''}"


def _examples(view: ResultView, caps: Caps, *, of_others: bool) -> str:
    """The most telling examples, whole, to be run again as copied: as many as there is space for."""
    if not view.examples or not caps.output:
        return ""
    holding = sum(one.holds for one in view.examples)
    texts = [_whole(one, caps, of_others=of_others) for one in view.examples]
    ends = accumulate(len(text) for text in texts)
    fitting = max(1, sum(end <= caps.output * _EXAMPLES_SHARE for end in ends))
    more = f"and {count(len(texts) - fitting, 'more example')}." if fitting < len(texts) else ""
    return details(f"{holding} of {count(len(texts), 'example')} hold", paragraphs(*texts[:fitting], more))


def _whole(one: JudgedExample, caps: Caps, *, of_others: bool) -> str:
    state = "🔴" if one.fails else "🟢" if one.holds else "⚪"
    origin = {"reviewer": "a reviewer's", "person": "written by a person", "plan": ""}[one.origin]
    who = (
        origin
        or ("written without seeing the change" if of_others else "")
        or ("hidden from the agent" if one.hidden else "the agent saw it")
    )
    because = f"Because {inline(one.because.source)} says: {inline(clip(one.because.quote, 300))}" if one.quoted else ""
    before, after = (code_span(clip(printed_text(runs), 200)) for runs in (one.base, one.change))
    ran = f"Before: {before} · After: {after}" if one.change else f"Today: {before}"
    return paragraphs(
        f"{state} **{inline(one.name)}.** {inline(clip(one.behaviour, caps.text))} ({who}; {code_span(one.run)})",
        because,
        fenced(one.whole_program),
        f"Expected:\n\n{fenced(clip(one.stdout.rstrip(), caps.output))}",
        ran,
    )


def reproduction(result: JobResult, caps: Caps, plan: str = "") -> Iterator[str]:
    """What a job shows that changed nothing: the smallest program, what works already, or what was tried.

    `plan` has all examples for people to edit; else they are listed.
    """
    found, questions = result.examples or PlanExamples(), result.plan.questions if result.plan else ()
    shown, most = found.best, caps.text * 4
    if result.exit_status == "already_works":
        for one in found.already[:1]:
            yield f"This program\n\n{fenced(clip(one.whole_program, most))}"
            yield f"prints today\n\n{fenced(clip(one.stdout, most))}"
        return
    if shown is None:
        numbered = bullets(questions, caps, numbered=len(questions) > 1)
        lists = {"Tried": bullets(found.why_not_shown, caps), "Missing": numbered}
        yield from (f"**{title}:**\n\n{text}" for title, text in lists.items() if text)
        return
    yield f"**{inline(clip(shown.behaviour, caps.text))}** This program ({code_span(shown.run)})"
    yield fenced(clip(shown.whole_program, most))
    yield f"prints today\n\n{fenced(clip(printed_text(shown.base), most))}"
    code = f" and exit with {shown.exit}" if shown.exit else ""
    yield f"and should print{code}\n\n{fenced(clip(shown.stdout.rstrip(), most))}"
    source = "the issue" if shown.because.source == "issue" else code_span(clip(shown.because.source, 60))
    quote = f"because {source} says: {inline(clip(shown.because.quote, caps.text))}"
    yield quote if shown.quoted else "as the model reads the issue: no words that say so were found."
    others = [_whole(one, caps, of_others=False) for one in found.examples if one is not shown] if caps.output else []
    if plan or others:
        title = count(len(found.examples), "example") if plan else count(len(others), "more example")
        yield details(title, plan or "\n\n".join(others))


def _findings(findings: Sequence[Finding], caps: Caps) -> Iterator[str]:
    for found in findings[: max(caps.items, 3)]:
        sentence = f"{MARKS[found.mark]} {inline(clip(found.text, caps.text))}"
        tests = [f"- {code_span(clip(test, 200))}" for test in found.tests[: caps.items]]
        listed = "\n".join([*tests, *_more(len(found.tests), caps)]) if found.tests else ""
        yield paragraphs(sentence, listed)
        if found.diff and caps.output:
            yield details("The change to these tests", fenced(clip(found.diff, caps.output), "diff"))
    if (more := len(findings) - max(caps.items, 3)) > 0:
        yield f"and {more:,} more findings."


def not_run(view: ResultView, caps: Caps) -> str:
    return f"**Not run:**\n\n{bullets(view.not_run, caps)}" if view.not_run else ""


def _outputs(view: ResultView, facts: Verification, caps: Caps) -> Iterator[str]:
    """Outputs of what failed; of what passed only if the verdict leaves it to the reader to judge them."""
    if not caps.output:
        return
    sides = [(f"{each.name}, {where}", side.execution) for each in view.ran for where, side in _sides(each)]
    suite, rest = facts.suite, facts.rest
    again = (suite.recheck if suite else None) or (rest.recheck if rest else None)
    sides += [("Newly failing tests, alone with the change", again)]
    for title, execution in sides:
        doubtful = facts.verdict in {"unproved", "broken"}
        if execution is not None and execution.excerpt.strip() and (execution.exit_code or doubtful):
            text = execution.excerpt
            left_out = max(0, len(text) - caps.output)  # the end of an output says most
            note = f"The first {left_out:,} characters are left out." if left_out else ""
            body = paragraphs(code_span(clip(execution.command, caps.text)), note, fenced(text[left_out:]))
            yield details(f"Output: {title} (exit code {execution.exit_code})", body)


def _sides(ran: Ran) -> tuple[tuple[str, RunSide], tuple[str, RunSide]]:
    return ("on the base", ran.base), ("with the change", ran.change)
