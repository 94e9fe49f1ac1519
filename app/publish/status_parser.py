"""Reads a status comment back: the state, the job, and the workflow run that worked on it."""

import re
from dataclasses import dataclass
from typing import Final

from app.core.job import JOB_ID, JobState
from app.github.comments import MARKED
from app.publish.plan_comment import read_plan
from app.publish.status_text import HEADLINES, PLANNED, QUESTIONS

_FORMER_APPROVAL, _FORMER_PLAN = "✋ A plan waits for your approval", "🧭 A plan, for you to approve"
_FORMER: Final[dict[str, JobState]] = {
    "⏳ Waiting for its turn": "queued",
    _FORMER_APPROVAL: "awaiting_approval",
    "❓ A question first": "needs_input",
    "❓ Questions first": "needs_input",
    "💸 A limit was reached": "limit_reached",
    "💥 It did not work out": "error",
    "💥 Job failed": "error",
    _FORMER_PLAN: "answered",
}
"""Headlines of comments that earlier versions posted."""
_STATES: Final[dict[str, JobState]] = {
    **_FORMER,
    **{headline: state for state, headline in HEADLINES.items()},
    QUESTIONS: "needs_input",
    PLANNED: "answered",
}
_WITH_PLAN: Final = frozenset({_FORMER_APPROVAL, _FORMER_PLAN, HEADLINES["awaiting_approval"], PLANNED})
"""Other comments may quote what only looks like a plan: an answer, a diff."""
_RUN = re.compile(r"\]\(\S+/actions/runs/([0-9]{1,18})\)")


@dataclass(frozen=True, slots=True)
class StatusCommentState:
    """`plan` is the editable plan it shows, `run` the number of the workflow run."""

    job: str
    state: JobState
    plan: str = ""
    run: int = 0


def read_status(comment: str) -> StatusCommentState | None:
    """None if the text is not a job's status comment, whoever wrote it."""
    text = comment.replace("\r\n", "\n").strip()
    mark = MARKED.search(text)
    first, _, rest = text.partition("\n")
    headline = first.removeprefix("### ").strip()
    state = _STATES.get(headline)
    if mark is None or state is None or not JOB_ID.fullmatch(mark["key"]):
        return None
    runs = _RUN.findall(rest.rpartition("\n<sub>")[2])  # the footer; above it may be what others wrote
    plan = read_plan(rest) if headline in _WITH_PLAN else None
    return StatusCommentState(mark["key"], state, plan or "", int(runs[-1]) if runs else 0)
