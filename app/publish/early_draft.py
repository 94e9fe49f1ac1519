"""Drafts that are opened before there is a change: their empty commit, their text and their status."""

from collections.abc import Iterator
from typing import Final

from app.core.job import FINAL, Job, JobState
from app.core.patch import Patch
from app.core.text import clip
from app.jobs.context import JobContext
from app.jobs.store import JobQueries, JobWithContext
from app.publish.body_edits import marked_state
from app.publish.effects import (
    MAX_BODY,
    CommitRecipe,
    Effect,
    OpenEarlyDraft,
    UpdateDraftStatus,
    key_of,
)
from app.publish.markdown import harmless_line, inline, paragraphs
from app.publish.outbox import EffectStatus
from app.publish.pull_request_text import SKIP_CI, opening_line, pull_request_title
from app.publish.status_text import HEADLINES, StatusView, plan_steps, plan_summary
from app.publish.verification_text import Caps, bullets
from app.repo.git_store import GitStore

AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""There is a plan, and people have approved it if they had to."""
MAX_FORMER: Final = 5
"""Earlier jobs of the same issue whose drafts may still be open."""


def early_recipe(job: Job, job_context: JobContext) -> CommitRecipe:
    """The recipe of the empty commit. It never starts CI, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"There is no change yet: this draft was opened early for job {job.id}, and its change replaces this commit."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return CommitRecipe(patch="", message=message, author=job_context.author, date=job.created_at)


def early_commits(store: GitStore, job_queries: JobQueries, where: JobWithContext) -> tuple[str, ...]:
    """The ids of the empty commits of this job and of earlier ones for its issue, this job's first; made if missing.

    Computed instead of read, so that nobody can add one: the same on any machine, different for every job. Blocking.
    """
    if where.job_context.publish_target != "new_branch":
        return ()
    issue_ref = where.job_context.issue_ref
    former = job_queries.of_issue(issue_ref.repository, issue_ref.number, MAX_FORMER)
    commits = []
    for each in (where, *(each for each in former if each.job.id != where.job.id and each.row.final)):
        base = each.job.task.base
        if each.job_context.opens_early and store.keeps(base):
            recipe = early_recipe(each.job, each.job_context)
            commit = store.commit(Patch(base=base), message=recipe.message, author=recipe.author, date=recipe.date)
            commits.append(commit)
    return tuple(commits)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def status_key(job: str) -> str:
    return key_of(job, UpdateDraftStatus(section=""))


_UNTOLD: Final[frozenset[JobState]] = frozenset({"publishing", "pr_opened", "no_access"})
"""States in which the verified text is written or on its way, or nothing can be written."""
_LEVELS = (Caps(0, 30, 2_000), Caps(0, 12, 400), Caps(0, 3, 120))
"""Detail levels, each shorter than the one before, for a plan that would be too long."""
_WHAT_NOW: Final[dict[JobState, str]] = {
    "paused": "`/agent continue` resumes the job, `/agent stop` stops it.",
    "no_change": "The draft is closed.",
}
_AT_WORK_TEXT = (
    "**Not verified yet.** The agent is working, and the branch holds an empty commit. "
    "A verified change will replace that commit and this text."
)


def early_draft_effects(view: StatusView, draft: EffectStatus | None, *, posted: bool) -> Iterator[Effect]:
    """The draft, once; later its status, if the draft's job has `posted` one before or has ended."""
    job, over = view.job, view.state in FINAL or view.state == "paused"
    if draft is None and view.state in AT_WORK:
        bodies = (_body(view, caps) for caps in _LEVELS)
        yield OpenEarlyDraft(
            branch=job.branch,
            base=view.job_context.base_ref,
            title=pull_request_title(job.task, view.job_context.config),
            body=next(body for body in bodies if len(body) <= MAX_BODY),
        )
    elif draft is not None and view.state not in _UNTOLD and (posted or over):
        section = _alert("IMPORTANT", _AT_WORK_TEXT)
        if over:
            what_now = _WHAT_NOW.get(view.state, "`/agent retry` on the issue starts again, in this draft.")
            headline = f"**{HEADLINES[view.state]}.** Nothing here was verified."
            section = _alert("WARNING", headline, inline(clip(view.reason, 400)), what_now)
        yield UpdateDraftStatus(section=section, close=view.state == "no_change")


def _body(view: StatusView, caps: Caps) -> str:
    number, summary = view.job.task.issue.number, plan_summary(view.plan, view.planned)
    where = f" · progress in #{number}" if number is not None else ""
    text = paragraphs(
        opening_line(view.job.task),
        marked_state(_alert("IMPORTANT", _AT_WORK_TEXT)),
        f"## Plan\n\n{inline(clip(summary, caps.text))}" if summary else "",
        bullets(plan_steps(view.plan, view.planned), caps, numbered=True) if summary else "",
        f"---\n\n<sub>agent-fix · job `{view.job.id}`{where}</sub>",
    )
    return text + "\n"


def _alert(kind: str, *lines: str) -> str:
    return "\n>\n".join([f"> [!{kind}]\n> {lines[0]}", *(f"> {line}" for line in lines[1:] if line)])
