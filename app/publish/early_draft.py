"""Recognises drafts that were opened before there is a change, by their empty commit and their effects' keys."""

from typing import Final

from app.core.job import Job, JobState
from app.core.patch import Patch
from app.jobs.context import JobContext
from app.publish.effects import CommitRecipe, OpenEarlyDraft, UpdateDraftStatus, key_of
from app.publish.plaintext import harmless_line
from app.publish.pull_request_text import SKIP_CI
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
