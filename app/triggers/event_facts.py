"""Collects what `app.triggers.rules.decide` needs to know about an event, from GitHub and our own tables."""

from dataclasses import dataclass
from datetime import datetime

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.task import IssueRef
from app.github.base import ReactionTarget
from app.github.models import ActorPermission, BotAccount, GitHubIssue, PullRequest, Repository
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import TriggerRow
from app.publish.follow_up import FORK_MARK
from app.triggers.decisions import IssueState, PullRequestState
from app.triggers.events import (
    Assigned,
    BranchHead,
    ChecksFailed,
    IssueCommented,
    LabelAdded,
    ProgramCommand,
    ReviewCommented,
    TriggerEvent,
)
from app.triggers.github_clients import RepositoryClients


@dataclass(frozen=True, slots=True)
class RepositoryContext:
    """A repository that we have access to. `repository` has its current name."""

    readers: RepositoryClients
    repository: Repository
    installation: int
    ours: BotAccount


@dataclass(frozen=True, slots=True)
class TriggerKey:
    """A trigger's key, the same by webhook and by poll, and when it was requested by GitHub's clock."""

    key: str
    asked_at: datetime
    withdrawn: bool = False
    """Somebody else has added the label again since, so that later request counts."""


@dataclass(frozen=True, slots=True)
class EventFacts:
    """The facts about one event. Fields that were not fetched keep neutral defaults."""

    state: IssueState
    config: RepoConfig | ConfigError
    requester: ActorPermission | None = None
    pull: PullRequest | None = None
    job: JobWithContext | None = None


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """One trigger to handle, with everything known about it.

    `verb` is the resulting command. `login` is the current login of the person who asked; empty if the bot starts by
    itself. `target` is what they wrote, if it accepts reactions.
    """

    repo_context: RepositoryContext
    identity: TriggerKey
    found: EventFacts
    number: int
    verb: str
    actor: int
    login: str = ""
    target: ReactionTarget | None = None
    requested: str = ""
    """The job that a program or the dashboard was promised; its answers are shown there, and not on GitHub."""

    @property
    def issue_ref(self) -> IssueRef:
        return issue_ref(self.repo_context, self.number)

    @property
    def row(self) -> TriggerRow:
        """The trigger as it is stored."""
        where = {"repository": self.repo_context.repository.id, "number": self.number}
        at = self.identity.asked_at
        return TriggerRow(self.identity.key, **where, actor=self.actor, verb=self.verb, at=at, login=self.login)


def make_trigger_context(
    event: TriggerEvent | ChecksFailed,
    verb: str,
    repo_context: RepositoryContext,
    identity: TriggerKey,
    found: EventFacts,
) -> TriggerContext:
    if isinstance(event, ChecksFailed):
        number = found.pull.number if found.pull else 0
        return TriggerContext(repo_context, identity, found, number, verb, repo_context.ours.user)
    if isinstance(event, ProgramCommand):
        requested, login = event.request.job, event.actor.login if event.by_person else ""
    else:
        requested, login = "", event.actor.login
    if found.requester:
        login = found.requester.login
    number, actor = event.subject.number, event.actor.id
    return TriggerContext(repo_context, identity, found, number, verb, actor, login, _target(event), requested)


def _target(event: TriggerEvent) -> ReactionTarget | None:
    """What a reaction can be added to; None for a review, which accepts none."""
    match event:
        case LabelAdded() | Assigned() | ProgramCommand():
            return ReactionTarget(kind="issue", id=event.subject.number)
        case IssueCommented():
            return ReactionTarget(kind="comment", id=event.id)
        case ReviewCommented():
            return ReactionTarget(kind="review comment", id=event.id)
        case _:
            return None


def issue_ref(repo_context: RepositoryContext, number: int) -> IssueRef:
    repository = repo_context.repository
    return IssueRef(
        installation=repo_context.installation,
        repository=repository.id,
        owner=repository.owner,
        name=repository.name,
        number=number,
    )


def pull_request_state(facts: PullRequest) -> PullRequestState:
    head = BranchHead(repository=facts.head_repository, ref=facts.head_branch, sha=facts.head)
    fork = FORK_MARK in facts.body
    return PullRequestState(
        number=facts.number, author=facts.author or None, head=head, base_ref=facts.base_branch, fork=fork
    )


def with_job(state: IssueState, job: JobWithContext | None) -> IssueState:
    if job is None:
        return state
    planned = job.row.state == "answered" and job.job_context.aim == "plan" and bool((job.row.result or {}).get("plan"))
    known = {"job": job.job.id, "job_state": job.row.state, "planned": planned, "resting": job.waiting_for == "rest"}
    return state.model_copy(update=known)


def with_issue(state: IssueState, issue: GitHubIssue | None, pull: PullRequest | None) -> IssueState:
    """Add the issue's state; a deleted issue withdraws the requests on it."""
    if issue is None:
        return state.model_copy(update={"text_deleted": True, "open": False})
    now: dict[str, object] = {
        "open": issue.open,
        "locked": issue.locked,
        "labels": issue.labels,
        "assignees": issue.assignees,
        "title": issue.title,
        "body": issue.body,
        "pull": pull_request_state(pull) if pull else None,
    }
    return state.model_copy(update=now)
