"""Applies changes that affect active jobs: lost access, a closed issue, an edited description, a moved branch."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.config.repository import OperatorDefaults, RepoConfig
from app.core.task import TaskOrigin
from app.github.models import PullRequest
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import Trigger
from app.triggers.decisions import IssueState, JobRequest, Notification
from app.triggers.event_facts import EventFacts, TriggerContext, pull_request_state
from app.triggers.events import Event, EventSubject, conflict_key
from app.triggers.fact_loader import read_config
from app.triggers.github_clients import RepositoryContext
from app.triggers.job_creator import JobCreator, RetryLater, StateChanged
from app.triggers.stores import Stores

if TYPE_CHECKING:
    from app.core.job import JobState

CALLED_OFF = {
    "unlabelled": "Its label was removed.",
    "issue_closed": "The issue was closed.",
    "issue_deleted": "The issue was deleted.",
    "issue_transferred": "The issue was moved to another repository.",
    "pull_request_closed": "The pull request was closed.",
}
EDITED = "The description was edited; the job continues with the text from when it was requested."
MOVED = "The repository was renamed or transferred; the job continues."
PUSHED = "Someone pushed to the branch; agent-fix keeps their commits."


class ChangeNotifications:
    """Handles notifications; each may be handled twice."""

    def __init__(self, stores: Stores, job_creator: JobCreator, operator: OperatorDefaults) -> None:
        self._operator = operator
        self._stores = stores
        self._job_creator = job_creator

    async def follow(self, notification: Notification, event: Event, repo_context: RepositoryContext | None) -> str:
        """Handle a notification; `repo_context` is given if we have access to the repository."""
        if notification.aim == "head_moved":
            return await self._head_moved(notification, event, repo_context)
        if notification.aim == "base_moved":
            return await self._base_moved(notification, event, repo_context)
        return await asyncio.to_thread(self._notify, notification, open_to_us=repo_context is not None)

    def _notify(self, notification: Notification, *, open_to_us: bool) -> str:
        match notification.aim:
            case "stop":
                return self._call_off(notification)
            case "edited":
                return self._note(notification, EDITED)
            case "moved" if open_to_us:
                return self._note(notification, MOVED)
            case "no_access" | "moved":
                return self._end(notification)
        return notification.aim

    def _call_off(self, notification: Notification) -> str:
        reason = CALLED_OFF.get(notification.rule, "It was cancelled.")
        ended = [self._stores.queue.stop(each.job.id, reason) for each in self._meant(notification)]
        return f"stopped {len(ended)}"

    def _end(self, notification: Notification) -> str:
        """End the jobs at once, without waiting for their processes, because nothing can be posted there any more."""
        state: JobState = "no_access"
        reason = "The App no longer has access to this repository."
        ended = [self._stores.queue.end(each.job.id, state, reason) for each in self._meant(notification)]
        return f"no access {sum(ended)}"

    def _note(self, notification: Notification, text: str) -> str:
        jobs = self._meant(notification)
        for each in jobs:
            if all(
                row.text != text for row in self._stores.job_store().progress_since(each.job.id) if row.kind == "note"
            ):
                self._stores.job_store().add_progress(each.job.id, "note", text)
        return f"noted {len(jobs)}"

    def _meant(self, notification: Notification) -> list[JobWithContext]:
        running_jobs: Iterable[JobWithContext] = self._stores.job_queries.active_jobs(
            installation=notification.installation
        )
        if notification.repositories:
            running_jobs = (
                each for each in running_jobs if each.job_context.issue_ref.repository in notification.repositories
            )
        return [
            each
            for each in running_jobs
            if notification.number in {None, each.job_context.issue_ref.number} or each.job.id == notification.job
        ]

    async def _head_moved(
        self, notification: Notification, event: Event, repo_context: RepositoryContext | None
    ) -> str:
        noted = await asyncio.to_thread(self._note, notification, PUSHED) if notification.job else "noted 0"
        if repo_context is None or notification.number is None:
            return noted
        pull = await repo_context.reader.pull_request(notification.number)
        return f"{noted}; {await self._resolve([pull] if pull else [], event, repo_context)}"

    async def _base_moved(
        self, notification: Notification, event: Event, repo_context: RepositoryContext | None
    ) -> str:
        """Handle a push to a base branch.

        If none of our pull requests has this base, it costs only a database query.
        """
        if repo_context is None or not await asyncio.to_thread(
            self._stores.job_queries.has_jobs_in, repo_context.repository.id
        ):
            return "no job"
        pulls = await repo_context.reader.open_pull_requests(base=notification.branch)
        return await self._resolve(pulls, event, repo_context)

    async def _resolve(self, pulls: Iterable[PullRequest], event: Event, repo_context: RepositoryContext) -> str:
        """Start to resolve the conflicts of our own pull requests, if the repository allows it."""
        ours = [each for each in pulls if each.author == repo_context.ours.user and each.open]
        if not ours:
            return "not a pull request of the bot"
        config = await read_config(repo_context.reader, self._operator)
        if not isinstance(config, RepoConfig) or not config.iterate.conflicts:
            return "people resolve conflicts here"
        started = [await self._resolve_one(each.number, config, event, repo_context) for each in ours]
        return f"conflicts: {', '.join(started)}"

    async def _resolve_one(self, number: int, config: RepoConfig, event: Event, repo_context: RepositoryContext) -> str:
        pull = await repo_context.reader.pull_request(
            number
        )  # GitHub reports mergeability only for a single pull request
        repository = repo_context.repository.id
        if pull is None or not pull.open or pull.head_repository != repository:
            return "none"
        if pull.mergeable is None:
            raise RetryLater(f"GitHub does not know yet whether #{number} can be merged.")
        if pull.mergeable:
            return "none"
        job_queries = self._stores.job_queries
        busy = await asyncio.to_thread(job_queries.active, repository, number)
        if (
            busy is not None
            or await asyncio.to_thread(job_queries.follow_up_count, repository, number) >= config.iterate.max
        ):
            return "not now"
        tip = await repo_context.reader.head(pull.base_branch)
        key = conflict_key(repository, number, pull.head, tip or pull.base)
        if await asyncio.to_thread(self._stores.triggers.decided, key):
            return "known"
        bot, state = repo_context.ours, IssueState(installation=repo_context.installation)
        trigger = Trigger(key, repository, number, bot.user, "rebase", self._stores.clock())
        found = EventFacts(event, None, bot, state, config, pull=pull)
        try:
            return await self._job_creator.move(
                _order(pull, repo_context), TriggerContext(repo_context, trigger, found)
            )
        except StateChanged:
            return "not now"


def _subject(pull: PullRequest) -> EventSubject:
    return EventSubject(
        number=pull.number,
        is_pull_request=True,
        title=pull.title,
        body=pull.body,
        author=pull.author or None,
        labels=(),
        head=pull_request_state(pull).head,
    )


def _order(pull: PullRequest, repo_context: RepositoryContext) -> JobRequest:
    origin = TaskOrigin(
        installation=repo_context.installation,
        repository=repo_context.repository.id,
        number=pull.number,
        is_pull_request=True,
        actor=repo_context.ours.user,
    )
    return JobRequest(
        aim="rebase",
        origin=origin,
        subject=_subject(pull),
        trigger=f"conflicts:{pull.head[:20]}",
        destination="same_branch",
        head=pull_request_state(pull).head,
    )
