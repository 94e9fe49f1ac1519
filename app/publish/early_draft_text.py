"""The text of a draft that was opened early: the plan, its state, and that nothing is verified yet."""

from collections.abc import Iterator
from typing import Final

from app.core.job import FINAL, JobState
from app.publish.early_draft import AT_WORK
from app.publish.effects import MAX_BODY, Effect, OpenEarlyDraft, UpdateDraftStatus
from app.publish.evidence import Caps, clip
from app.publish.follow_up import marked_state
from app.publish.markdown import inline
from app.publish.outbox import EffectStatus
from app.publish.plan_comment import plan_steps, plan_summary
from app.publish.pull_request_text import opening_line, pull_request_title
from app.publish.status_text import HEADLINES, StatusView
from app.publish.verification_text import bullets

_UNTOLD: Final[frozenset[JobState]] = frozenset({"publishing", "pr_opened", "no_access"})
"""States in which the verified text is written or on its way, or nothing can be written."""
_LEVELS = (Caps(0, 30, 2_000), Caps(0, 12, 400), Caps(0, 3, 120))
"""Detail levels, each shorter than the one before, for a plan that would be too long."""
_AT_WORK_TEXT = (
    "**Not verified yet.** The agent is working, and the branch holds an empty commit. "
    "A verified change will replace that commit and this text."
)


def early_draft_effects(view: StatusView, draft: EffectStatus | None, *, posted: bool) -> Iterator[Effect]:
    """The draft, once; later its status if it differs. `told` is the state that was shown before."""
    if draft is None:
        if view.state in AT_WORK:
            yield _draft(view)
    elif view.state not in _UNTOLD and (posted or view.state in FINAL or view.state == "paused"):
        yield UpdateDraftStatus(section=_section(view), close=view.state == "no_change")


def _draft(view: StatusView) -> OpenEarlyDraft:
    job, job_context = view.job, view.job_context
    bodies = ("\n\n".join(part for part in _body(view, caps) if part) + "\n" for caps in _LEVELS)
    return OpenEarlyDraft(
        branch=job.branch,
        base=job_context.base_ref,
        title=pull_request_title(job.task, job_context.config),
        body=next(body for body in bodies if len(body) <= MAX_BODY),
    )


def _body(view: StatusView, caps: Caps) -> Iterator[str]:
    yield opening_line(view.job.task)
    yield marked_state(_alert("IMPORTANT", _AT_WORK_TEXT))
    if summary := plan_summary(view.plan, view.planned):
        yield f"## Plan\n\n{inline(clip(summary, caps.text))}"
        yield bullets(plan_steps(view.plan, view.planned), caps, numbered=True)
    number = view.job.task.issue.number
    where = f" · progress in #{number}" if number is not None else ""
    yield f"---\n\n<sub>agent-fix · job `{view.job.id}`{where}</sub>"


def _section(view: StatusView) -> str:
    if view.state not in FINAL and view.state != "paused":
        return _alert("IMPORTANT", _AT_WORK_TEXT)
    reason = inline(clip(view.reason, 400))
    what_now = _WHAT_NOW.get(view.state, "`/agent retry` on the issue starts again, in this draft.")
    lines = (f"**{HEADLINES[view.state]}.** Nothing here was verified.", reason, what_now)
    return _alert("WARNING", *(line for line in lines if line))


_WHAT_NOW: Final[dict[JobState, str]] = {
    "paused": "`/agent continue` resumes the job, `/agent stop` stops it.",
    "no_change": "The draft is closed.",
}


def _alert(kind: str, *lines: str) -> str:
    return "\n>\n".join([f"> [!{kind}]\n> {lines[0]}", *(f"> {line}" for line in lines[1:])])
