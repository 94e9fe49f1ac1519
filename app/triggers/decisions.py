"""The input and output of the rules: what is known about an event, and a JobRequest, Notification, Reply or Ignored."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from app.config.repository import RepoConfig
from app.core.errors import ConfigError
from app.core.job import FINAL, JobState
from app.core.record import Record
from app.core.task import IssueRef
from app.github.models import ActorPermission, BotAccount, DiffThread, GitHubIssue, PullRequest
from app.jobs.store import JobWithContext
from app.jobs.trigger_log import Trigger
from app.triggers.commands import AgentCommand, CommandOptions, Verb
from app.triggers.events import CommentEvent, Event, EventSubject, ProgramCommand
from app.triggers.github_clients import RepositoryContext
from app.triggers.neighbours import Neighbour

RequestAim = Literal[Verb, "answer", "fix_checks"]
NotificationAim = Literal["stop", "no_access", "moved", "edited", "head_moved", "base_moved", "reconcile"]
Destination = Literal["new_branch", "same_branch", "sibling"]
"""Where the work goes: a branch of an issue's own, the pull request's branch, or a new pull request beside it."""


class IssueState(Record):
    """What is known now beside the issue itself, from GitHub and our own tables; the delivery may be hours older."""

    archived: bool = False
    """The repository is archived."""
    text: str | None = None
    """The current text of the comment or review that asks."""
    text_deleted: bool = False
    """That comment or review was deleted, or the whole issue."""
    edited: str = ""
    """What of the issue was changed after the request, if its texts were read only now: title, description …"""
    withdrawn: bool = False
    """Somebody else has added the label or assigned the bot since."""
    linked: int | None = None
    """For an issue: the open pull request that will close it."""
    linked_is_ours: bool = False
    neighbours: tuple[Neighbour, ...] = ()
    """Open issues and pull requests that are about the issue, too."""
    open_pull_requests: int = 0
    """The number of the bot's pull requests in the repository that are open, or that active jobs will open."""
    job: str = ""
    """The newest job of this issue or pull request."""
    job_state: JobState | None = None
    follow_ups: int = 0
    """How often the bot has followed up on this pull request by itself."""
    recent_requests: int = 0
    """How many other commands this actor gave in the repository within the last hour."""

    planned: bool = False
    """The newest job only made a plan, which can still be approved."""
    rest_runs: bool = False
    """That job is published, and the rest of its suite is being run."""
    asked_at: datetime | None = None
    """When the request was made or the event happened, by GitHub's clock."""
    begun_at: datetime | None = None
    """When work was last requested here."""
    stopped_at: datetime | None = None
    """When a stop was last requested here."""

    @property
    def working(self) -> bool:
        return self.job_state is not None and self.job_state not in FINAL


class JobRequest(Record):
    """A job to do, because an authorised person asked or because the bot's own checks fail.

    `text` is the part of the signed text that has the instruction, as shown to people.
    """

    aim: RequestAim
    subject: EventSubject
    text: str = ""
    options: CommandOptions = CommandOptions()
    lesson: int | None = None
    trigger: str
    """What was asked with: `issue`, `comment:ID`, `review_comment:ID`, `review:ID`, `check_run:ID` and so on."""
    destination: Destination = "new_branch"
    thread: DiffThread | None = None
    changed: tuple[str, ...] = ()
    """What was edited after the request: the signed texts count, and the status comment says so."""


class Notification(Record):
    """A change that active jobs must react to; None in `number` means the whole repository."""

    rule: str
    aim: NotificationAim
    installation: int
    repositories: tuple[int, ...]
    """Numeric ids; empty for the whole installation."""
    number: int | None = None
    job: str = ""
    branch: str = ""


class Reply(Record):
    """An answer to an authorised person, without any other action."""

    rule: str
    text: str
    suggestion: str = ""
    """A command to try instead."""


class Ignored(Record):
    """Nothing is done. A visible reason is posted on the issue; other reasons are only logged."""

    rule: str
    reason: str
    visible: bool = False


Decision = JobRequest | Notification | Reply | Ignored


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
    issue: GitHubIssue | None = None
    """The issue, or the issue side of the pull request; None if it is gone, too."""
    pull: PullRequest | None = None
    """The pull request, if it is one and is not gone."""
    job: JobWithContext | None = None

    @property
    def verb(self) -> str:
        return self.command.verb if self.command else ""

    @property
    def via(self) -> int | None:
        """The App through which the command was written, as signed; None if it is no comment or review."""
        return self.event.app if isinstance(self.event, CommentEvent) else None

    @property
    def is_our_pull_request(self) -> bool:
        return self.pull is not None and self.pull.author == self.bot.user

    @property
    def is_open(self) -> bool:
        return self.issue is not None and self.issue.open

    @property
    def labels(self) -> frozenset[str]:
        """The issue's labels in lower case."""
        return frozenset(label.casefold() for label in self.issue.labels) if self.issue else frozenset()


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """One trigger to handle, with everything known about it."""

    repo: RepositoryContext
    trigger: Trigger
    facts: EventFacts

    @property
    def issue_ref(self) -> IssueRef:
        return self.repo.issue_ref(self.trigger.number)

    @property
    def promised_job(self) -> str:
        """The job that a program or the dashboard was promised; its answers are shown there, and not on GitHub."""
        event = self.facts.event
        return event.request.job if isinstance(event, ProgramCommand) else ""


@dataclass(frozen=True, slots=True)
class TriggerAnswer:
    """What a request comes to, still to be stored, and the reply to post first; empty if none is needed."""

    outcome: str
    text: str = ""
    once_for: str = ""
    """If not empty: the reply is posted only once per issue for this text."""


def with_job(state: IssueState, job: JobWithContext | None) -> IssueState:
    if job is None:
        return state
    planned = job.row.state == "answered" and job.job_context.aim == "plan" and bool((job.row.result or {}).get("plan"))
    known = {"job": job.job.id, "job_state": job.row.state, "planned": planned, "rest_runs": job.waiting_for == "rest"}
    return state.model_copy(update=known)
