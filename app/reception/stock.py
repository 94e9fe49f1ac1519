"""Base commits are brought into the mirror before anybody works on them, and looked at before money is spent."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from app.errors import AgentFixError, RepositoryError
from app.failpoints import failpoint
from app.forge.errors import NeedsHuman, NoAccess, WaitUntil
from app.forge.github.branches import Branches
from app.forge.github.connection import RepositoryId
from app.gitcommand import GitError
from app.job import JobState
from app.jobs.roster import Commissioned
from app.reception.books import Books, Mirror
from app.reception.doors import Doors, Readers
from app.reception.fixes import Fixes
from app.reception.merging import Merging
from app.reception.pictures import Pictures
from app.repository import refuse_unusable_files

AT_ONCE = 2
"""Repositories."""
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=5)
PATIENCE = timedelta(hours=6)
"""With a forge that does not give the commit."""

logger = logging.getLogger(__name__)


class Stock:
    """Makes admitted jobs ready, or ends them with the reason why they can never be."""

    def __init__(self, doors: Doors, books: Books, mirror: Mirror) -> None:
        self._doors = doors
        self._books = books
        self._mirror = mirror
        self._merging = Merging(books)
        self._fixes = Fixes(books)
        self._pictures = Pictures(books)
        self._due: dict[str, datetime] = {}
        self._tries: dict[str, int] = defaultdict(int)
        self._room = asyncio.Semaphore(AT_ONCE)

    async def bring(self) -> int:
        """Bring what is due; returns how many jobs that were."""
        now = self._books.clock()
        waiting = await asyncio.to_thread(self._books.roster.unstocked)
        due = [each for each in waiting if self._due.get(each.job.id, now) <= now]
        rows: dict[int, list[Commissioned]] = defaultdict(list)
        for each in due:
            rows[each.commission.place.repository].append(each)
        await asyncio.gather(*(self._in_order(row) for row in rows.values()))
        return len(due)

    async def _in_order(self, row: Iterable[Commissioned]) -> None:
        async with self._room:
            for each in row:
                (failure,) = await asyncio.gather(self._make_ready(each), return_exceptions=True)
                if isinstance(failure, Exception):
                    await asyncio.to_thread(self._failed, each, failure)
                elif failure is not None:
                    raise failure
                else:
                    self._forget(each)

    async def _make_ready(self, each: Commissioned) -> None:
        job, commission, place = each.job, each.commission, each.commission.place
        readers = await self._open(RepositoryId(place.repository, place.owner, place.name), place.installation)
        branches = Branches(readers.door, self._mirror(place.repository), commission.author.email)
        on_pull = job.task.origin is not None and job.task.origin.is_pull_request
        shown_at = f"refs/pull/{place.number}/head" if on_pull else ""
        for commit in dict.fromkeys((job.task.base, *commission.parents)):
            await branches.bring(commit, ref=shown_at if commit == job.task.base else "")
        tree = branches.store.tree(job.task.base)
        await asyncio.to_thread(refuse_unusable_files, f"{place.owner}/{place.name}", tree)
        if commission.aim in {"conflicts", "ci"}:
            await self._merging.prepare(each, branches, readers)
            return
        failpoint("stock.brought")
        await branches.bring_history(job.task.base)
        await self._fixes.bring(each, branches)
        await self._pictures.bring(each, readers)
        await asyncio.to_thread(self._books.roster.mark_ready, job.id)

    async def _open(self, repository: RepositoryId, installation: int) -> Readers:
        """By the name that it has now: a job may have waited for long."""
        readers = self._doors.to(installation, repository)
        try:
            found = await readers.facts.repository()
        except NoAccess:
            found = await readers.facts.whereabouts()
        if (found.owner, found.name) == (repository.owner, repository.name):
            return readers
        return self._doors.to(installation, RepositoryId(found.id, found.owner, found.name))

    def _failed(self, each: Commissioned, failure: Exception) -> None:
        job, now = each.job.id, self._books.clock()
        match failure:
            case NoAccess():
                self._end(each, "no_access", failure)
            case NeedsHuman() | RepositoryError() | GitError():
                self._end(each, "error", failure)
            case WaitUntil():
                self._due[job] = failure.until
            case _ if now - each.job.created_at > PATIENCE:
                self._end(each, "error", failure)
            case _:
                self._tries[job] += 1
                self._due[job] = now + min(SHORTEST * 2 ** min(self._tries[job], 10), LONGEST)
                self._tell_waiting(each, failure)

    def _end(self, each: Commissioned, state: JobState, failure: Exception) -> None:
        self._books.queue.end(each.job.id, state, _sentence(failure))
        self._forget(each)

    def _tell_waiting(self, each: Commissioned, failure: Exception) -> None:
        if isinstance(failure, AgentFixError):
            reason = "The repository's files cannot be had at the moment; it is tried again."
            if each.row.reason != reason:
                self._books.store.enter(each.job.id, each.row.state, reason)
            logger.warning("stock of job %s: %s", each.job.id, failure.message)
        else:
            logger.error("stock of job %s failed", each.job.id, exc_info=failure)

    def _forget(self, each: Commissioned) -> None:
        self._due.pop(each.job.id, None)
        self._tries.pop(each.job.id, None)


def _sentence(failure: Exception) -> str:
    if isinstance(failure, AgentFixError):
        return f"{failure.message} {failure.hint}".strip()
    return str(failure) or type(failure).__name__
