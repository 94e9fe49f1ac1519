"""Loads the facts about an event, with as few GitHub requests as the decision needs.

One of them is how many pull requests of the bot are open, or will be, against the repository's limit.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from app.config.repository import OperatorDefaults, RepoConfig
from app.core.job import JobResult
from app.core.task import Person
from app.github.base import NoAccess, TemporaryFailure
from app.github.models import Account, ActorPermission, IssueEvent, PullRequest
from app.github.permission import refusal
from app.github.reader import RepositoryReader
from app.github.refusals import NotFoundOnGitHub
from app.jobs.outcomes import pull_number
from app.jobs.store import JobWithContext
from app.jobs.trigger_log import Trigger
from app.publish.status_text import early_key
from app.triggers.commands import AgentCommand
from app.triggers.decisions import (
    EventFacts,
    IssueState,
    with_job,
)
from app.triggers.events import (
    Assigned,
    ChecksFailed,
    CommentEvent,
    Event,
    EventSubject,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    ProgramCommand,
    PullRequestChanged,
    RepositoryEvent,
    ReviewCommented,
    StateChangeEvent,
    TriggerEvent,
    key_of,
)
from app.triggers.github_clients import GitHubClients, RepositoryContext, if_accessible, read_config
from app.triggers.handlers import HANDLERS
from app.triggers.handlers.base import newest_job
from app.triggers.job_creator import branches_in_use
from app.triggers.neighbours import Mentions, Neighbour, neighbours_of
from app.triggers.stores import Stores


def job_behind(
    pull: PullRequest | None, here: JobWithContext | None, bot_id: int, stores: Stores
) -> JobWithContext | None:
    """The active job `here`, else the one that opened this draft early, else the last job here. Blocking."""
    if (
        pull is None
        or pull.author != bot_id
        or pull.head_repository is None
        or (here is not None and not here.row.final)
    ):
        return here
    for each in stores.job_queries.active_jobs(repository=pull.head_repository):
        draft = stores.outbox.status(early_key(each.job.id)) if each.job_context.opens_early else None
        if draft is not None and draft.receipt is not None and draft.receipt.branch == pull.head_branch:
            return each
    return here


STARTING_VERBS = frozenset(verb for verb, handler in HANDLERS.items() if handler.asks_for_work)
"""Verbs that ask for work: a stop that was requested before one of them does not stop it."""
STOPPING_VERBS = frozenset(verb for verb, handler in HANDLERS.items() if handler.ends_work)

T = TypeVar("T")
MOST_FORMER = 10
"""Jobs of an issue whose pull requests may still be open."""


class FactLoader:
    """Loads the facts about events, one after the other."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, operator: OperatorDefaults) -> None:
        self._operator = operator
        self._github_clients = github_clients
        self._stores = stores

    async def open(self, event: RepositoryEvent) -> RepositoryContext | None:
        """The event's repository by its current name; None if we have no access."""
        clients = self._github_clients
        try:
            reader, repository = await clients.for_repository(event.installation, event.repository).by_current_name()
            return await clients.context_of(reader, repository)
        except NoAccess:
            return None

    async def identify(
        self,
        event: TriggerEvent | ChecksFailed | LabelRemoved,
        command: AgentCommand | None,
        repo: RepositoryContext,
    ) -> Trigger:
        """The trigger, by a key that is the same by webhook and by poll.

        Raises TemporaryFailure if GitHub's API does not list the event yet.
        """
        if isinstance(event, ChecksFailed):
            now, bot = self._stores.clock(), repo.ours.user
            return Trigger(key_of(event, now), repo.repository.id, 0, bot, "fix_checks", now)
        is_named = not isinstance(event, LabelRemoved) and (not isinstance(event, ProgramCommand) or event.by_person)
        at, withdrawn = await self._asked_at(event, repo)
        return Trigger(
            key=key_of(event, at),
            repository=repo.repository.id,
            number=event.subject.number,
            actor=event.actor.id,
            verb=command.verb if command else "",
            at=at,
            login=event.actor.login if is_named else "",
            withdrawn=withdrawn,
        )

    async def _asked_at(self, event: TriggerEvent | LabelRemoved, repo: RepositoryContext) -> tuple[datetime, bool]:
        """When it was requested, and whether somebody else has requested it again since."""
        if isinstance(event, CommentEvent):
            return event.at, False
        if isinstance(event, ProgramCommand):
            return event.request.at, False
        issue_events = await repo.reader.issue_events(event.subject.number)
        such = [each for each in issue_events if _matches(each, event)]
        by_actor = [each for each in such if each.actor.id == event.actor.id]
        if not by_actor:
            raise TemporaryFailure("The label or assignment is not among the issue's events yet.")
        return by_actor[-1].at, by_actor[-1] is not such[-1]

    async def about(
        self,
        event: Event,
        command: AgentCommand | None,
        repo: RepositoryContext,
        trigger: Trigger | None = None,
    ) -> EventFacts:
        """All that `decide` needs to know about an event."""
        facts = EventFacts(event, command, repo.ours, IssueState(archived=repo.repository.archived))
        if isinstance(event, ChecksFailed):
            return await self._checks(event, repo, facts)
        if isinstance(event, TriggerEvent) and trigger is not None:
            return await self._trigger(event, command, repo, trigger, facts) if command else facts
        if isinstance(event, StateChangeEvent):
            return await self._state_change(event, repo, trigger, facts)
        return facts

    async def _trigger(
        self,
        event: TriggerEvent,
        command: AgentCommand,
        repo: RepositoryContext,
        trigger: Trigger,
        facts: EventFacts,
    ) -> EventFacts:
        facts = await asyncio.to_thread(self._from_database, event, command, trigger, facts)
        if trigger.withdrawn:
            return replace(facts, state=facts.state.model_copy(update={"withdrawn": True}))
        if not isinstance(event, ProgramCommand) or event.by_person:
            facts = replace(facts, requester=await self._requester(event.actor, repo))
            if refusal(event.actor, facts.requester, via=facts.via, allowed_apps=repo.ours.allowed_apps):
                return facts
        reader, number = repo.reader, event.subject.number
        pull = reader.pull_request(number) if event.subject.is_pull_request else _nothing()
        issue, pulled, config, text = await asyncio.gather(
            if_accessible(reader.issue(number)),
            if_accessible(pull),
            read_config(reader, self._operator),
            _current_text(event, reader),
        )
        job = await asyncio.to_thread(job_behind, pulled, facts.job, repo.ours.user, self._stores)
        state = with_job(facts.state, job)
        if issue is None:  # this withdraws all requests on it
            state = state.model_copy(update={"text_deleted": True})
        elif isinstance(event, CommentEvent):
            state = state.model_copy(update={"text": text, "text_deleted": text is None})
        facts = replace(facts, config=config, job=job, issue=issue, pull=pulled if issue else None, state=state)
        if issue is not None and event.subject.node and HANDLERS[command.verb].asks_for_work:
            edited = await _edited_since(trigger.at, event.subject, reader)
            facts = replace(facts, state=facts.state.model_copy(update={"edited": edited}))
        return await self._with_pull_requests(event, command, repo, facts)

    def _from_database(
        self, event: TriggerEvent, command: AgentCommand, trigger: Trigger, facts: EventFacts
    ) -> EventFacts:
        repository, number, triggers = event.repository.id, event.subject.number, self._stores.triggers
        job = HANDLERS[command.verb].find_job(self._stores.job_queries, repository, number)
        known = {
            "asked_at": trigger.at,
            "begun_at": triggers.newest_accepted(repository, number, STARTING_VERBS),
            "stopped_at": triggers.newest_accepted(repository, number, STOPPING_VERBS),
            "recent_requests": triggers.recent_count(repository, event.actor.id),
            "follow_ups": self._stores.job_queries.follow_up_count(repository, number),
        }
        return replace(facts, job=job, state=with_job(facts.state.model_copy(update=known), job))

    async def _requester(self, actor: Account, repo: RepositoryContext) -> ActorPermission | None:
        """None for a deleted account. For a bot its App counts, and only if Apps may ask at all."""
        if not actor.is_person:
            slug = actor.login.removesuffix("[bot]")
            allowed_apps = actor.kind == "Bot" and repo.ours.allowed_apps
            app = await repo.reader.application(slug) if allowed_apps else None
            noreply = repo.reader.api.app.host.noreply
            person = Person(name=actor.login, email=f"{actor.id}+{actor.login}@{noreply}")
            return ActorPermission(id=actor.id, login=actor.login, permission="none", person=person, app=app)
        try:
            return await repo.reader.actor(actor.id)
        except NotFoundOnGitHub:
            return None

    async def _with_pull_requests(
        self, event: TriggerEvent, command: AgentCommand, repo: RepositoryContext, facts: EventFacts
    ) -> EventFacts:
        """Load, for a request that would start work, whether somebody is at it and how many pull requests are open."""
        state, bot_id = facts.state, repo.ours.user
        handler = HANDLERS[command.verb]
        starts = handler.starts(facts)
        if not starts and (not handler.asks_for_work or state.working):
            return facts
        more: dict[str, object] = {}
        pulls: tuple[PullRequest, ...] | None = None
        if not event.subject.is_pull_request:
            pulls = await repo.reader.open_pull_requests()
            more |= await self._around(event, repo, facts, pulls, starts=starts)
        if isinstance(facts.config, RepoConfig) and facts.config.max_open_pull_requests is not None:
            queries, repository, number = self._stores.job_queries, event.repository.id, event.subject.number
            pulls = pulls if pulls is not None else await repo.reader.open_pull_requests()
            in_use = await asyncio.to_thread(branches_in_use, queries, repository, pulls, bot_id, except_issue=number)
            more["open_pull_requests"] = len(in_use)
        return replace(facts, state=state.model_copy(update=more))

    async def _around(
        self,
        event: TriggerEvent,
        repo: RepositoryContext,
        facts: EventFacts,
        pulls: Sequence[PullRequest],
        *,
        starts: bool,
    ) -> dict[str, object]:
        """What is open about an issue: linked to it, opened by our own jobs, or only naming it."""
        reader, number, bot_id = repo.reader, event.subject.number, repo.ours.user
        former = await asyncio.to_thread(self._stores.job_queries.of_issue, event.repository.id, number, MOST_FORMER)
        addresses = (JobResult.read(each.row.result) for each in former)
        opened = {pull_number(result.url) for result in addresses if result is not None} - {0}
        missing = opened - {pull.number for pull in pulls}  # very many are open, or it is closed
        linked, references = await asyncio.gather(reader.linked_pull_requests(number), reader.cross_references(number))
        others = [await if_accessible(reader.pull_request(each)) for each in sorted(missing)]
        config = facts.config if isinstance(facts.config, RepoConfig) else RepoConfig()
        prefix = config.branch_for(slug="x", number=number).removesuffix("x")
        mentions = Mentions(number, f"{repo.repository.owner}/{repo.repository.name}", prefix)
        open_pulls = (*pulls, *(pull for pull in others if pull is not None and pull.open))
        near = neighbours_of(mentions, open_pulls, references, opened, bot_id)
        closing = {
            each.number: Neighbour(number=each.number, ours=each.author == bot_id, claims=True) for each in linked
        }
        near = (*(each for each in near if each.number not in closing), *closing.values())
        ours = next((each.number for each in near if each.ours), None)
        first = ours if ours is not None else next(iter(closing), None)
        if starts:  # a rule of its own has them
            near = tuple(each for each in near if not each.ours and each.number not in closing)
        return {"linked": first, "linked_is_ours": ours is not None, "neighbours": near}

    async def _state_change(
        self, event: StateChangeEvent, repo: RepositoryContext, trigger: Trigger | None, facts: EventFacts
    ) -> EventFacts:
        """Ask GitHub only if there is an active job, our label was removed or the pull request is ours."""
        repository, number = event.repository.id, event.subject.number
        job = await asyncio.to_thread(self._stores.job_queries.active, repository, number)
        ours = isinstance(event, PullRequestChanged) and event.subject.author == repo.ours.user
        if job is None and trigger is None and not ours:
            return facts
        reader = repo.reader
        pull = reader.pull_request(number) if event.subject.is_pull_request else _nothing()
        issue, pulled = await asyncio.gather(if_accessible(reader.issue(number)), if_accessible(pull))
        job = await asyncio.to_thread(job_behind, pulled, job, repo.ours.user, self._stores)
        state = with_job(facts.state, job)
        if trigger is not None:
            newest_start = await asyncio.to_thread(
                self._stores.triggers.newest_accepted, repository, number, STARTING_VERBS
            )
            state = state.model_copy(update={"asked_at": trigger.at, "begun_at": newest_start})
        return replace(facts, job=job, issue=issue, pull=pulled if issue else None, state=state)

    async def _checks(self, event: ChecksFailed, repo: RepositoryContext, facts: EventFacts) -> EventFacts:
        """Ask for the checks' owner only in repositories where we have had jobs."""
        if not await asyncio.to_thread(self._stores.job_queries.has_jobs_in, event.repository.id):
            return facts
        reader = repo.reader
        pull = await self._checked(event, reader)
        if pull is None:
            return facts
        queries, repository = self._stores.job_queries, event.repository.id
        here = await asyncio.to_thread(newest_job, queries, repository, pull.number)
        job = await asyncio.to_thread(job_behind, pull, here, repo.ours.user, self._stores)
        follow_ups = await asyncio.to_thread(queries.follow_up_count, repository, pull.number)
        state = with_job(facts.state.model_copy(update={"follow_ups": follow_ups}), job)
        if pull.author == repo.ours.user:
            issue, config = await asyncio.gather(
                if_accessible(reader.issue(pull.number)), read_config(reader, self._operator)
            )
            facts = replace(facts, config=config, issue=issue)
        return replace(facts, pull=pull, job=job, state=state)

    async def _checked(self, event: ChecksFailed, reader: RepositoryReader) -> PullRequest | None:
        if event.pull_requests:
            return await if_accessible(reader.pull_request(event.pull_requests[0]))
        return await reader.pull_request_of(event.head_ref) if event.head_ref else None


_CHANGES = {"renamed": "title", "transferred": "repository"}
"""Events of an issue that change what was authorised; GitHub's `lastEditedAt` is of the description alone."""


async def _edited_since(moment: datetime, subject: EventSubject, reader: RepositoryReader) -> str:
    """What was changed after that moment; empty if nothing was. GitHub's times are whole seconds."""
    edit, issue_events = await asyncio.gather(
        if_accessible(reader.last_edit(subject.node)), reader.issue_events(subject.number)
    )
    changed = dict.fromkeys(
        _CHANGES[each.event] for each in issue_events if each.event in _CHANGES and each.at >= moment
    )
    if edit is None or (edit.edited_at is not None and edit.edited_at >= moment):
        changed["description"] = None
    return " and ".join(changed)


async def _current_text(event: TriggerEvent, reader: RepositoryReader) -> str | None:
    """The comment's or review's current text; None if it was deleted or dismissed."""
    match event:
        case IssueCommented():
            comment = await reader.comment(event.id)
        case ReviewCommented():
            comment = await reader.inline_comment(event.id)
        case LabelAdded() | Assigned() | ProgramCommand():
            return None
        case _:
            reviewed = await reader.review(event.subject.number, event.id)
            return reviewed.body if reviewed and reviewed.state != "dismissed" else None
    return comment.body if comment else None


async def _nothing() -> None:
    return None


def _matches(issue_event: IssueEvent, event: LabelAdded | LabelRemoved | Assigned) -> bool:
    if isinstance(event, Assigned):
        return issue_event.event == "assigned" and issue_event.assignee == event.assignee
    name = "labeled" if isinstance(event, LabelAdded) else "unlabeled"
    return issue_event.event == name and issue_event.label.casefold() == event.label.casefold()
