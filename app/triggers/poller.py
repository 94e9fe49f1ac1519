"""Finds what no webhook reported: compares GitHub with the database every few minutes, and handles the difference.

Labels, comments, reviews, failing checks, work called off: each becomes the event that was lost, under the same key, so
that whatever did arrive is found decided. Requests are bounded; a repository that was not reached keeps its last look.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from app.core.errors import AgentFixError
from app.github.auth import AppRegistration, missed
from app.github.errors import NeedsHumanAction, NoAccess, RateLimited
from app.github.models import (
    GHOST,
    Account,
    BotAccount,
    CheckResult,
    DeliveryResponse,
    GitHubIssue,
    InlineComment,
    IssueComment,
    IssueEvent,
    PullRequest,
    PullRequestReview,
    Repository,
)
from app.github.reader import RepositoryReader
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import OWN_DELIVERIES
from app.triggers.commands import parse
from app.triggers.events import (
    ChecksFailed,
    Event,
    EventSubject,
    InstallationChanged,
    IssueChanged,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    Pushed,
    ReviewCommented,
    ReviewSubmitted,
    checks_key,
    comment_key,
    label_key,
)
from app.triggers.github_clients import GitHubClients
from app.triggers.notifications import WORK_LABELS
from app.triggers.rules import CHANGES_REQUESTED, LABEL, starts_job
from app.triggers.stores import Stores
from app.triggers.webhook_parser import FAILURES


class EventsFromApi:
    """Builds the events of one repository."""

    def __init__(self, installation: int, repository: Repository) -> None:
        self._installation = installation
        self._repository = repository

    def labelled(self, issue: GitHubIssue, put_on: IssueEvent) -> LabelAdded:
        return LabelAdded(**self._by(put_on.actor), subject=subject_of(issue), label=put_on.label)

    def commented(self, comment: IssueComment, issue: GitHubIssue) -> IssueCommented:
        return IssueCommented(**self._comment_fields(comment), subject=subject_of(issue))

    def review_commented(self, comment: InlineComment, issue: GitHubIssue) -> ReviewCommented:
        return ReviewCommented(**self._comment_fields(comment), subject=subject_of(issue), thread=comment.thread)

    def reviewed(self, review: PullRequestReview, issue: GitHubIssue) -> ReviewSubmitted:
        who = Account(id=review.author, login=review.author_name, kind=review.kind)
        words: dict[str, Any] = {"id": review.id, "text": review.body, "at": review.submitted_at}
        return ReviewSubmitted(**self._by(who), **words, subject=subject_of(issue), verdict=review.state)

    def checks_failed(self, pull: PullRequest, failed: CheckResult) -> ChecksFailed:
        """Failing checks of a pull request. They have no actor of their own; what counts is whose checks they are."""
        return ChecksFailed(
            **self._by(GHOST),
            source="check_suite",
            id=failed.id,
            name=failed.name,
            conclusion=failed.conclusion,
            head_ref=pull.head_branch,
            head_sha=pull.head,
            pull_requests=(pull.number,),
            app=failed.app,
        )

    def pushed(self, branch: str) -> Pushed:
        """A branch as if it had just moved: pull requests against it may conflict."""
        return Pushed(**self._by(GHOST), branch=branch)

    def job_ending_events(
        self, issue: GitHubIssue, issue_events: Iterable[IssueEvent], since: datetime
    ) -> Iterator[IssueChanged | LabelRemoved]:
        """Events that end a job: the issue was closed, or our label was removed."""
        for each in issue_events:
            who = self._by(each.actor)
            if each.at < since:
                continue
            if each.event == "closed":
                yield IssueChanged(**who, change="closed", subject=subject_of(issue))
            elif each.event == "unlabeled" and each.label.casefold() in WORK_LABELS:
                yield LabelRemoved(**who, subject=subject_of(issue), label=each.label)

    def deleted(self, number: int, *, is_pull_request: bool) -> IssueChanged:
        subject = EventSubject(number=number, is_pull_request=is_pull_request, title="", author=None, labels=())
        return IssueChanged(**self._by(GHOST), change="deleted", subject=subject)

    def _by(self, actor: Account) -> dict[str, Any]:
        return {"installation": self._installation, "repository": self._repository, "actor": actor}

    def _comment_fields(self, comment: IssueComment) -> dict[str, Any]:
        who = Account(id=comment.author, login=comment.author_name, kind=comment.kind)
        fields = {"id": comment.id, "text": comment.body, "at": comment.created_at, "app": comment.app}
        return {**self._by(who), **fields}


def access_lost(installation: int, repositories: tuple[int, ...] = ()) -> InstallationChanged:
    """A lost or suspended installation, or repositories that were removed from it."""
    change: Literal["removed", "deleted"] = "removed" if repositories else "deleted"
    return InstallationChanged(installation=installation, actor=GHOST, change=change, repositories=repositories)


def is_request(text: str, author: int, bot_id: int) -> bool:
    """True if a text is addressed to the bot by an account that still exists."""
    return author not in {0, bot_id} and parse(text) is not None


def is_review_of_bot(review: PullRequestReview, pull: PullRequest, bot_id: int) -> bool:
    """True if a review is addressed to the bot, or requests changes to its pull request."""
    wants_changes = review.state == CHANGES_REQUESTED and pull.author == bot_id
    return is_request(review.body, review.author, bot_id) or (wants_changes and review.author not in {0, bot_id})


def subject_of(issue: GitHubIssue) -> EventSubject:
    return EventSubject(
        number=issue.number,
        is_pull_request=issue.pull_request,
        title=issue.title,
        body=issue.body,
        author=issue.author or None,
        labels=issue.labels,
    )


C = TypeVar("C", bound=IssueComment | PullRequestReview)


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event that a webhook may have delivered: it is only built if its key is not decided yet."""

    key: str
    """Empty for events without a key, which may be handled twice."""
    event: Callable[[], Awaitable[Event | None]]


class RepositoryPoll:
    """`since` is None for the first poll: then only the current state counts, not old comments."""

    def __init__(
        self,
        reader: RepositoryReader,
        events_from_api: EventsFromApi,
        bot: BotAccount,
        since: datetime | None,
    ) -> None:
        self._reader = reader
        self._events_from_api = events_from_api
        self._bot = bot
        self._since = since

    @property
    def _repository(self) -> int:
        return self._reader.api.repository.id

    async def found(self, running_jobs: list[JobWithContext]) -> AsyncIterator[FoundEvent]:
        """The events found; those that end work come first."""
        for job in running_jobs:
            async for found in self._called_off(job):
                yield found
        async for found in self._labelled({job.job_context.issue_ref.number for job in running_jobs}):
            yield found
        if self._since is not None:
            async for found in self._comments_since(self._since):
                yield found
        pulls = await self._reader.open_pull_requests()
        for pull in pulls:
            async for found in self._of_pull(pull):
                yield found
        for base in sorted({pull.base_branch for pull in pulls if pull.author == self._bot.user}):
            yield _ready("", self._events_from_api.pushed(base))

    async def _called_off(self, job: JobWithContext) -> AsyncIterator[FoundEvent]:
        number, origin = job.job_context.issue_ref.number, job.job.task.origin
        issue = await self._issue(number)
        if issue is None:
            on_pull = origin is not None and origin.is_pull_request
            yield _ready("", self._events_from_api.deleted(number, is_pull_request=on_pull))
            return
        issue_events = await self._reader.issue_events(number)
        for event in self._events_from_api.job_ending_events(issue, issue_events, job.job.created_at):
            yield _ready("", event)

    async def _labelled(self, working: set[int]) -> AsyncIterator[FoundEvent]:
        # GitHub finds labels by their whole name, so `agent-fix:NAME` is found among the issues that changed.
        reader, since = self._reader, self._since
        changed = await (reader.labelled(LABEL) if since is None else reader.changed_since(since))
        for issue in changed:
            if issue.number in working or not any(map(starts_job, issue.labels)):
                continue
            issue_events = await self._reader.issue_events(issue.number)
            put_on = [each for each in issue_events if each.event == "labeled" and starts_job(each.label)]
            newest = {each.label: each for each in put_on if each.label in issue.labels}
            for each in newest.values():  # somebody without the permission may have added another one since
                key = label_key(self._repository, issue.number, each.at)
                yield _ready(key, self._events_from_api.labelled(issue, each))

    async def _comments_since(self, since: datetime) -> AsyncIterator[FoundEvent]:
        for comment in await self._reader.comments_since(since):
            if self._counts(comment):
                key = comment_key(self._repository, "comment", comment.id)
                yield FoundEvent(key, partial(self._made, self._events_from_api.commented, comment, comment.number))
        for inline in await self._reader.inline_comments_since(since):
            if self._counts(inline):
                key = comment_key(self._repository, "review_comment", inline.id)
                yield FoundEvent(
                    key, partial(self._made, self._events_from_api.review_commented, inline, inline.number)
                )

    async def _of_pull(self, pull: PullRequest) -> AsyncIterator[FoundEvent]:
        since = self._since
        if since is not None and pull.updated_at is not None and pull.updated_at >= since:
            for review in await self._reader.reviews(pull.number):
                if review.submitted_at >= since and is_review_of_bot(review, pull, self._bot.user):
                    key = comment_key(self._repository, "review", review.id)
                    yield FoundEvent(key, partial(self._made, self._events_from_api.reviewed, review, pull.number))
        if pull.author != self._bot.user:
            return
        failed = [each for each in await self._reader.failed_checks(pull.head) if each.conclusion in FAILURES]
        if failed:
            yield _ready(checks_key(self._repository, pull.head), self._events_from_api.checks_failed(pull, failed[0]))

    def _counts(self, comment: IssueComment) -> bool:
        """False for edited comments, because their original text is unknown."""
        return bool(comment.number) and not comment.edited and is_request(comment.body, comment.author, self._bot.user)

    async def _made(self, make: Callable[[C, GitHubIssue], Event], found: C, number: int) -> Event | None:
        issue = await self._issue(number)
        return make(found, issue) if issue else None

    async def _issue(self, number: int) -> GitHubIssue | None:
        """None if it was deleted or moved to another repository."""
        try:
            return await self._reader.issue(number)
        except NoAccess:
            return None


def _ready(key: str, event: Event) -> FoundEvent:
    async def made() -> Event:
        return event

    return FoundEvent(key, made)


MAX_REPOSITORIES = 60
"""Repositories of one installation per round; those polled longest ago come first."""
OVERLAP = timedelta(minutes=2)
"""Clocks differ; what is seen twice is found decided."""
LOOK_BACK = timedelta(minutes=30)
"""Look back further than redelivered webhooks need, to see whether they arrived."""
DELIVERIES_KEPT = timedelta(days=3)
FIRST_LOOK_BACK = timedelta(hours=1)
PAUSE = timedelta(minutes=5)
PAUSE_WITHOUT_WEBHOOKS = timedelta(minutes=1)
PAUSE_A_REPOSITORY = timedelta(seconds=5)
"""Four requests each, of the 5,000 that an installation may send in an hour."""
MAX_ATTEMPTS = 5
"""How often GitHub is asked to send a webhook again."""

logger = logging.getLogger(__name__)

Handle = Callable[[Event], Awaitable[str]]


class Poller:
    """Polls GitHub and passes what it finds to the event handler."""

    def __init__(
        self, github_clients: GitHubClients, registration: AppRegistration, stores: Stores, handle: Handle
    ) -> None:
        self._github_clients = github_clients
        self._registration = registration
        self._stores = stores
        self._handle = handle
        self._sent_again: Counter[str] = Counter()
        self._began: datetime | None = None
        self._repositories = 0
        """The number of repositories polled since then."""

    async def when_due(self) -> None:
        """Poll, unless the last poll has only just finished."""
        now = self._stores.clock()
        webhooks = await asyncio.to_thread(self._stores.inbox.has_any)
        if self._began and now - self._began < pause_between(webhooks=webhooks, repositories=self._repositories):
            return
        self._began, self._repositories = now, 0
        await self.poll_all()

    async def poll_all(self) -> None:
        """Poll everything once. Failures are logged and retried by the next poll."""
        for poll in (self._lost_webhooks, self._installations):
            await self._carefully(poll(), poll.__name__)

    async def installation(self, number: int) -> None:
        """Poll one installation, for example a new one."""
        for installation in await self._registration.installations():
            if installation.id == number and installation.suspended_at is None:
                await self._carefully(self._look_into(number), f"installation {number}")

    async def _carefully(self, poll: Awaitable[None], what: str) -> bool:
        """Log a failed request; False if GitHub wants us to stop, so that the installation is skipped."""
        try:
            await poll
        except RateLimited as wait:
            logger.info("%s: %s", what, wait.message)
            return False
        except AgentFixError as error:
            logger.warning("%s: %s", what, error.message)
        return True

    async def _lost_webhooks(self) -> None:
        """Request failed deliveries again: GitHub never retries by itself."""
        now = self._stores.clock()
        polled = await asyncio.to_thread(self._stores.poll_cursors.last_poll, (OWN_DELIVERIES,))
        since = max(polled.get(OWN_DELIVERIES, now - FIRST_LOOK_BACK) - LOOK_BACK, now - DELIVERIES_KEPT)
        try:
            sent = await self._registration.deliveries(since)
        except NoAccess:  # the App has no webhook
            return
        lost_ones = missed(sent)
        for each in reversed(lost_ones):
            if self._sent_again[each.guid] < MAX_ATTEMPTS and not _under_way(each, now):
                self._sent_again[each.guid] += 1
                await self._send_again(each)
        still_lost = {each.guid for each in lost_ones}
        self._sent_again = Counter({guid: times for guid, times in self._sent_again.items() if guid in still_lost})
        await asyncio.to_thread(self._stores.poll_cursors.mark_polled, OWN_DELIVERIES, now)

    async def _send_again(self, delivery: DeliveryResponse) -> None:
        try:
            await self._registration.redeliver(delivery.id)
        except (NoAccess, NeedsHumanAction) as error:  # too old or deleted
            logger.info("delivery %s cannot be sent again: %s", delivery.guid, error.message)

    async def _installations(self) -> None:
        found = await self._registration.installations()
        active = {each.id for each in found if each.suspended_at is None}
        running_jobs = await asyncio.to_thread(self._stores.job_queries.active_jobs)
        for number in {each.job_context.issue_ref.installation for each in running_jobs} - active:
            await self._handle(access_lost(number))
        for number in sorted(active):
            await self._carefully(self._look_into(number), f"installation {number}")

    async def _look_into(self, installation: int) -> None:
        opened = await self._registration.repositories(installation)
        running_jobs = await asyncio.to_thread(self._stores.job_queries.active_jobs, installation)
        removed = {each.job_context.issue_ref.repository for each in running_jobs} - {each.id for each in opened}
        if removed:
            await self._handle(access_lost(installation, tuple(sorted(removed))))
        poll_cursors = await asyncio.to_thread(self._stores.poll_cursors.last_poll, [each.id for each in opened])
        for repository in _chosen(opened, running_jobs, poll_cursors):
            if repository.archived:
                continue
            here = [each for each in running_jobs if each.job_context.issue_ref.repository == repository.id]
            poll = self._look_at(installation, repository, poll_cursors.get(repository.id), here)
            if not await self._carefully(poll, f"{repository.owner}/{repository.name}"):
                return

    async def _look_at(
        self, installation: int, repository: Repository, polled: datetime | None, running_jobs: list[JobWithContext]
    ) -> None:
        self._repositories += 1
        began = self._stores.clock()
        reader = self._github_clients.for_repository(installation, repository)
        bot = await self._github_clients.ourselves(reader)
        poll = RepositoryPoll(
            reader, EventsFromApi(installation, repository), bot, polled - OVERLAP if polled else None
        )
        async for found in poll.found(running_jobs):
            known = await asyncio.to_thread(self._stores.triggers.decided, found.key)
            if known is not None:
                continue
            if event := await found.event():
                logger.info("%s, without a webhook: %s", event.kind, await self._handle(event))
        await asyncio.to_thread(self._stores.poll_cursors.mark_polled, repository.id, began)


def pause_between(*, webhooks: bool, repositories: int) -> timedelta:
    """The time between two polls. Without webhooks, polls are the only source of events."""
    return PAUSE if webhooks else max(PAUSE_WITHOUT_WEBHOOKS, repositories * PAUSE_A_REPOSITORY)


def _under_way(delivery: DeliveryResponse, now: datetime) -> bool:
    """True if it was sent or requested again just now: its outcome is not known yet."""
    return now - delivery.delivered_at < timedelta(minutes=1) and (delivery.redelivery or delivery.status_code == 0)


def _chosen(
    opened: Iterable[Repository], running_jobs: Iterable[JobWithContext], poll_cursors: Mapping[int, datetime]
) -> list[Repository]:
    """Repositories with active jobs first, then those polled longest ago or never."""
    busy = {each.job_context.issue_ref.repository for each in running_jobs}
    never = datetime.min.replace(tzinfo=UTC)
    ordered = sorted(opened, key=lambda each: (each.id not in busy, poll_cursors.get(each.id, never), each.id))
    return ordered[:MAX_REPOSITORIES]
