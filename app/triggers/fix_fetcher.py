"""Finds the fix that tests are wanted for in the base's history, and fetches it with its parent."""

import asyncio

from app.github.branches import BranchesApi
from app.github.errors import NeedsHumanAction, NoAccess
from app.jobs.job_queries import JobWithContext
from app.repo.fix_commits import mentioned_fix
from app.triggers.stores import Stores


class FixFetcher:
    """Prepares jobs that write tests. Best effort: without the fix, their tests are tested, not proved."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def fetch(self, each: JobWithContext, branches: BranchesApi) -> None:
        """Record the fix that people mention in the job, once its files are here; the history already is."""
        job = each.job
        if job.kind != "tests" or job.task.fixed_by:
            return
        text = "\n".join((job.task.request, job.task.issue.title, job.task.issue.body))
        fix = await asyncio.to_thread(mentioned_fix, branches.store.history.path, job.task.base, text)
        if not fix:
            return
        try:
            await branches.fetch(fix)
            for before in (await asyncio.to_thread(branches.store.parents, fix))[:1]:
                await branches.fetch(before)
        except (NeedsHumanAction, NoAccess) as error:
            await asyncio.to_thread(
                self._stores.store.add_progress, job.id, "note", f"The fix {fix[:10]}: {error.message}"
            )
            return
        task = job.task.model_copy(update={"fixed_by": fix})
        await asyncio.to_thread(self._stores.store.replace, job.model_copy(update={"task": task}))
