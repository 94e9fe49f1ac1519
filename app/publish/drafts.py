"""Finds the drafts that were opened early, with their status and their own commits."""

import asyncio
from datetime import datetime, timedelta

from app.github.errors import RateLimited
from app.jobs.job_queries import JobQueries, JobWithContext
from app.publish.early_draft import early_commit, early_key, early_recipe
from app.publish.effects import OpenDraftPullRequest, OpenEarlyDraft, UpdateDraftStatus
from app.publish.outbox import EffectStatus, Outbox
from app.publish.policy_rules import PublishRefused
from app.repo.git_store import GitStore

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
