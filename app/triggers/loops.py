"""The loops of the process with the App's key: deliveries (repositories in parallel, each in order), and polls."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from app.core.errors import AgentFixError
from app.core.job import JobState
from app.core.processes import this_process
from app.core.text import listed, one_line
from app.github.auth import INSTALL_IT, AppRegistration
from app.github.base import NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure
from app.github.connection import AppConnection, Connection
from app.github.models import Account, GitHubIssue
from app.github.reader import RepositoryReader, ensure_issue
from app.jobs.inbox import LEASE, PROGRAM_EVENT, ClaimedDelivery, Delivery, Inbox, InboxError
from app.jobs.job_actions import ProgramRequest
from app.triggers.base_commit_fetcher import BaseCommitFetcher
from app.triggers.event_handler import EventHandler
from app.triggers.events import Event, IgnoredReason, InstallationChanged, ProgramCommand, decode, read
from app.triggers.github_clients import GitHubClients, Mirror, RepositoryContext
from app.triggers.job_creator import PullRequestLimit, RetryLater
from app.triggers.poller import Poller, subject_of
from app.triggers.stores import ServerDefaults, Stores

MAX_TITLE = 256
SHOWN = 20
"""Issues of a search that are named."""
REPOSITORIES_AT_ONCE = 4
MAX_CLAIMED = 40
RETRY_UNCOUNTED_FOR = timedelta(days=1)
"""While GitHub is down, attempts at a delivery are not counted for so long."""
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=5)
RETRY_AFTER_FAULT = timedelta(seconds=30)
Handle = Callable[[Event], Awaitable[str]]
Content = Event | ProgramRequest | IgnoredReason
"""What a delivery contains: an event, a program's request (which no webhook can make), or why it is ignored."""
PULL_REQUESTS_PER_LOOKUP = 20
logger = logging.getLogger(__name__)


class ProgramRequests:
    """Handles requests, each as often as it is delivered."""

    def __init__(
        self,
        github_clients: GitHubClients,
        registration: AppRegistration | None,
        stores: Stores,
        handle: Callable[[Event], Awaitable[str]],
    ) -> None:
        self._github_clients = github_clients
        self._registration = registration
        self._requests = stores.requests
        self._handle = handle

    async def handle(self, request: ProgramRequest) -> str:
        """Handle a request and return a short outcome. Raises GitHub errors that may pass, and RetryLater."""
        if not await asyncio.to_thread(self._requests.is_open, request.job):
            return "decided before"
        try:
            return await self._carry_out(request)
        except NoAccess as error:
            return await self._end(request, "no_access", error)
        except NeedsHumanAction as error:
            return await self._end(request, "error", error)

    async def _carry_out(self, request: ProgramRequest) -> str:
        repo = await self._open(request)
        if request.search:
            return await self._search(request, repo)
        issue = await self._issue(request, repo)
        bot = Account(id=repo.ours.user, login=repo.ours.login, kind="Bot")
        event = ProgramCommand(
            installation=repo.installation,
            repository=repo.repository,
            actor=Account(id=request.user, login=request.by) if request.user else bot,
            subject=subject_of(issue),
            request=request.model_copy(update={"number": issue.number}),
        )
        outcome = await self._handle(event)
        await asyncio.to_thread(self._requests.end, request.job, "stopped", _reason(outcome))
        return outcome

    async def _open(self, request: ProgramRequest) -> RepositoryContext:
        """The repository of this name. Raises NoAccess if it is another one, or the App is not installed."""
        owner, _, name = request.repository.partition("/")
        if self._registration is None:
            raise NoAccess(f"The App is not installed in {request.repository}.", hint=INSTALL_IT)
        installation, found = await self._registration.repository(owner, name)
        if request.repository_id not in {0, found.id}:
            raise NoAccess(
                f"{request.repository} is another repository now.", hint="Start the job from its issue on GitHub."
            )
        return await self._github_clients.context_of(self._github_clients.for_repository(installation, found), found)

    async def _issue(self, request: ProgramRequest, repo: RepositoryContext) -> GitHubIssue:
        """The requested issue, or a new one with the requested text."""
        if request.number is None:
            number = await _ensure_issue(request, repo.reader, repo.ours.user)
            request = request.model_copy(update={"number": number})
            await asyncio.to_thread(self._requests.describe, request)
        found = await repo.reader.issue(request.number or 0)
        if found is None:
            raise NoAccess(f"There is no issue #{request.number} in {request.repository}.")
        return found

    async def _search(self, request: ProgramRequest, repo: RepositoryContext) -> str:
        """Make a request of each issue that is found. Their ids follow from the first one's, for repetitions."""
        found = (await repo.reader.searched(request.search))[: request.most or None]
        made = [
            request.model_copy(
                update={
                    "job": f"{request.job}n{each.number}",
                    "repository_id": repo.repository.id,
                    "number": each.number,
                    "search": "",
                    "most": 0,
                }
            )
            for each in found
            if not each.pull_request
        ]
        await asyncio.to_thread(self._requests.add, *made)
        jobs = listed([f"#{each.number} ({each.job})" for each in made], SHOWN)
        reason = f"Requested {len(made)} jobs: {jobs}." if made else "The search found no open issue."
        await asyncio.to_thread(self._requests.end, request.job, "answered", reason)
        return f"batch of {len(made)}"

    async def _end(self, request: ProgramRequest, state: JobState, error: AgentFixError) -> str:
        reason = f"{error.message} {error.hint}".strip()
        await asyncio.to_thread(self._requests.end, request.job, state, reason)
        return f"refused: {error.message}"


async def _ensure_issue(request: ProgramRequest, reader: RepositoryReader, user: int) -> int:
    """Open an issue with the text, unless an earlier attempt did. Its first line is the title."""
    first, _, rest = request.text.strip().partition("\n")
    title = one_line(first.lstrip("# ").strip())[:MAX_TITLE] or "Requested through the API"
    body = rest.strip() or title
    return await ensure_issue(reader.api, title, body, key=request.job, user=user, since=request.at)


def _reason(outcome: str) -> str:
    """An outcome in words, for a request that was not carried out and got no answer yet."""
    return f"Nothing was started: {outcome.partition(': ')[2] or outcome}."


class DeliveryWorker:
    """Claims due deliveries and passes each event to the handler."""

    def __init__(
        self,
        inbox: Inbox,
        handle: Handle,
        clock: Callable[[], datetime],
        owner: str,
        *,
        carry_out: Callable[[ProgramRequest], Awaitable[str]],
        renew_every: float = LEASE.total_seconds() / 3,
    ) -> None:
        self._inbox = inbox
        self._handle = handle
        self._carry_out = carry_out
        self._clock = clock
        self._owner = owner
        self._renew_every = renew_every
        self._slots = asyncio.Semaphore(REPOSITORIES_AT_ONCE)

    async def next(self) -> int:
        """Process the deliveries that are due; returns how many."""
        claimed = await asyncio.to_thread(self._inbox.claim, self._owner, MAX_CLAIMED)
        if not claimed:
            return 0
        ordered: dict[int, list[tuple[ClaimedDelivery, Content]]] = defaultdict(list)
        contents = await asyncio.to_thread(lambda: [_content(each.delivery) for each in claimed])
        for each, content in zip(claimed, contents, strict=True):
            ordered[_order_key(content)].append((each, content))
        renewing = asyncio.create_task(self._renew(claimed))
        try:
            await asyncio.gather(*(self._in_order(group) for group in ordered.values()))
        finally:
            renewing.cancel()
        return len(claimed)

    async def _in_order(self, group: Iterable[tuple[ClaimedDelivery, Content]]) -> None:
        async with self._slots:
            for claimed, content in group:
                await self._process(claimed, content)

    async def _process(self, claimed: ClaimedDelivery, content: Content) -> None:
        if isinstance(content, str):
            await asyncio.to_thread(self._inbox.finish, claimed, f"ignored: {content}")
            return
        work = self._carry_out(content) if isinstance(content, ProgramRequest) else self._handle(content)
        (outcome,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(outcome, str):
            kind = "request" if isinstance(content, ProgramRequest) else content.kind
            logger.info("%s: %s", kind, outcome, extra={"delivery": claimed.delivery.id})
            await asyncio.to_thread(self._inbox.finish, claimed, outcome)
        elif isinstance(outcome, AgentFixError):
            await asyncio.to_thread(self._later, claimed, outcome)
        elif isinstance(outcome, Exception):
            logger.error("delivery %s failed", claimed.delivery.id, exc_info=outcome)
            reason = f"{type(outcome).__name__}"
            await asyncio.to_thread(self._inbox.put_back, claimed, reason, RETRY_AFTER_FAULT)
        else:
            raise outcome

    def _later(self, claimed: ClaimedDelivery, error: AgentFixError) -> None:
        """Retry a temporary failure with growing delays; finish the delivery if the failure is permanent."""
        now = self._clock()
        waited = now - claimed.received_at
        pause = min(max(waited / 2, SHORTEST), LONGEST)
        match error:
            case RateLimited():
                pause = max(error.until - now, SHORTEST)
            case RetryLater() | TemporaryFailure() | InboxError():
                pass
            case _:
                logger.warning("delivery %s: %s", claimed.delivery.id, error.message)
                self._inbox.finish(claimed, f"refused: {error.message}")
                return
        logger.info("delivery %s waits %.0f s: %s", claimed.delivery.id, pause.total_seconds(), error.message)
        self._inbox.put_back(claimed, error.message, pause, counts=waited > RETRY_UNCOUNTED_FOR)

    async def _renew(self, claimed: Iterable[ClaimedDelivery]) -> None:
        """Extend the leases of deliveries that are still being processed."""
        while True:
            await asyncio.sleep(self._renew_every)
            for each in claimed:
                with suppress(InboxError):
                    await asyncio.to_thread(self._inbox.renew, each)


def _content(delivery: Delivery) -> Content:
    if delivery.event == PROGRAM_EVENT:
        return ProgramRequest.model_validate_json(delivery.body)
    try:
        payload = decode(delivery.body)
    except ValueError:
        return "not_an_object"
    return read(delivery.event, payload)


def _order_key(content: Content) -> int:
    """The key within which order matters: a repository, an installation, or nothing."""
    if isinstance(content, str):
        return 0
    if isinstance(content, ProgramRequest):
        return hash(content.repository.casefold())
    return -content.installation if isinstance(content, InstallationChanged) else content.repository.id


class TriggerLoops:
    """Processes deliveries, fetches base commits, and polls."""

    def __init__(self, connection: Connection, stores: Stores, mirror: Mirror, defaults: ServerDefaults) -> None:
        github_clients = GitHubClients(connection, defaults.allowed_apps)
        self.handler = EventHandler(github_clients, stores, defaults)
        registration = AppRegistration(connection) if isinstance(connection, AppConnection) else None
        self._poller = Poller(github_clients, registration, stores, self.handler.handle) if registration else None
        self._limit = PullRequestLimit(github_clients, stores, defaults.operator)
        self._github_clients = github_clients
        self._outcomes = stores.outcomes
        self._requests = stores.requests
        self._base_commit_fetcher = BaseCommitFetcher(github_clients, stores, mirror)
        program_requests = ProgramRequests(github_clients, registration, stores, self.handler.handle)
        self._delivery_worker = DeliveryWorker(
            stores.inbox,
            self.handler.handle,
            stores.clock,
            f"{this_process()}:deliveries",
            carry_out=program_requests.handle,
        )

    async def next_delivery(self) -> int:
        """Process the deliveries that are due; returns how many."""
        processed = await self._delivery_worker.next()
        for installation in self.handler.take_new_installations():
            if self._poller:
                await self._poller.installation(installation)
        return processed

    async def fetch_base_commits(self) -> int:
        """Fetch base commits of admitted jobs; returns the number of jobs."""
        return await self._base_commit_fetcher.fetch_due()

    async def release_waiting_jobs(self) -> int:
        """Release jobs that waited until pull requests were merged or closed; returns how many."""
        for repository in self.handler.take_closed():
            self._limit.look_at(repository)
        return await self._limit.release_due()

    async def record_outcomes(self) -> int:
        """Record how jobs ended and what became of the pull requests that are due; returns how many there were."""
        recorded = await asyncio.to_thread(self._outcomes.record_ended)
        due = await asyncio.to_thread(self._outcomes.to_look_up, PULL_REQUESTS_PER_LOOKUP)
        for place in due:
            try:
                pull = await (await self._github_clients.for_issue(place)).pull_request(place.number)
            except AgentFixError as error:  # access was lost, or GitHub is down: it is due again in some hours
                logger.info("pull request %s/%s#%s: %s", place.owner, place.name, place.number, error.message)
                continue
            if pull is not None and not pull.open:
                closed = self._outcomes.pull_closed
                await asyncio.to_thread(closed, place.repository, pull.number, merged=pull.merged, head=pull.head)
        return recorded + len(due)

    async def reconcile_when_due(self) -> None:
        await asyncio.to_thread(self._requests.end_given_up)
        if self._poller:
            await self._poller.when_due()
