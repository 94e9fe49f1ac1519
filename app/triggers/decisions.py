"""What intake decides with and what it decides: the state it is shown, and an Order, Signal, Reply or Skip."""

from datetime import datetime
from typing import Literal

from app.core.job import FINAL, JobState
from app.core.record import Record
from app.core.task import TaskOrigin
from app.triggers.commands import CommandOptions
from app.triggers.events import BranchHead, DiffThread, EventSubject, SignedText

RequestAim = Literal[
    "fix",
    "plan",
    "ask",
    "approve",
    "stop",
    "status",
    "retry",
    "continue",
    "rebase",
    "ci",
    "remember",
    "forget",
    "steer",
    "answer",
    "mend",
    "revise",
]
NotificationAim = Literal["stop", "no_access", "moved", "edited", "head_moved", "base_moved", "reconcile"]
Destination = Literal["new_branch", "same_branch", "sibling"]
"""Where the work goes: a branch of an issue's own, the pull request's branch, or a new pull request beside it."""


class BotAccount(Record):
    """Who we are on this forge, and which other Apps the operator lets ask."""

    app: int
    user: int
    allowed_apps: frozenset[int] = frozenset()


class PullRequestState(Record):
    """A pull request as it stands now."""

    number: int
    author: int | None
    head: BranchHead
    base_ref: str
    fork: bool = False
    """Its branch is here and holds commits of a fork."""


class IssueState(Record):
    """How things stand now, asked of the forge and of our own tables; the delivery may be hours older."""

    installation: int | None
    """The installation that serves this repository's id; None where there is none any more."""
    archived: bool = False
    open: bool = True
    locked: bool = False
    labels: tuple[str, ...] = ()
    assignees: tuple[int, ...] = ()
    title: str | None = None
    body_sha256: str | None = None
    words_sha256: str | None = None
    """Of the comment or review that asks."""
    gone: bool = False
    """That comment or review was deleted."""
    pull: PullRequestState | None = None
    """Of a pull request: itself."""
    linked: int | None = None
    """Of an issue: the open pull request that is to close it."""
    linked_is_ours: bool = False
    open_pull_requests: int = 0
    """The bot's own, in the repository."""
    job: str = ""
    """The newest job of this issue or pull request."""
    job_state: JobState | None = None
    rounds: int = 0
    """How often the bot has followed up on this pull request by itself."""
    asked_lately: int = 0
    """How many commands this actor gave in the repository within the hour, without this one."""

    planned: bool = False
    """The newest job made a plan and nothing else; it may still be approved."""
    asked_at: datetime | None = None
    """When this was asked or done, by the forge's clock."""
    begun_at: datetime | None = None
    """When work was last asked for here."""
    stopped_at: datetime | None = None
    """When it was last said here to stop."""

    @property
    def working(self) -> bool:
        return self.job_state is not None and self.job_state not in FINAL


class JobRequest(Record):
    """One thing to be done because somebody who may asked for it, or because the bot's own checks fail.

    `words` is the whole text as signed, `text` the part of it that is the instruction, as shown to people.
    """

    aim: RequestAim
    origin: TaskOrigin
    subject: EventSubject
    words: SignedText | None = None
    text: str = ""
    options: CommandOptions = CommandOptions()
    lesson: int | None = None
    job: str = ""
    """The job it goes to; empty where it starts one."""
    trigger: str
    """What asked, for the reaction: `issue`, `comment:ID`, `review_comment:ID`, `review:ID`, `check_run:ID` and kin."""
    destination: Destination = "new_branch"
    head: BranchHead | None = None
    """The commit that was asked about, where the delivery told it; else what the pull request offers now."""
    thread: DiffThread | None = None
    changed: tuple[str, ...] = ()
    """What was edited after it was asked: the signed texts count, and people are told."""


class Notification(Record):
    """Something happened that living jobs must know of; None in `number` means all of the repositories."""

    rule: str
    aim: NotificationAim
    installation: int
    repositories: tuple[int, ...]
    """Numeric ids; none for all of the installation."""
    number: int | None = None
    job: str = ""
    branch: str = ""


class Reply(Record):
    """Nothing is done, but an answer is due: a sentence to the person who may ask and did."""

    rule: str
    text: str
    suggestion: str = ""
    """A command to try instead."""


class Ignored(Record):
    """Nothing is done. A visible reason is told on the issue; others stand in the log only."""

    rule: str
    reason: str
    visible: bool = False


Decision = JobRequest | Notification | Reply | Ignored
