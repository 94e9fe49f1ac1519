"""The fix that tests are wanted for: found in the past of the base, and brought with what was before it."""

import asyncio

from app.fixes import told_fix
from app.forge.errors import NeedsHuman, NoAccess
from app.forge.github.branches import Branches
from app.jobs.roster import Commissioned
from app.reception.books import Books


class Fixes:
    """What stock does for jobs that are to write tests. Best effort: without it their tests are tested, not proved."""

    def __init__(self, books: Books) -> None:
        self._books = books

    async def bring(self, each: Commissioned, branches: Branches) -> None:
        """Has the job name the fix that people speak of, once its files are here; the history is here already."""
        job = each.job
        if job.kind != "tests" or job.task.fixed_by:
            return
        text = "\n".join((job.task.request, job.task.issue.title, job.task.issue.body))
        fix = await asyncio.to_thread(told_fix, branches.store.history.path, job.task.base, text)
        if not fix:
            return
        try:
            await branches.bring(fix)
            for before in (await asyncio.to_thread(branches.store.parents, fix))[:1]:
                await branches.bring(before)
        except (NeedsHuman, NoAccess) as error:
            await asyncio.to_thread(self._books.store.say, job.id, "note", f"The fix {fix[:10]}: {error.message}")
            return
        task = job.task.model_copy(update={"fixed_by": fix})
        await asyncio.to_thread(self._books.store.replace, job.model_copy(update={"task": task}))
