"""Renders the verdict on somebody's change as Markdown: the comment on a pull request, and a file of the command line.

At most one screen: verdict, what we took to be meant, program · before · after, what speaks against it; the rest is
folded.
"""

from collections.abc import Iterator
from typing import Final

from app.core.examples import JudgedExample
from app.core.text import clip
from app.publish.markdown import cell, code_cell, details, inline, paragraphs, table
from app.publish.pull_request_text import PullRequestContent, banner, shortened
from app.publish.result_view import ResultView, printed_text, view_of
from app.publish.verification_text import MARKS, Caps, verification_section

MAX_ROWS: Final = 3
MAX_FINDINGS: Final = 5


def change_verdict(facts: PullRequestContent, caps: Caps | None) -> str:
    """With all that was run, folded, unless `caps` is None."""
    view = view_of(facts.verification)
    whole = verification_section(facts.verification, facts.task.base, facts.result.commit, caps) if caps else ""
    return paragraphs(
        banner(facts),
        _intent(facts),
        _before_and_after(view),
        "\n".join(_against(view)),
        f"**Not run:** {inline(shortened(' '.join(view.not_run), 30, 1))}" if view.not_run else "",
        details("What was run", whole) if whole else "",
    )


def _intent(facts: PullRequestContent) -> str:
    meant = shortened(facts.result.summary, 60, 3).strip()
    return f"**Is this what you meant?** {inline(meant)}" if meant else ""


def _before_and_after(view: ResultView) -> str:
    rows = [
        [_program(one), code_cell(clip(printed_text(one.base), 120)), _after(one)] for one in view.examples[:MAX_ROWS]
    ]
    return table(["Program", "Before", "After"], rows) if rows else ""


def _program(one: JudgedExample) -> str:
    program = one.program.strip()
    is_short = len(program) <= 160 and program.count("\n") < 6
    return "<br>".join(filter(None, (cell(clip(one.behaviour, 160)), code_cell(program) if is_short else "")))


def _after(one: JudgedExample) -> str:
    """What it prints on the change; if that is something else, also what was expected."""
    wrong = next((run for run in one.change if not run.printed(one)), None)
    printed = code_cell(clip(printed_text((wrong,) if wrong else one.change), 120))
    if wrong is None:
        return f"{printed} ✓" if one.change else printed
    mark = "expected, if it is wanted," if one.is_question else "expected"
    return f"{printed}<br>{mark} {code_cell(clip(one.stdout.rstrip(), 120))}"


def _against(view: ResultView) -> Iterator[str]:
    """What speaks against the change, or needs a look."""
    found = [each for each in view.findings if each.mark == "bad"]
    found += [each for each in view.findings if each.mark == "known"]
    for each in found[:MAX_FINDINGS]:
        named = f": {', '.join(each.tests[:3])}" if each.tests else ""
        yield f"- {MARKS[each.mark]} {inline(clip(f'{each.text}{named}', 240))}"
    if (more := len(found) - MAX_FINDINGS) > 0:
        yield f"- and {more:,} more below"
