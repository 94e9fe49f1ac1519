"""Looks up what became of open pull requests, for those whose webhook never came."""

import asyncio
import logging

from app.core.errors import AgentFixError
from app.github.connection import RepositoryId
from app.triggers.github_clients import GitHubClients
from app.triggers.stores import Stores

AT_ONCE = 20
"""Pull requests per lookup."""

logger = logging.getLogger(__name__)


class OutcomeLookup:
    """Records how jobs ended, and what became of their pull requests."""

    def __init__(self, github_clients: GitHubClients, stores: Stores) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._outcomes = stores.outcomes

    async def record(self) -> int:
        """Add the jobs that ended, and look at pull requests that are due; returns how many there were."""
        recorded = await asyncio.to_thread(self._outcomes.record_ended)
        due = await asyncio.to_thread(self._outcomes.to_look_up, AT_ONCE)
        for place in due:
            named = RepositoryId(place.repository, place.owner, place.name)
            try:
                readers = self._github_clients.for_repository(place.installation, named)
                pull = await readers.facts.pull_request(place.number)
            except AgentFixError as error:  # access was lost, or GitHub is away: it is due again in some hours
                logger.info("pull request %s/%s#%s: %s", place.owner, place.name, place.number, error.message)
                continue
            if pull is not None and not pull.open:
                closed = self._outcomes.pull_closed
                await asyncio.to_thread(closed, place.repository, pull.number, merged=pull.merged, head=pull.head)
        return recorded + len(due)
