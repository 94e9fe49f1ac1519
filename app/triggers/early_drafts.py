"""Maps a draft that was opened early to its running job, which belongs to an issue."""

from app.github.models import PullRequest
from app.jobs.job_queries import JobWithContext
from app.publish.early_draft import early_key
from app.triggers.event_facts import TriggerContext
from app.triggers.stores import Stores


def job_behind(
    pull: PullRequest | None, here: JobWithContext | None, bot_identity: int, stores: Stores
) -> JobWithContext | None:
    """The active job `here`, else the one that opened this draft early, else the last job here. Blocking."""
    if (
        pull is None
        or pull.author != bot_identity
        or pull.head_repository is None
        or (here is not None and not here.row.final)
    ):
        return here
    for each in stores.job_queries.active_jobs(repository=pull.head_repository):
        draft = stores.outbox.status(early_key(each.job.id)) if each.job_context.opens_early else None
        if draft is not None and draft.receipt is not None and draft.receipt.branch == pull.head_branch:
            return each
    return here


def issue_behind(trigger_context: TriggerContext) -> int:
    """The issue whose active job opened this draft early; 0 if there is none."""
    job = trigger_context.found.job
    if job is None or job.row.final or job.job_context.issue_ref.number == trigger_context.number:
        return 0
    return job.job_context.issue_ref.number
