"""Lets jobs wait while as many of the bot's pull requests are open as a repository allows, and lets them go on."""

import asyncio
import logging
from datetime import datetime, timedelta

from app.config.operator_defaults import OperatorDefaults
from app.config.repository import RepoConfig
from app.core.errors import AgentFixError
from app.github.connection import RepositoryId
from app.jobs.context import JobContext
from app.triggers.fact_loader import read_config
from app.triggers.github_clients import GitHubClients, RepositoryClients
from app.triggers.open_branches import branches_in_use
from app.triggers.stores import Stores

EVERY = timedelta(minutes=1)
"""How often a repository with waiting jobs is looked at: a job that ended without a pull request sends no webhook."""

logger = logging.getLogger(__name__)


class PullRequestLimit:
    """Looks at repositories with waiting jobs, and lets as many go on as the limit allows."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, operator: OperatorDefaults) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._operator = operator
        self._due: dict[int, datetime] = {}

    def look_at(self, repository: int) -> None:
        """Look at this repository next: one of its pull requests was closed."""
        self._due.pop(repository, None)

    async def release_due(self) -> int:
        """Look at the repositories that are due; returns how many jobs go on."""
        waiting: dict[int, list[tuple[str, JobContext]]] = {}
        for job_id, job_context in await asyncio.to_thread(self._stores.job_queries.waiting_for_pull_requests):
            waiting.setdefault(job_context.issue_ref.repository, []).append((job_id, job_context))
        now, released = self._stores.clock(), 0
        self._due = {repository: due for repository, due in self._due.items() if repository in waiting}
        for repository, found in waiting.items():
            if self._due.get(repository, now) <= now:
                self._due[repository] = now + EVERY
                released += await self._release(found)
        return released

    async def _release(self, waiting: list[tuple[str, JobContext]]) -> int:
        place = waiting[0][1].issue_ref
        named = RepositoryId(place.repository, place.owner, place.name)
        readers = self._github_clients.for_repository(place.installation, named)
        try:
            return await self._release_first(waiting, readers)
        except AgentFixError as error:  # the next look may succeed; access that was lost ends the jobs elsewhere
            logger.warning("jobs of %s/%s wait on: %s", place.owner, place.name, error.message)
            return 0

    async def _release_first(self, waiting: list[tuple[str, JobContext]], readers: RepositoryClients) -> int:
        config = await read_config(readers, self._operator)
        if not isinstance(config, RepoConfig):
            return 0
        free = len(waiting)
        if config.max_open_pull_requests is not None:
            bot = (await self._github_clients.ourselves(readers)).bot.user
            repository, pulls = waiting[0][1].issue_ref.repository, await readers.pulls.open()
            in_use = await asyncio.to_thread(
                branches_in_use, self._stores.job_queries, repository, pulls, bot, waiting=False
            )
            free = max(config.max_open_pull_requests - len(in_use), 0)
        released = 0
        for job_id, job_context in waiting[:free]:
            # What was merged meanwhile is what the work has to start from.
            base = await readers.facts.head(job_context.base_ref) if job_context.pull is None else None
            released += await asyncio.to_thread(self._stores.queue.end_wait, job_id, base or "")
        return released
