"""Fetches the base commits of new jobs and checks them before money is spent."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from app.core.errors import AgentFixError, RepositoryError
from app.core.failpoints import failpoint
from app.core.job import JobState
from app.github.branches import BranchesApi
from app.github.connection import RepositoryId
from app.github.errors import NeedsHumanAction, NoAccess, RateLimited
from app.jobs.job_queries import JobWithContext
from app.repo.git_command import GitError
from app.triggers.base_merge import BaseMerge
from app.triggers.fix_fetcher import FixFetcher
from app.triggers.github_clients import GitHubClients, RepositoryClients
from app.triggers.image_fetcher import ImageFetcher
from app.triggers.stores import Mirror, Stores

AT_ONCE = 2
"""Repositories."""
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=5)
GIVE_UP_AFTER = timedelta(hours=6)
"""With a forge that does not give the commit."""

logger = logging.getLogger(__name__)


class BaseCommitFetcher:
    """Makes admitted jobs ready, or ends them with the reason why they can never start."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, mirror: Mirror) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._mirror = mirror
        self._merging = BaseMerge(stores)
        self._fixes = FixFetcher(stores)
        self._pictures = ImageFetcher(stores)
        self._due: dict[str, datetime] = {}
        self._attempts: dict[str, int] = defaultdict(int)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch_due(self) -> int:
        """Fetch the base commits that are due; returns the number of jobs."""
        now = self._stores.clock()
        waiting = await asyncio.to_thread(self._stores.job_queries.without_base_commit)
        due = [each for each in waiting if self._due.get(each.job.id, now) <= now]
        rows: dict[int, list[JobWithContext]] = defaultdict(list)
        for each in due:
            rows[each.job_context.issue_ref.repository].append(each)
        await asyncio.gather(*(self._in_order(row) for row in rows.values()))
        return len(due)

    async def _in_order(self, row: Iterable[JobWithContext]) -> None:
        async with self._slots:
            for each in row:
                (failure,) = await asyncio.gather(self._make_ready(each), return_exceptions=True)
                if isinstance(failure, Exception):
                    await asyncio.to_thread(self._failed, each, failure)
                elif failure is not None:
                    raise failure
                else:
                    self._forget(each)

    async def _make_ready(self, each: JobWithContext) -> None:
        job, job_context, repo_context = each.job, each.job_context, each.job_context.issue_ref
        readers = await self._open(
            RepositoryId(repo_context.repository, repo_context.owner, repo_context.name), repo_context.installation
        )
        branches = BranchesApi(readers.api, self._mirror(repo_context.repository), job_context.author.email)
        on_pull = job.task.origin is not None and job.task.origin.is_pull_request
        shown_at = f"refs/pull/{repo_context.number}/head" if on_pull else ""
        for commit in dict.fromkeys((job.task.base, *job_context.parents)):
            await branches.fetch(commit, ref=shown_at if commit == job.task.base else "")
        if job_context.aim in {"conflicts", "ci"}:
            await self._merging.prepare(each, branches, readers)
            return
        failpoint("base.fetched")
        await branches.fetch_history(job.task.base)
        await self._fixes.fetch(each, branches)
        await self._pictures.fetch(each, readers)
        await asyncio.to_thread(self._stores.job_queries.mark_ready, job.id)

    async def _open(self, repository: RepositoryId, installation: int) -> RepositoryClients:
        """Open the repository by its current name: the job may have waited for a long time."""
        readers = self._github_clients.for_repository(installation, repository)
        try:
            found = await readers.facts.repository()
        except NoAccess:
            found = await readers.facts.repository_by_id()
        if (found.owner, found.name) == (repository.owner, repository.name):
            return readers
        return self._github_clients.for_repository(installation, RepositoryId(found.id, found.owner, found.name))

    def _failed(self, each: JobWithContext, failure: Exception) -> None:
        job, now = each.job.id, self._stores.clock()
        match failure:
            case NoAccess():
                self._end(each, "no_access", failure)
            case NeedsHumanAction() | RepositoryError() | GitError():
                self._end(each, "error", failure)
            case RateLimited():
                self._due[job] = failure.until
                self._tell_waiting(each, failure)
            case _ if now - each.job.created_at > GIVE_UP_AFTER:
                self._end(each, "error", failure)
            case _:
                self._attempts[job] += 1
                self._due[job] = now + min(SHORTEST * 2 ** min(self._attempts[job], 10), LONGEST)
                self._tell_waiting(each, failure)

    def _end(self, each: JobWithContext, state: JobState, failure: Exception) -> None:
        self._stores.queue.end(each.job.id, state, _sentence(failure))
        self._forget(each)

    def _tell_waiting(self, each: JobWithContext, failure: Exception) -> None:
        if isinstance(failure, AgentFixError):
            reason = "The repository's files cannot be fetched at the moment; agent-fix will try again."
            if each.row.reason != reason:
                self._stores.store.enter(each.job.id, each.row.state, reason)
            logger.warning("fetching the base of job %s: %s", each.job.id, failure.message)
        else:
            logger.error("fetching the base of job %s failed", each.job.id, exc_info=failure)

    def _forget(self, each: JobWithContext) -> None:
        self._due.pop(each.job.id, None)
        self._attempts.pop(each.job.id, None)


def _sentence(failure: Exception) -> str:
    if isinstance(failure, AgentFixError):
        return f"{failure.message} {failure.hint}".strip()
    return str(failure) or type(failure).__name__
