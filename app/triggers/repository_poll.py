"""Polls one repository: its current state and what was written since the last poll, as lazy events."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from app.github.errors import NoAccess
from app.github.models import GitHubIssue, IssueComment, PullRequest, PullRequestReview
from app.jobs.job_queries import JobWithContext
from app.triggers.decisions import BotAccount
from app.triggers.events import Event
from app.triggers.events_from_api import EventsFromApi, is_request, is_review_of_bot
from app.triggers.github_clients import RepositoryClients
from app.triggers.rules import LABEL
from app.triggers.trigger_keys import checks_key, comment_key, label_key
from app.triggers.webhook_parser import FAILURES

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
        readers: RepositoryClients,
        events_from_api: EventsFromApi,
        bot_identity: BotAccount,
        since: datetime | None,
    ) -> None:
        self._readers = readers
        self._events_from_api = events_from_api
        self._bot_identity = bot_identity
        self._since = since

    @property
    def _repository(self) -> int:
        return self._readers.api.repository.id

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
        pulls = await self._readers.pulls.open()
        for pull in pulls:
            async for found in self._of_pull(pull):
                yield found
        for base in sorted({pull.base_branch for pull in pulls if pull.author == self._bot_identity.user}):
            yield _ready("", self._events_from_api.pushed(base))

    async def _called_off(self, job: JobWithContext) -> AsyncIterator[FoundEvent]:
        number, origin = job.job_context.issue_ref.number, job.job.task.origin
        issue = await self._issue(number)
        if issue is None:
            on_pull = origin is not None and origin.is_pull_request
            yield _ready("", self._events_from_api.deleted(number, is_pull_request=on_pull))
            return
        issue_events = await self._readers.comments.events(number)
        for event in self._events_from_api.called_off(issue, issue_events, job.job.created_at):
            yield _ready("", event)

    async def _labelled(self, working: set[int]) -> AsyncIterator[FoundEvent]:
        for issue in await self._readers.facts.labelled(LABEL):
            untouched = self._since is not None and issue.updated_at < self._since
            if untouched or issue.number in working:
                continue
            issue_events = await self._readers.comments.events(issue.number)
            put_on = [each for each in issue_events if each.event == "labeled" and each.label.casefold() == LABEL]
            if put_on:
                key = label_key(self._repository, issue.number, put_on[-1].at)
                yield _ready(key, self._events_from_api.labelled(issue, put_on[-1]))

    async def _comments_since(self, since: datetime) -> AsyncIterator[FoundEvent]:
        for comment in await self._readers.comments.comments_since(since):
            if self._counts(comment):
                key = comment_key(self._repository, "comment", comment.id)
                yield FoundEvent(key, partial(self._made, self._events_from_api.commented, comment, comment.number))
        for inline in await self._readers.comments.inline_since(since):
            if self._counts(inline):
                key = comment_key(self._repository, "review_comment", inline.id)
                yield FoundEvent(
                    key, partial(self._made, self._events_from_api.review_commented, inline, inline.number)
                )

    async def _of_pull(self, pull: PullRequest) -> AsyncIterator[FoundEvent]:
        since = self._since
        if since is not None and pull.updated_at is not None and pull.updated_at >= since:
            for review in await self._readers.facts.reviews(pull.number):
                if review.submitted_at >= since and is_review_of_bot(review, pull, self._bot_identity.user):
                    key = comment_key(self._repository, "review", review.id)
                    yield FoundEvent(key, partial(self._made, self._events_from_api.reviewed, review, pull.number))
        if pull.author != self._bot_identity.user:
            return
        failed = [each for each in await self._readers.checks.failed(pull.head) if each.conclusion in FAILURES]
        if failed:
            yield _ready(checks_key(self._repository, pull.head), self._events_from_api.checks_failed(pull, failed[0]))

    def _counts(self, comment: IssueComment) -> bool:
        """False for edited comments, because their original text is unknown."""
        return (
            bool(comment.number)
            and not comment.edited
            and is_request(comment.body, comment.author, self._bot_identity.user)
        )

    async def _made(self, make: Callable[[C, GitHubIssue], Event], found: C, number: int) -> Event | None:
        issue = await self._issue(number)
        return make(found, issue) if issue else None

    async def _issue(self, number: int) -> GitHubIssue | None:
        """None if it was deleted or moved to another repository."""
        try:
            return await self._readers.facts.issue(number)
        except NoAccess:
            return None


def _ready(key: str, event: Event) -> FoundEvent:
    async def made() -> Event:
        return event

    return FoundEvent(key, made)
