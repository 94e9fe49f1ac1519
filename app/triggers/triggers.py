"""The three periodic tasks of triggers; each call handles what is due and returns."""

from app.github.app_registration import AppRegistration
from app.github.connection import AppConnection, Connection
from app.jobs.process_owner import this_process
from app.triggers.base_commit_fetcher import BaseCommitFetcher
from app.triggers.delivery_worker import DeliveryWorker
from app.triggers.event_handler import EventHandler
from app.triggers.github_clients import GitHubClients
from app.triggers.poller import Poller
from app.triggers.program_requests import ProgramRequests
from app.triggers.pull_request_limit import PullRequestLimit
from app.triggers.stores import Mirror, ServerDefaults, Stores


class TriggerLoops:
    """Processes deliveries, fetches base commits, and polls."""

    def __init__(self, connection: Connection, stores: Stores, mirror: Mirror, defaults: ServerDefaults) -> None:
        github_clients = GitHubClients(connection, defaults.allowed_apps)
        self.handler = EventHandler(github_clients, stores, defaults)
        registration = AppRegistration(connection) if isinstance(connection, AppConnection) else None
        self._poller = Poller(github_clients, registration, stores, self.handler.handle) if registration else None
        self._limit = PullRequestLimit(github_clients, stores, defaults.operator)
        self._stock = BaseCommitFetcher(github_clients, stores, mirror)
        self._program_requests = ProgramRequests(github_clients, registration, stores, self.handler.handle)
        self._inflow = DeliveryWorker(
            stores.inbox,
            self.handler.handle,
            stores.clock,
            f"{this_process()}:reception",
            carry_out=self._program_requests.handle,
        )

    async def next_delivery(self) -> int:
        """Process the deliveries that are due; returns how many."""
        dealt_with = await self._inflow.next()
        for installation in self.handler.take_new_installations():
            if self._poller:
                await self._poller.installation(installation)
        return dealt_with

    async def fetch_base_commits(self) -> int:
        """Fetch base commits of admitted jobs; returns the number of jobs."""
        return await self._stock.fetch_due()

    async def end_waits(self) -> int:
        """Let jobs go on that waited until pull requests were merged or closed; returns how many."""
        for repository in self.handler.take_closed():
            self._limit.look_at(repository)
        return await self._limit.release_due()

    async def reconcile_when_due(self) -> None:
        await self._program_requests.end_given_up()
        if self._poller:
            await self._poller.when_due()

    async def poll(self) -> None:
        """Poll GitHub for what no webhook delivered, at the start and every few minutes."""
        if self._poller:
            await self._poller.poll_all()
