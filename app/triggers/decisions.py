"""The input and output of the rules: the current state, and a JobRequest, Notification, Reply or Ignored."""

from datetime import datetime
from typing import Literal

from app.core.job import FINAL, JobState
from app.core.record import Record
from app.core.task import TaskOrigin
from app.github.models import DiffThread
from app.triggers.commands import CommandName, CommandOptions
from app.triggers.events import BranchHead, EventSubject

RequestAim = Literal[CommandName, "steer", "answer", "fix_checks", "revise"]
NotificationAim = Literal["stop", "no_access", "moved", "edited", "head_moved", "base_moved", "reconcile"]
Destination = Literal["new_branch", "same_branch", "sibling"]
"""Where the work goes: a branch of an issue's own, the pull request's branch, or a new pull request beside it."""


class PullRequestState(Record):
    """The current state of a pull request."""

    number: int
    author: int | None
    head: BranchHead
    base_ref: str
    fork: bool = False
    """Its branch is in this repository and contains commits from a fork."""


class IssueState(Record):
    """The current state, read from GitHub and our own tables; the delivery may be hours older."""

    installation: int | None
    """The installation that serves this repository; None if there is none any more."""
    archived: bool = False
    open: bool = True
    locked: bool = False
    labels: tuple[str, ...] = ()
    assignees: tuple[int, ...] = ()
    title: str | None = None
    body: str | None = None
    text: str | None = None
    """The current text of the comment or review that asks."""
    text_deleted: bool = False
    """That comment or review was deleted."""
    pull: PullRequestState | None = None
    """The pull request itself, if this is one."""
    linked: int | None = None
    """For an issue: the open pull request that will close it."""
    linked_is_ours: bool = False
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
    resting: bool = False
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
    origin: TaskOrigin
    subject: EventSubject
    text: str = ""
    options: CommandOptions = CommandOptions()
    lesson: int | None = None
    job: str = ""
    """The job it is sent to; empty if it starts a new one."""
    trigger: str
    """What was asked with: `issue`, `comment:ID`, `review_comment:ID`, `review:ID`, `check_run:ID` and so on."""
    destination: Destination = "new_branch"
    head: BranchHead | None = None
    """The requested commit, if the delivery named one; otherwise the pull request's current head is used."""
    thread: DiffThread | None = None
    changed: tuple[str, ...] = ()
    """What was edited after the request: the signed texts count, and the status comment says so."""
    new_job: str = ""
    """The id that the new job has to have, because a program was promised it."""


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
