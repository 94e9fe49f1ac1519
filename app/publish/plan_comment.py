"""Writes the editable plan into a comment between hidden markers, and reads the edited plan back."""

import re
from typing import Final

from app.core.plan import Plan
from app.core.plan_text import render_plan_file
from app.core.text import clip
from app.publish.evidence import Caps
from app.publish.markdown import fenced, inline
from app.publish.verification_text import bullets

_MARKS = ("<!-- agent-fix:plan -->", "<!-- /agent-fix:plan -->")
_EMPTY_FIELD = re.compile(r"(?m)^(?:#.*|\w+: (?:\[\]|''))\n")
MAX_PLAN: Final = 5_500
"""Characters of an editable plan; a longer one can only be approved as it is."""


def plan_summary(plan: Plan | None, logged: str) -> str:
    """`logged` is the plan from the job's log (`app.core.plan_text.render_plan`), for jobs without a result."""
    return plan.summary if plan else logged.partition("\n\n")[0]


def plan_steps(plan: Plan | None, logged: str) -> tuple[str, ...]:
    if plan is not None:
        return plan.steps
    block = next((part for part in logged.split("\n\n") if part.startswith("Steps:\n")), "")
    return tuple(line.removeprefix("- ") for line in block.split("\n")[1:])


def can_be_edited(plan: Plan | None) -> bool:
    return 0 < len(_text(plan)) <= MAX_PLAN


def editable(plan: Plan | None, logged: str, caps: Caps) -> str:
    """The plan for `/agent approve` to read back; a plan that is too long is only shown."""
    if not can_be_edited(plan):
        steps = bullets(plan_steps(plan, logged), caps, numbered=True)
        return "\n\n".join(part for part in (inline(clip(plan_summary(plan, logged), caps.text)), steps) if part)
    begin, end = _MARKS
    return f"{begin}\n{fenced(_text(plan), 'yaml')}\n{end}"


def read_plan(comment: str) -> str | None:
    """The plan in a status comment, as people edited it; None if there is none."""
    text = comment.replace("\r\n", "\n")
    begin, end = _MARKS
    _, mark, below = text.partition(begin)
    if not mark:
        return None
    block = re.match(r"\s*(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<plan>.*?)\n(?P=fence)[ \t]*(?:\n|$)", below, re.DOTALL)
    plan = block["plan"] if block else below.partition(end)[0]
    return plan.strip("\n") or None


def _text(plan: Plan | None) -> str:
    return _EMPTY_FIELD.sub("", render_plan_file(plan)) if plan else ""
