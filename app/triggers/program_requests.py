"""Carries out what programs asked for through the API: finds the repository and the issue, then decides as for a label.

Every request ends visibly: its job begins, or it ends with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable

from app.core.errors import AgentFixError
from app.core.job import JobState
from app.core.text import one_line
from app.github.auth import INSTALL_IT, AppRegistration
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.models import Account, GitHubIssue
from app.github.reader import RepositoryReader, ensure_issue
from app.jobs.requests import JobRequests, ProgramRequest
from app.triggers.events import Event, ProgramCommand
from app.triggers.github_clients import GitHubClients, RepositoryContext
from app.triggers.poller import subject_of
from app.triggers.stores import Stores

MAX_TITLE = 256
SHOWN = 20
"""Issues of a search that are named."""


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
        self._stores = stores
        self._handle = handle

    @property
    def _requests(self) -> JobRequests:
        return self._stores.requests

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

    async def end_given_up(self) -> int:
        """End requests whose delivery failed too often; returns how many."""
        return await asyncio.to_thread(self._requests.end_given_up)

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
        installation = await self._registration.serves(owner, name) if self._registration else None
        if installation is None or self._registration is None:
            raise NoAccess(f"The App is not installed in {request.repository}.", hint=INSTALL_IT)
        known = await self._registration.repositories(installation)
        wanted = (owner.casefold(), name.casefold())
        found = next((each for each in known if (each.owner.casefold(), each.name.casefold()) == wanted), None)
        if found is None:
            raise NoAccess(f"The App's installation has no access to {request.repository}.", hint=INSTALL_IT)
        if request.repository_id not in {0, found.id}:
            raise NoAccess(
                f"{request.repository} is another repository now.", hint="Start the job from its issue on GitHub."
            )
        return await self._github_clients.context_of(self._github_clients.for_repository(installation, found), found)

    async def _issue(self, request: ProgramRequest, repo: RepositoryContext) -> GitHubIssue:
        """The requested issue, or a new one with the requested text."""
        if request.number is None:
            number = await _ensure_issue(request, repo.reader, repo.ours.login)
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
        listed = ", ".join(f"#{each.number} ({each.job})" for each in made[:SHOWN])
        more = f" and {len(made) - SHOWN} more" if len(made) > SHOWN else ""
        reason = f"Requested {len(made)} jobs: {listed}{more}." if made else "The search found no open issue."
        await asyncio.to_thread(self._requests.end, request.job, "answered", reason)
        return f"batch of {len(made)}"

    async def _end(self, request: ProgramRequest, state: JobState, error: AgentFixError) -> str:
        reason = f"{error.message} {error.hint}".strip()
        await asyncio.to_thread(self._requests.end, request.job, state, reason)
        return f"refused: {error.message}"


async def _ensure_issue(request: ProgramRequest, reader: RepositoryReader, login: str) -> int:
    """Open an issue with the text, unless an earlier attempt did. Its first line is the title."""
    first, _, rest = request.text.strip().partition("\n")
    title = one_line(first.lstrip("# ").strip())[:MAX_TITLE] or "Requested through the API"
    body = rest.strip() or title
    return await ensure_issue(reader.api, title, body, key=request.job, login=login, since=request.at)


def _reason(outcome: str) -> str:
    """An outcome in words, for a request that was not carried out and got no answer yet."""
    return f"Nothing was started: {outcome.partition(': ')[2] or outcome}."
