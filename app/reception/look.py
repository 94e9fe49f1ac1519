"""One look at one repository: what stands there now, and what was said since the last look, as events not yet made."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from app.events import Event
from app.forge.errors import NoAccess
from app.forge.facts import CommentFacts, IssueFacts, PullRequestFacts, ReviewFacts
from app.intake import LABEL
from app.jobs.roster import Commissioned
from app.orders import Bot
from app.payload import FAILURES
from app.reception.doors import Readers
from app.reception.hindsight import Hindsight, asks, reviews_us
from app.reception.keys import checks_key, label_key, said_key

C = TypeVar("C", bound=CommentFacts | ReviewFacts)


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a webhook may have told already: then its key is decided, and the event need not be made."""

    key: str
    """Empty for what has none and may be handled twice."""
    event: Callable[[], Awaitable[Event | None]]


class Look:
    """`since` is None for the first look: then only what stands now counts, and no old words do."""

    def __init__(self, readers: Readers, hindsight: Hindsight, us: Bot, since: datetime | None) -> None:
        self._readers = readers
        self._hindsight = hindsight
        self._us = us
        self._since = since

    @property
    def _repository(self) -> int:
        return self._readers.door.repository.id

    async def found(self, living: list[Commissioned]) -> AsyncIterator[Found]:
        """Work that is called off comes first."""
        for job in living:
            async for found in self._called_off(job):
                yield found
        async for found in self._labelled({job.commission.place.number for job in living}):
            yield found
        if self._since is not None:
            async for found in self._said(self._since):
                yield found
        pulls = await self._readers.pulls.open()
        for pull in pulls:
            async for found in self._of_pull(pull):
                yield found
        for base in sorted({pull.base_branch for pull in pulls if pull.author == self._us.user}):
            yield _ready("", self._hindsight.pushed(base))

    async def _called_off(self, job: Commissioned) -> AsyncIterator[Found]:
        number, origin = job.commission.place.number, job.job.task.origin
        issue = await self._issue(number)
        if issue is None:
            on_pull = origin is not None and origin.is_pull_request
            yield _ready("", self._hindsight.deleted(number, is_pull_request=on_pull))
            return
        happened = await self._readers.talk.happened(number)
        for event in self._hindsight.called_off(issue, happened, job.job.created_at):
            yield _ready("", event)

    async def _labelled(self, working: set[int]) -> AsyncIterator[Found]:
        for issue in await self._readers.facts.labelled(LABEL):
            untouched = self._since is not None and issue.updated_at < self._since
            if untouched or issue.number in working:
                continue
            happened = await self._readers.talk.happened(issue.number)
            put_on = [each for each in happened if each.event == "labeled" and each.label.casefold() == LABEL]
            if put_on:
                key = label_key(self._repository, issue.number, put_on[-1].at)
                yield _ready(key, self._hindsight.labelled(issue, put_on[-1]))

    async def _said(self, since: datetime) -> AsyncIterator[Found]:
        for comment in await self._readers.talk.comments_since(since):
            if self._counts(comment):
                key = said_key(self._repository, "comment", comment.id)
                yield Found(key, partial(self._made, self._hindsight.commented, comment, comment.number))
        for inline in await self._readers.talk.inline_since(since):
            if self._counts(inline):
                key = said_key(self._repository, "review_comment", inline.id)
                yield Found(key, partial(self._made, self._hindsight.review_commented, inline, inline.number))

    async def _of_pull(self, pull: PullRequestFacts) -> AsyncIterator[Found]:
        since = self._since
        if since is not None and pull.updated_at is not None and pull.updated_at >= since:
            for review in await self._readers.facts.reviews(pull.number):
                if review.submitted_at >= since and reviews_us(review, pull, self._us.user):
                    key = said_key(self._repository, "review", review.id)
                    yield Found(key, partial(self._made, self._hindsight.reviewed, review, pull.number))
        if pull.author != self._us.user:
            return
        failed = [each for each in await self._readers.checks.failed(pull.head) if each.conclusion in FAILURES]
        if others := [each for each in failed if each.app != self._us.app]:
            yield _ready(checks_key(self._repository, pull.head), self._hindsight.checks_failed(pull, others[0]))

    def _counts(self, comment: CommentFacts) -> bool:
        """What was edited is not known as it was said."""
        return bool(comment.number) and not comment.edited and asks(comment.body, comment.author, self._us.user)

    async def _made(self, make: Callable[[C, IssueFacts], Event], said: C, number: int) -> Event | None:
        issue = await self._issue(number)
        return make(said, issue) if issue else None

    async def _issue(self, number: int) -> IssueFacts | None:
        """None where it was deleted, or moved to another repository."""
        try:
            return await self._readers.facts.issue(number)
        except NoAccess:
            return None


def _ready(key: str, event: Event) -> Found:
    async def made() -> Event:
        return event

    return Found(key, made)
