"""A draft that is opened before there is a change: its empty commit, by which it is known, and its wishes' keys."""

from typing import Final

from app.core.job import Job, JobState
from app.core.patch import Patch
from app.jobs.context import JobContext
from app.publish.effects import CommitRecipe, OpenEarlyDraft, UpdateDraftStatus, key_of
from app.publish.plaintext import harmless_line
from app.publish.pull_request_text import SKIP_CI
from app.repo.git_store import GitStore

AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""The plan stands, and people have agreed to it where they are asked."""


def early_recipe(job: Job, job_context: JobContext) -> CommitRecipe:
    """Of the empty commit. CI has nothing to see in it, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"Nothing is here yet: the draft was opened early for job {job.id}, and its change takes this commit's place."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return CommitRecipe(patch="", message=message, author=job_context.author, date=job.created_at)


def early_commit(store: GitStore, job: Job, job_context: JobContext) -> str:
    """The empty commit's id, made again if need be; the same on any machine, and no other job's. Blocking."""
    recipe, nothing = early_recipe(job, job_context), Patch(base=job.task.base)
    return store.commit(nothing, message=recipe.message, author=recipe.author, date=recipe.date)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def status_key(job: str) -> str:
    return key_of(job, UpdateDraftStatus(section=""))
