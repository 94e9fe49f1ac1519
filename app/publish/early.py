"""A draft that is opened before there is a change: its empty commit, by which it is known, and its wishes' keys."""

from typing import Final

from app.commission import Commission
from app.gitstore import GitStore
from app.job import Job, JobState
from app.patch import Patch
from app.publish.comments import SKIP_CI
from app.publish.intent import OpenEarlyDraft, Recipe, TellDraft, key_of
from app.publish.plaintext import harmless_line

AT_WORK: Final[frozenset[JobState]] = frozenset({"working", "verifying"})
"""The plan stands, and people have agreed to it where they are asked."""


def early_recipe(job: Job, commission: Commission) -> Recipe:
    """Of the empty commit. CI has nothing to see in it, whatever the configuration says."""
    subject = f"Begin: {harmless_line(job.task.issue.title, 60)}"
    why = f"Nothing is here yet: the draft was opened early for job {job.id}, and its change takes this commit's place."
    message = f"{subject}\n\n{why}\n\n{SKIP_CI}\n"
    return Recipe(patch="", message=message, author=commission.author, date=job.created_at)


def early_commit(store: GitStore, job: Job, commission: Commission) -> str:
    """The empty commit's id, made again if need be; the same on any machine, and no other job's. Blocking."""
    recipe, nothing = early_recipe(job, commission), Patch(base=job.task.base)
    return store.commit(nothing, message=recipe.message, author=recipe.author, date=recipe.date)


def early_key(job: str) -> str:
    return key_of(job, OpenEarlyDraft(branch="", base="", title="", body=""))


def telling_key(job: str) -> str:
    return key_of(job, TellDraft(section=""))
