"""Finds what no webhook reported: compares GitHub with the database every few minutes, and handles the difference.

Labels, comments, reviews, failing checks, work called off: each becomes the event that was lost, under the same key, so
that whatever did arrive is found decided. Requests are bounded; a repository that was not reached keeps its last look.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from app.core.errors import AgentFixError
from app.core.task import IssueRef
from app.github.auth import AppRegistration, missed
from app.github.base import NeedsHumanAction, NoAccess, RateLimited
from app.github.models import (
    GHOST,
    Account,
    DeliveryResponse,
    GitHubIssue,
    IssueComment,
    IssueEvent,
    PullRequest,
    PullRequestReview,
    Repository,
)
from app.jobs.store import JobWithContext
from app.jobs.trigger_log import OWN_DELIVERIES
from app.triggers.commands import parse
from app.triggers.events import (
    FAILURES,
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
from app.triggers.github_clients import GitHubClients, RepositoryContext, if_accessible
from app.triggers.rules import CHANGES_REQUESTED, LABEL, REPRODUCE_LABEL, WORK_LABELS, starts_job
from app.triggers.stores import Stores

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


def subject_of(issue: GitHubIssue) -> EventSubject:
    return EventSubject(
        number=issue.number,
        is_pull_request=issue.pull_request,
        title=issue.title,
        body=issue.body,
        author=issue.author or None,
        labels=issue.labels,
        milestone=issue.milestone,
        node=issue.node,
    )


def label_added(installation: int, repository: Repository, issue: GitHubIssue, added: IssueEvent) -> LabelAdded:
    """The event of a label, as its webhook would tell."""
    return LabelAdded(
        installation=installation,
        repository=repository,
        actor=added.actor,
        subject=subject_of(issue),
        label=added.label,
    )


class RepositoryPoll:
    """Finds the events of one repository that are not decided yet, by their keys.

    `since` is None for the first poll: then only the current state counts, not old comments.
    """

    def __init__(
        self, repo: RepositoryContext, since: datetime | None, is_decided: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._repo = repo
        self._reader = repo.reader
        self._since = since
        self._is_decided = is_decided

    async def events(self, running_jobs: list[JobWithContext]) -> AsyncIterator[Event]:
        """The events found; those that end work come first."""
        for job in running_jobs:
            async for event in self._job_ending_events(job):
                yield event
        async for event in self._labels({job.job_context.issue_ref.number for job in running_jobs}):
            yield event
        if self._since is not None:
            async for event in self._comments(self._since):
                yield event
        pulls, bot = await self._reader.open_pull_requests(), self._repo.ours.user
        for pull in pulls:
            async for event in self._reviews_and_checks(pull):
                yield event
        for base in sorted({pull.base_branch for pull in pulls if pull.author == bot}):
            # As if the branch had just moved: pull requests against it may conflict.
            yield Pushed(**self._by(GHOST), branch=base)

    async def _job_ending_events(self, job: JobWithContext) -> AsyncIterator[Event]:
        """The issue was closed or deleted, or our label was removed. Without a key: they may be handled twice."""
        number, origin = job.job_context.issue_ref.number, job.job.task.origin
        issue = await if_accessible(self._reader.issue(number))
        if issue is None:
            on_pull = origin is not None and origin.is_pull_request
            subject = EventSubject(number=number, is_pull_request=on_pull, title="", author=None)
            yield IssueChanged(**self._by(GHOST), change="deleted", subject=subject)
            return
        for each in await self._reader.issue_events(number):
            if each.at < job.job.created_at:
                continue
            if each.event == "closed":
                yield IssueChanged(**self._by(each.actor), change="closed", subject=subject_of(issue))
            elif each.event == "unlabeled" and each.label.casefold() in WORK_LABELS:
                yield LabelRemoved(**self._by(each.actor), subject=subject_of(issue), label=each.label)

    async def _labels(self, working: set[int]) -> AsyncIterator[Event]:
        reader, since = self._reader, self._since
        # GitHub finds labels by their whole name, so `agent-fix:NAME` is found among the issues that changed.
        for issue in await (self._labelled() if since is None else reader.changed_since(since)):
            if issue.number in working or not any(map(starts_job, issue.labels)):
                continue
            issue_events = await reader.issue_events(issue.number)
            added = [each for each in issue_events if each.event == "labeled" and starts_job(each.label)]
            newest = {each.label: each for each in added if each.label in issue.labels}
            for each in newest.values():  # somebody without the permission may have added another one since
                if not await self._is_decided(label_key(self._repo.repository.id, issue.number, each.at)):
                    yield label_added(self._repo.installation, self._repo.repository, issue, each)

    async def _labelled(self) -> tuple[GitHubIssue, ...]:
        return tuple([each for label in (LABEL, REPRODUCE_LABEL) for each in await self._reader.labelled(label)])

    async def _comments(self, since: datetime) -> AsyncIterator[Event]:
        for comment in await self._reader.comments_since(since):
            if fields := await self._new_request("comment", comment):
                yield IssueCommented(**fields)
        for inline in await self._reader.inline_comments_since(since):
            if fields := await self._new_request("review_comment", inline):
                yield ReviewCommented(**fields, thread=inline.thread)

    async def _new_request(
        self, kind: Literal["comment", "review_comment"], comment: IssueComment
    ) -> dict[str, Any] | None:
        """The fields of a comment's event; None if it asks for nothing, is decided, or was edited.

        The original text of an edited comment is unknown.
        """
        if not comment.number or not self._is_request(comment.body, comment.author):
            return None
        if await self._is_decided(comment_key(self._repo.repository.id, kind, comment.id)):
            return None
        if comment.may_be_edited:
            edit = await if_accessible(self._reader.last_edit(comment.node))
            if edit is None or edit.edited_at is not None:
                return None
        issue = await if_accessible(self._reader.issue(comment.number))
        if issue is None:
            return None
        author = Account(id=comment.author, login=comment.author_name, kind=comment.kind)
        fields = {"id": comment.id, "text": comment.body, "at": comment.created_at, "app": comment.app}
        return {**self._by(author), **fields, "subject": subject_of(issue)}

    async def _reviews_and_checks(self, pull: PullRequest) -> AsyncIterator[Event]:
        since, repository = self._since, self._repo.repository.id
        if since is not None and pull.updated_at is not None and pull.updated_at >= since:
            for review in await self._reader.reviews(pull.number):
                if review.submitted_at < since or not self._is_review_of_bot(review, pull):
                    continue
                if await self._is_decided(comment_key(repository, "review", review.id)):
                    continue
                edit = await if_accessible(self._reader.last_edit(review.node))
                if edit is None or edit.edited_at is not None:  # as with comments
                    continue
                if issue := await if_accessible(self._reader.issue(pull.number)):
                    yield ReviewSubmitted(
                        **self._by(Account(id=review.author, login=review.author_name, kind=review.kind)),
                        subject=subject_of(issue),
                        id=review.id,
                        text=review.body,
                        at=review.submitted_at,
                        verdict=review.state,
                    )
        if pull.author != self._repo.ours.user:
            return
        failed = [each for each in await self._reader.failed_checks(pull.head) if each.conclusion in FAILURES]
        if failed and not await self._is_decided(checks_key(repository, pull.head)):
            # They have no actor of their own; what counts is whose checks they are.
            yield ChecksFailed(
                **self._by(GHOST),
                source="check_suite",
                id=failed[0].id,
                name=failed[0].name,
                conclusion=failed[0].conclusion,
                head_ref=pull.head_branch,
                head_sha=pull.head,
                pull_requests=(pull.number,),
                app=failed[0].app,
            )

    def _is_request(self, text: str, author: int) -> bool:
        """True if a text is addressed to the bot by an account that still exists."""
        return author not in {0, self._repo.ours.user} and parse(text) is not None

    def _is_review_of_bot(self, review: PullRequestReview, pull: PullRequest) -> bool:
        """True if a review is addressed to the bot, or requests changes to its pull request."""
        bot = self._repo.ours.user
        wants_changes = review.state == CHANGES_REQUESTED and pull.author == bot
        return self._is_request(review.body, review.author) or (wants_changes and review.author not in {0, bot})

    def _by(self, actor: Account) -> dict[str, Any]:
        return {"installation": self._repo.installation, "repository": self._repo.repository, "actor": actor}


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
        self._attempted: dict[int, datetime] = {}
        """When each repository was polled last, successfully or not."""

    async def when_due(self) -> None:
        """Poll, unless the last poll has only just finished."""
        now = self._stores.clock()
        webhooks = await asyncio.to_thread(self._stores.inbox.has_webhooks)
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
                await self._carefully(self._poll_installation(number), f"installation {number}")

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
                try:
                    await self._registration.redeliver(each.id)
                except (NoAccess, NeedsHumanAction) as error:  # too old or deleted
                    logger.info("delivery %s cannot be sent again: %s", each.guid, error.message)
        still_lost = {each.guid for each in lost_ones}
        self._sent_again = Counter({guid: times for guid, times in self._sent_again.items() if guid in still_lost})
        await asyncio.to_thread(self._stores.poll_cursors.mark_polled, OWN_DELIVERIES, now)

    async def _installations(self) -> None:
        found = await self._registration.installations()
        active = {each.id for each in found if each.suspended_at is None}
        running_jobs = await asyncio.to_thread(self._stores.job_queries.active_jobs)
        for number in {each.job_context.issue_ref.installation for each in running_jobs} - active:
            of_it = [each for each in running_jobs if each.job_context.issue_ref.installation == number]
            await self._carefully(self._end_without_access(number, of_it), f"installation {number}")
        for number in sorted(active):
            await self._carefully(self._poll_installation(number), f"installation {number}")

    async def _poll_installation(self, installation: int) -> None:
        opened = await self._registration.repositories(installation)
        running_jobs = await asyncio.to_thread(self._stores.job_queries.active_jobs, installation)
        listed = {each.id for each in opened}
        unlisted = [each for each in running_jobs if each.job_context.issue_ref.repository not in listed]
        await self._end_without_access(installation, unlisted)
        poll_cursors = await asyncio.to_thread(self._stores.poll_cursors.last_poll, [each.id for each in opened])
        in_use = [each for each in opened if not each.archived]
        chosen = _chosen(in_use, running_jobs, {**poll_cursors, **self._attempted})
        if len(chosen) < len(in_use):
            message = "installation %d: this round polls %d of %d repositories; the next rounds poll the others"
            logger.info(message, installation, len(chosen), len(in_use))
        for repository in chosen:
            here = [each for each in running_jobs if each.job_context.issue_ref.repository == repository.id]
            poll = self._poll_repository(installation, repository, poll_cursors.get(repository.id), here)
            if not await self._carefully(poll, f"{repository.owner}/{repository.name}"):
                return

    async def _end_without_access(self, installation: int, unlisted: Iterable[JobWithContext]) -> None:
        """End those of these jobs whose repositories are gone. Long lists are cut, so GitHub is asked for each."""
        issue_refs = {each.job_context.issue_ref.repository: each.job_context.issue_ref for each in unlisted}
        gone = [id for id, ref in issue_refs.items() if await self._serving(ref) != installation]  # noqa: A001
        if gone:
            repositories = tuple(sorted(gone))
            event = InstallationChanged(
                installation=installation, actor=GHOST, change="removed", repositories=repositories
            )
            await self._handle(event)

    async def _serving(self, issue_ref: IssueRef) -> int | None:
        """The installation that the issue's repository is in by now, whatever its name; None without access."""
        reader = await if_accessible(self._github_clients.for_issue(issue_ref))
        return await reader.installation() if reader else None

    async def _poll_repository(
        self, installation: int, repository: Repository, polled: datetime | None, running_jobs: list[JobWithContext]
    ) -> None:
        self._repositories += 1
        began = self._attempted[repository.id] = self._stores.clock()
        repo = await self._github_clients.context_of(
            self._github_clients.for_repository(installation, repository), repository
        )
        poll = RepositoryPoll(repo, polled - OVERLAP if polled else None, self._is_decided)
        async for event in poll.events(running_jobs):
            logger.info("%s, without a webhook: %s", event.kind, await self._handle(event))
        await asyncio.to_thread(self._stores.poll_cursors.mark_polled, repository.id, began)

    async def _is_decided(self, key: str) -> bool:
        return await asyncio.to_thread(self._stores.triggers.decided, key) is not None


def pause_between(*, webhooks: bool, repositories: int) -> timedelta:
    """The time between two polls. Without webhooks, polls are the only source of events."""
    return PAUSE if webhooks else max(PAUSE_WITHOUT_WEBHOOKS, repositories * PAUSE_A_REPOSITORY)


def _under_way(delivery: DeliveryResponse, now: datetime) -> bool:
    """True if it was sent or requested again just now: its outcome is not known yet."""
    return now - delivery.delivered_at < timedelta(minutes=1) and (delivery.redelivery or delivery.status_code == 0)


def _chosen(
    in_use: Iterable[Repository], running_jobs: Iterable[JobWithContext], attempted: Mapping[int, datetime]
) -> list[Repository]:
    """Repositories with active jobs first, then those polled longest ago or never."""
    busy = {each.job_context.issue_ref.repository for each in running_jobs}
    never = datetime.min.replace(tzinfo=UTC)
    ordered = sorted(in_use, key=lambda each: (each.id not in busy, attempted.get(each.id, never), each.id))
    return ordered[:MAX_REPOSITORIES]
