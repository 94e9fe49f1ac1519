"""Loads the issues for a sweep, as a server's App or with a token, and starts work on them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from app.config.repository import RepoConfig
from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.core.model_usage import DOLLAR
from app.github.auth import AppRegistration
from app.github.base import GIVEN
from app.github.connection import AppConnection, AppCredentials, Connection, GitHubHost, RepositoryId, TokenConnection
from app.github.models import GitHubIssue, IssueEvent
from app.jobs.queue import spent
from app.jobs.status import WORKED_ON
from app.publish.status_text import shows_status
from app.server.context import ServerContext
from app.server.github_access import connect
from app.server.publisher import defaults_of
from app.triggers.event_handler import EventHandler
from app.triggers.github_clients import GitHubClients, read_config
from app.triggers.poller import label_added
from app.triggers.rules import LABEL
from app.triggers.status_comment_recovery import is_running, last_status

Ordering = Literal["oldest", "priority", "given"]
AT_WORK: Final = "agent-in-progress"
UNTOUCHED: Final = frozenset({AT_WORK, "agent-needs-human", "agent-done"})
_PRIORITY = re.compile(r"(?:p(?:riority)?|sev(?:erity)?)[\s:/_-]*([0-9]|critical|urgent|high|medium|normal|low)")
_RANKS: Final = {"critical": 0, "urgent": 0, "high": 1, "medium": 2, "normal": 2, "low": 3}
_NONE: Final = 2
"""The rank of an issue without a priority: as that of a medium one."""


@dataclass(frozen=True, slots=True)
class SweepCandidate:
    """An issue with its label's author. `asker_may` is None if nobody added our label."""

    issue: GitHubIssue
    asker_may: bool | None
    pull_request: int | None = None
    branch: str = ""
    taken: bool = False
    """It is assigned to somebody other than the person who added the label."""
    is_lost: bool = False
    """The workflow run that worked on it ended without reporting."""


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """How many issues may be taken; None for no cap.

    `pull_requests` more may be opened, `day` more can be paid for.
    """

    most: int
    pull_requests: int | None = None
    day: int | None = None


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """The decision about one issue; no reason if it is taken. `ends`: only its lost job is ended."""

    number: int
    title: str
    reason: str = ""
    ends: bool = False


def sweep(candidates: Iterable[SweepCandidate], caps: SweepLimits, ordering: Ordering) -> tuple[SweepDecision, ...]:
    """Decisions for all candidates, in the order in which they are taken."""
    accepted, rows = 0, []
    for each in order_candidates(candidates, ordering):
        if each.is_lost:  # costs nothing and opens nothing
            rows.append(SweepDecision(each.issue.number, each.issue.title, ends=True))
            continue
        reason = reason_against(each) or _cap(caps, accepted)
        accepted += not reason
        rows.append(SweepDecision(each.issue.number, each.issue.title, reason))
    return tuple(rows)


def order_candidates(candidates: Iterable[SweepCandidate], ordering: Ordering) -> Sequence[SweepCandidate]:
    match ordering:
        case "given":
            return list(candidates)
        case "oldest":
            return sorted(candidates, key=lambda each: each.issue.number)
        case "priority":
            return sorted(candidates, key=lambda each: (priority(each.issue.labels), each.issue.number))


def priority(labels: Iterable[str]) -> int:
    """The most urgent of the labels that name a priority, like `P1`, `priority: high` or `severity/2`; 0 is first."""
    named = (_PRIORITY.fullmatch(label.casefold().strip()) for label in labels)
    words = [found[1] for found in named if found]
    return min((_RANKS[word] if word in _RANKS else int(word) for word in words), default=_NONE)


def reason_against(each: SweepCandidate) -> str:
    """Why an issue is skipped regardless of the limits; empty if it is not."""
    issue, labels = each.issue, {label.casefold() for label in each.issue.labels}
    reasons = (
        (issue.pull_request, "it is a pull request"),
        (not issue.open, "it is closed"),
        (issue.locked, "its conversation is locked"),
        (each.pull_request is not None, f"pull request #{each.pull_request} is open for it"),
        (bool(each.branch), f"the branch {each.branch} already exists"),
        (bool(labels & UNTOUCHED), f"it is labelled {', '.join(sorted(labels & UNTOUCHED))}"),
        (LABEL not in labels or each.asker_may is None, f"it does not have the label {LABEL}"),
        (each.asker_may is False, "whoever added the label has no write access"),
        (each.taken, "it is assigned to someone else"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _cap(caps: SweepLimits, accepted: int) -> str:
    if accepted >= caps.most:
        return f"this sweep already starts {caps.most} jobs, its limit"
    if caps.pull_requests is not None and accepted >= caps.pull_requests:
        return "the limit `max_open_pull_requests` is reached"
    if caps.day is not None and accepted >= caps.day:
        return "the day's budget is spent or reserved for earlier issues"
    return ""


A_DAY = timedelta(days=1)


class IssueSweep:
    """The sweep of one repository. With `server_context`, a server's jobs are known and new ones can be admitted."""

    def __init__(
        self,
        github_clients: GitHubClients,
        installation: int,
        repository: RepositoryId,
        settings: Settings,
        server_context: ServerContext | None,
    ) -> None:
        self._github_clients = github_clients
        self._installation = installation
        self._reader = github_clients.for_repository(installation, repository)
        self._settings = settings
        self._server_context = server_context

    async def candidates(self, query: str) -> tuple[SweepCandidate, ...]:
        """Open issues with our label, or those that a search finds; and those whose job was lost."""
        issues = await self._reader.searched(query) if query else await self._reader.labelled(LABEL)
        config = await self._config()
        return (*await self._lost_runs(), *[await self._candidate(each, config) for each in issues])

    async def caps(self, most: int) -> SweepLimits:
        config = await self._config()
        allowed = config.max_open_pull_requests
        if allowed is None:
            return SweepLimits(most, None, await self._day(config))
        us = (await self._github_clients.ourselves(self._reader)).user
        opened = sum(each.author == us for each in await self._reader.open_pull_requests())
        return SweepLimits(most, max(allowed - opened, 0), await self._day(config))

    async def admit(self, number: int) -> str:
        """Handle the label as if its webhook came now; returns the outcome."""
        if self._server_context is None:
            raise AgentFixError("Only a server has a database to add jobs to.")
        issue, added = await self._reader.issue(number), await self._label_on(number)
        if issue is None or added is None:
            return "its label was removed"
        repository = await self._reader.repository()
        event = label_added(self._installation, repository, issue, added)
        runner = EventHandler(self._github_clients, self._server_context, defaults_of(self._settings))
        return await runner.handle(event)

    async def _config(self) -> RepoConfig:
        config = await read_config(self._reader, self._settings.defaults)
        if isinstance(config, AgentFixError):
            raise config
        return config

    async def _candidate(self, issue: GitHubIssue, config: RepoConfig) -> SweepCandidate:
        """Build a candidate with as few requests as possible: none once there is a reason to skip it."""
        found = SweepCandidate(issue, None)
        if issue.pull_request or not issue.open or LABEL not in {label.casefold() for label in issue.labels}:
            return found
        added, linked = await self._label_on(issue.number), await self._reader.linked_pull_requests(issue.number)
        ours = config.branch_for(slug="x", number=issue.number).removesuffix("x")
        branches = await self._reader.branches(ours)
        hands = set(issue.assignees)
        return SweepCandidate(
            issue,
            None if added is None else await self._reader.may_write(added.actor.id),
            pull_request=linked[0].number if linked else None,
            branch=branches[0] if branches else "",
            taken=bool(hands) and added is not None and added.actor.id not in hands,
        )

    async def _lost_runs(self) -> tuple[SweepCandidate, ...]:
        """Jobs of workflow runs that ended without reporting. A server detects lost jobs by their leases."""
        if self._server_context is not None:
            return ()
        us = (await self._github_clients.ourselves(self._reader)).user
        at_work = await self._reader.labelled(AT_WORK)
        return tuple(
            [SweepCandidate(each, None, is_lost=True) for each in at_work if await self._is_lost(each.number, us)]
        )

    async def _is_lost(self, number: int, us: int) -> bool:
        found = await last_status(self._reader, number, us, self._github_clients.app.now())
        if found is None or found[0].state not in WORKED_ON or not found[0].run:
            return False
        return not await is_running(self._reader, found[0].run)

    async def _label_on(self, number: int) -> IssueEvent | None:
        events = await self._reader.issue_events(number)
        such = [each for each in events if each.event == "labeled" and each.label.casefold() == LABEL]
        return such[-1] if such else None

    async def _day(self, config: RepoConfig) -> int | None:
        """How many jobs today's remaining budget can pay for, at their highest cost."""
        budget = config.budget.over(defaults_of(self._settings).budget)
        if config.budget.usd_per_day is None or budget.usd <= 0:
            return None
        return max(int(config.budget.usd_per_day * DOLLAR) - await self._spent(budget.usd), 0) // budget.usd

    async def _spent(self, max_cost: int) -> int:
        """Today's spending by the ledger; without one, each job reported within a day counts in full."""
        now = (self._server_context.clock if self._server_context else self._github_clients.app.now)()
        if self._server_context is not None:
            repository, engine = await self._reader.repository(), self._server_context.engine
            return await asyncio.to_thread(spent, engine, repository.id, now - A_DAY)
        us = (await self._github_clients.ourselves(self._reader)).user
        comments = await self._reader.comments_since(now - A_DAY)
        started = [each for each in comments if each.author == us and each.created_at >= now - A_DAY]
        return max_cost * sum(shows_status(each.body) for each in started)


@asynccontextmanager
async def open_issue_sweep(
    settings: Settings, owner: str, name: str, token: str, *, in_workflow: bool = False
) -> AsyncIterator[IssueSweep]:
    """Connect with the token, as its owner, or else as the server's App. A workflow's App comes before its token."""
    host, repository = (
        GitHubHost.of(settings),
        RepositoryId(0, owner, name),
    )
    if token:
        async with connect(settings, owner, name, token) if in_workflow else TokenConnection(host, token) as bearer:
            yield IssueSweep(GitHubClients(bearer), GIVEN, await _named(bearer, GIVEN, repository), settings, None)
        return
    server_context = ServerContext(settings)
    server_context.prepare()
    async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
        installation, found = await AppRegistration(app).repository(owner, name)
        yield IssueSweep(
            GitHubClients(app, settings.allowed_apps),
            installation,
            RepositoryId(found.id, owner, name),
            settings,
            server_context,
        )


async def _named(connection: Connection, installation: int, repository: RepositoryId) -> RepositoryId:
    found = await GitHubClients(connection).for_repository(installation, repository).repository()
    return RepositoryId(found.id, found.owner, found.name)
