"""Collects what `app.triggers.rules.decide` needs to know about an event, from GitHub and our own tables."""

from dataclasses import dataclass, field, replace

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.task import IssueRef
from app.github.base import ReactionTarget
from app.github.models import ActorPermission, BotAccount, GitHubIssue, PullRequest
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import Trigger
from app.publish.body_edits import FORK_MARK
from app.triggers.commands import STARTING, AgentCommand
from app.triggers.decisions import IssueState, PullRequestState
from app.triggers.events import (
    Assigned,
    BranchHead,
    ChecksFailed,
    Event,
    IssueCommented,
    LabelAdded,
    ProgramCommand,
    ReviewCommented,
)
from app.triggers.github_clients import RepositoryContext


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event and all that the rules may use about it. Fields that were not fetched keep neutral defaults."""

    event: Event
    command: AgentCommand | None
    """The command in it, if it is a trigger."""
    bot: BotAccount
    state: IssueState
    config: RepoConfig | ConfigError = field(default_factory=RepoConfig)
    requester: ActorPermission | None = None
    pull: PullRequest | None = None
    job: JobWithContext | None = None

    @property
    def verb(self) -> str:
        return self.command.verb if self.command else ""

    @property
    def starts(self) -> bool:
        """True if the command would start work that leads to a pull request."""
        if self.verb == "approve":
            return self.state.planned and not self.state.working
        return self.verb in STARTING and (not self.state.working or self.verb == "retry")

    @property
    def is_our_pull_request(self) -> bool:
        return self.state.pull is not None and self.state.pull.author == self.bot.user


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """One trigger to handle, with everything known about it."""

    repo_context: RepositoryContext
    trigger: Trigger
    found: EventFacts

    @property
    def issue_ref(self) -> IssueRef:
        return self.repo_context.issue_ref(self.trigger.number)

    @property
    def requested(self) -> str:
        """The job that a program or the dashboard was promised; its answers are shown there, and not on GitHub."""
        event = self.found.event
        return event.request.job if isinstance(event, ProgramCommand) else ""

    @property
    def target(self) -> ReactionTarget | None:
        """What a reaction can be added to; None for a review, which accepts none, or if nobody asked."""
        match self.found.event:
            case LabelAdded() | Assigned() | ProgramCommand() as event:
                return ReactionTarget(kind="issue", id=event.subject.number)
            case IssueCommented() as event:
                return ReactionTarget(kind="comment", id=event.id)
            case ReviewCommented() as event:
                return ReactionTarget(kind="review comment", id=event.id)
            case _:
                return None


def make_trigger_context(repo_context: RepositoryContext, trigger: Trigger, found: EventFacts) -> TriggerContext:
    """The context of a trigger, with the current login of who asked, and for checks their pull request's number."""
    if found.requester:
        trigger = replace(trigger, login=found.requester.login)
    if isinstance(found.event, ChecksFailed) and found.pull:
        trigger = replace(trigger, number=found.pull.number)
    return TriggerContext(repo_context, trigger, found)


def pull_request_state(pull: PullRequest) -> PullRequestState:
    head = BranchHead(repository=pull.head_repository, ref=pull.head_branch, sha=pull.head)
    fork = FORK_MARK in pull.body
    return PullRequestState(
        number=pull.number, author=pull.author or None, head=head, base_ref=pull.base_branch, fork=fork
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
