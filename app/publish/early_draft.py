"""Drafts that are opened before there is a change: their empty commit, their text and their status."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from app.core.job import FINAL, Job, JobState
from app.core.patch import Patch
from app.core.text import clip
from app.github.errors import RateLimited
from app.jobs.context import JobContext
from app.jobs.job_queries import JobQueries, JobWithContext
from app.publish.body_edits import marked_state
from app.publish.effects import (
    MAX_BODY,
    CommitRecipe,
    Effect,
    OpenDraftPullRequest,
    OpenEarlyDraft,
    UpdateDraftStatus,
    key_of,
)
from app.publish.markdown import harmless_line, inline
from app.publish.outbox import EffectStatus, Outbox
from app.publish.policy_rules import PublishRefused
from app.publish.pull_request_text import SKIP_CI, opening_line, pull_request_title
from app.publish.status_text import HEADLINES, StatusView, plan_steps, plan_summary
from app.publish.verification_text import Caps, bullets
from app.repo.git_store import GitStore

AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""There is a plan, and people have approved it if they had to."""


def early_recipe(job: Job, job_context: JobContext) -> CommitRecipe:
    """The recipe of the empty commit. It never starts CI, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"There is no change yet: this draft was opened early for job {job.id}, and its change replaces this commit."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return CommitRecipe(patch="", message=message, author=job_context.author, date=job.created_at)


def early_commit(store: GitStore, job: Job, job_context: JobContext) -> str:
    """The empty commit's id, the same on any machine and different for every job; made if missing. Blocking."""
    recipe, nothing = early_recipe(job, job_context), Patch(base=job.task.base)
    return store.commit(nothing, message=recipe.message, author=recipe.author, date=recipe.date)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def status_key(job: str) -> str:
    return key_of(job, UpdateDraftStatus(section=""))


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


NOT_YET = timedelta(seconds=2)
MAX_FORMER = 5
"""Earlier jobs of the same issue whose drafts may still be open."""


def is_early_effect(where: JobWithContext, requested: OpenEarlyDraft) -> OpenDraftPullRequest:
    """The effect of opening the early draft, without its commit."""
    words = requested.model_dump(exclude={"kind"})
    return OpenDraftPullRequest(**words, commit="", recipe=early_recipe(where.job, where.job_context))


class EarlyDrafts:
    """Resolves early drafts. Opening one must end before anything else happens to it; until then the publisher
    waits."""

    def __init__(self, job_queries: JobQueries, outbox: Outbox) -> None:
        self._job_queries = job_queries
        self._outbox = outbox

    async def resolve(self, job: str, now: datetime) -> EffectStatus | None:
        """The status of a job's early draft; None if none was requested."""
        status = await asyncio.to_thread(self._outbox.status, early_key(job))
        if status is not None and status.state in {"wanted", "claimed"}:
            raise RateLimited("The draft is still being opened.", until=now + NOT_YET)
        return status

    async def opened(
        self, where: JobWithContext, requested: OpenDraftPullRequest, store: GitStore
    ) -> OpenDraftPullRequest:
        """The draft with its commit, which is made here from the job alone."""
        commit, *former = await asyncio.to_thread(self._commits, where, store)
        return requested.model_copy(update={"commit": commit, "replaces": tuple(former)})

    async def placed(
        self, where: JobWithContext, requested: OpenDraftPullRequest, draft: EffectStatus | None, store: GitStore
    ) -> OpenDraftPullRequest:
        """The verified change as a replacement for the empty commit."""
        commits = await asyncio.to_thread(self._commits, where, store)
        branch = draft.receipt.branch if draft is not None and draft.receipt is not None else ""
        return requested.model_copy(update={"replaces": commits, "draft": branch})

    async def status_update(
        self, where: JobWithContext, requested: UpdateDraftStatus, draft: EffectStatus | None, store: GitStore
    ) -> UpdateDraftStatus:
        """The effect with the draft's branch and commit. Raises PublishRefused if no draft was opened."""
        if draft is None or not where.job_context.opens_early:
            raise PublishRefused("No draft was opened early.")
        commit, *_ = await asyncio.to_thread(self._commits, where, store)
        branch = draft.receipt.branch if draft.receipt is not None else where.job.branch
        close = requested.close or (draft.receipt is None and where.row.final)
        return requested.model_copy(update={"branch": branch, "commit": commit, "close": close})

    def _commits(self, where: JobWithContext, store: GitStore) -> tuple[str, ...]:
        """Empty commits of this job and of earlier ones for its issue; computed instead of read, so nobody can add
        one."""
        if where.job_context.publish_target != "new_branch":
            return ()
        issue_ref = where.job_context.issue_ref
        former = self._job_queries.of_issue(issue_ref.repository, issue_ref.number, MAX_FORMER)
        here = [where, *(each for each in former if each.job.id != where.job.id and each.row.final)]
        return tuple(
            early_commit(store, each.job, each.job_context)
            for each in here
            if each.job_context.opens_early and store.keeps(each.job.task.base)
        )
