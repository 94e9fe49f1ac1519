"""Applies changes that affect active jobs: lost access, a closed issue, an edited description, a moved branch."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from app.config.repository import OperatorDefaults, RepoConfig
from app.core.task import TaskOrigin
from app.github.models import PullRequest
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import Trigger
from app.triggers.decisions import (
    EventFacts,
    IssueState,
    JobRequest,
    Notification,
    TriggerAnswer,
    TriggerContext,
    pull_request_state,
)
from app.triggers.events import Event, EventSubject, conflict_key
from app.triggers.fact_loader import read_config
from app.triggers.github_clients import RepositoryContext
from app.triggers.job_creator import JobCreator, RetryLater, StateChanged
from app.triggers.stores import Stores

CALLED_OFF = {
    "unlabelled": "Its label was removed.",
    "issue_closed": "The issue was closed.",
    "issue_deleted": "The issue was deleted.",
    "issue_transferred": "The issue was moved to another repository.",
    "pull_request_closed": "The pull request was closed.",
}
NO_ACCESS = "The App no longer has access to this repository."
EDITED = "The description was edited; the job continues with the text from when it was requested."
MOVED = "The repository was renamed or transferred; the job continues."
PUSHED = "Someone pushed to the branch; agent-fix keeps their commits."


class ChangeNotifications:
    """Handles notifications; each may be handled twice."""

    def __init__(
        self,
        stores: Stores,
        job_creator: JobCreator,
        operator: OperatorDefaults,
        post_and_record: Callable[[TriggerContext, TriggerAnswer], Awaitable[str]],
    ) -> None:
        self._operator = operator
        self._stores = stores
        self._job_creator = job_creator
        self._post_and_record = post_and_record

    async def follow(self, notification: Notification, event: Event, repo: RepositoryContext | None) -> str:
        """Handle a notification; `repo` is given if we have access to the repository."""
        match notification.aim:
            case "head_moved":
                noted = await asyncio.to_thread(self._note, notification, PUSHED) if notification.job else "noted 0"
                if repo is None or notification.number is None:
                    return noted
                pull = await repo.reader.pull_request(notification.number)
                return f"{noted}; {await self._resolve([pull] if pull else [], event, repo)}"
            case "base_moved":
                # If none of our pull requests can have this base, it costs only a database query.
                has_jobs = self._stores.job_queries.has_jobs_in
                if repo is None or not await asyncio.to_thread(has_jobs, repo.repository.id):
                    return "no job"
                pulls = await repo.reader.open_pull_requests(base=notification.branch)
                return await self._resolve(pulls, event, repo)
            case _:
                return await asyncio.to_thread(self._notify, notification, open_to_us=repo is not None)

    def _notify(self, notification: Notification, *, open_to_us: bool) -> str:
        match notification.aim:
            case "stop":
                reason, meant = CALLED_OFF.get(notification.rule, "It was cancelled."), self._meant(notification)
                for each in meant:
                    self._stores.queue.stop(each.job.id, reason)
                return f"stopped {len(meant)}"
            case "edited":
                return self._note(notification, EDITED)
            case "moved" if open_to_us:
                return self._note(notification, MOVED)
            case "no_access" | "moved":
                # At once, without waiting for their processes, because nothing can be posted there any more.
                end, meant = self._stores.queue.end, self._meant(notification)
                return f"no access {sum(end(each.job.id, 'no_access', NO_ACCESS) for each in meant)}"
        return notification.aim

    def _note(self, notification: Notification, text: str) -> str:
        jobs, store = self._meant(notification), self._stores.job_store()
        for each in jobs:
            if not any(row.kind == "note" and row.text == text for row in store.progress_since(each.job.id)):
                store.add_progress(each.job.id, "note", text)
        return f"noted {len(jobs)}"

    def _meant(self, notification: Notification) -> list[JobWithContext]:
        return [
            each
            for each in self._stores.job_queries.active_jobs(installation=notification.installation)
            if not notification.repositories or each.job_context.issue_ref.repository in notification.repositories
            if notification.number in {None, each.job_context.issue_ref.number} or each.job.id == notification.job
        ]

    async def _resolve(self, pulls: Iterable[PullRequest], event: Event, repo: RepositoryContext) -> str:
        """Start to resolve the conflicts of our own pull requests, if the repository allows it."""
        ours = [each for each in pulls if each.author == repo.ours.user and each.open]
        if not ours:
            return "not a pull request of the bot"
        config = await read_config(repo.reader, self._operator)
        if not isinstance(config, RepoConfig) or not config.iterate.conflicts:
            return "people resolve conflicts here"
        started = [await self._resolve_one(each.number, config, event, repo) for each in ours]
        return f"conflicts: {', '.join(started)}"

    async def _resolve_one(self, number: int, config: RepoConfig, event: Event, repo: RepositoryContext) -> str:
        pull = await repo.reader.pull_request(number)  # GitHub reports mergeability only for a single pull request
        repository, queries = repo.repository.id, self._stores.job_queries
        if pull is not None and pull.open and pull.head_repository == repository and pull.mergeable is None:
            raise RetryLater(f"GitHub does not know yet whether #{number} can be merged.")
        if pull is None or not pull.open or pull.head_repository != repository or pull.mergeable:
            return "none"
        if await asyncio.to_thread(queries.active, repository, number) is not None:
            return "not now"
        if await asyncio.to_thread(queries.follow_up_count, repository, number) >= config.iterate.max:
            return "not now"
        tip = await repo.reader.head(pull.base_branch)
        key = conflict_key(repository, number, pull.head, tip or pull.base)
        if await asyncio.to_thread(self._stores.triggers.decided, key):
            return "known"
        trigger = Trigger(key, repository, number, repo.ours.user, "rebase", self._stores.clock())
        found = EventFacts(event, None, repo.ours, IssueState(installation=repo.installation), config, pull=pull)
        context = TriggerContext(repo, trigger, found)
        try:
            outcome = await self._job_creator.move(_conflict_request(pull, repo), context)
        except StateChanged:
            return "not now"
        return await self._post_and_record(context, outcome) if isinstance(outcome, TriggerAnswer) else outcome


def _conflict_request(pull: PullRequest, repo: RepositoryContext) -> JobRequest:
    head = pull_request_state(pull).head
    return JobRequest(
        aim="rebase",
        origin=TaskOrigin(
            installation=repo.installation,
            repository=repo.repository.id,
            number=pull.number,
            is_pull_request=True,
            actor=repo.ours.user,
        ),
        subject=EventSubject(
            number=pull.number,
            is_pull_request=True,
            title=pull.title,
            body=pull.body,
            author=pull.author or None,
            head=head,
        ),
        trigger=f"conflicts:{pull.head[:20]}",
        destination="same_branch",
        head=head,
    )
