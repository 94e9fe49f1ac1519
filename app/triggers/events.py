"""The GitHub events that we handle: frozen, with numeric ids and texts as they were signed."""

import hashlib
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from app.core.record import Record
from app.github.models import Account, Repository
from app.jobs.requests import ProgramRequest


class SignedText(Record):
    """A text exactly as in the signed delivery, with its SHA-256 in hex, so that a later edit is noticed."""

    text: str
    sha256: str

    @classmethod
    def of(cls, text: str) -> "SignedText":
        return cls(text=text, sha256=digest(text))


class BranchHead(Record):
    """A pull request's head commit. `repository` is None if the fork was deleted."""

    repository: int | None
    ref: str
    sha: str


class EventSubject(Record):
    """The issue or pull request as in the delivery; `head` only if the delivery contained it."""

    number: int
    is_pull_request: bool
    title: str
    body: SignedText
    author: int | None
    """A numeric id; None for a deleted account."""
    labels: tuple[str, ...]
    head: BranchHead | None = None

    @property
    def head_commit(self) -> str:
        return self.head.sha if self.head else ""


class DiffThread(Record):
    """The lines of a file that a review comment is about."""

    comment: int
    """The comment that opened the thread; replies go to it."""
    path: str
    start: int | None
    end: int | None
    side: str
    hunk: str


class RepositoryEvent(Record):
    """The fields that all events of a repository share."""

    installation: int
    repository: Repository
    """As it was at the time of the event."""
    actor: Account


class LabelAdded(RepositoryEvent):
    """A label was added; the actor is the person who added it, not the issue's author."""

    kind: Literal["labelled"] = "labelled"
    subject: EventSubject
    label: str


class Assigned(RepositoryEvent):
    """An issue or pull request was assigned; the actor is the person who assigned it."""

    kind: Literal["assigned"] = "assigned"
    subject: EventSubject
    assignee: int
    """The account's numeric id."""


class LabelRemoved(RepositoryEvent):
    kind: Literal["unlabelled"] = "unlabelled"
    subject: EventSubject
    label: str


class CommentEvent(RepositoryEvent):
    """A new comment or review. Edits never become events of this kind."""

    subject: EventSubject
    id: int
    """The id of the comment or review."""
    words: SignedText
    at: datetime
    app: int | None = None
    """The numeric id of the App that wrote it on a user's behalf."""


class IssueCommented(CommentEvent):
    kind: Literal["commented"] = "commented"


class ReviewCommented(CommentEvent):
    kind: Literal["review_commented"] = "review_commented"
    thread: DiffThread


class ProgramCommand(RepositoryEvent):
    """A request of a program or of the dashboard for an issue or pull request.

    The actor is the person on the dashboard; else the bot: the program's key, or the operator, is the authority.
    """

    kind: Literal["program_command"] = "program_command"
    subject: EventSubject
    request: ProgramRequest

    @property
    def by_person(self) -> bool:
        """True if the rules for a person's commands apply."""
        return self.request.user != 0


class ReviewSubmitted(CommentEvent):
    kind: Literal["reviewed"] = "reviewed"
    verdict: str
    """GitHub's word: approved, changes_requested, commented."""


class ChecksFailed(RepositoryEvent):
    """A check run, check suite or workflow failed.

    If `pull_requests` is empty, they are found by the head.
    """

    kind: Literal["checks_failed"] = "checks_failed"
    source: Literal["check_run", "check_suite", "workflow_run"]
    id: int
    name: str
    conclusion: str
    head_ref: str
    head_sha: str
    pull_requests: tuple[int, ...]
    app: int | None


class IssueChanged(RepositoryEvent):
    kind: Literal["issue_changed"] = "issue_changed"
    change: Literal["closed", "reopened", "edited", "deleted", "transferred"]
    subject: EventSubject


class PullRequestChanged(RepositoryEvent):
    kind: Literal["pull_request_changed"] = "pull_request_changed"
    change: Literal["synchronize", "closed", "reopened", "edited"]
    subject: EventSubject
    merged: bool


class Pushed(RepositoryEvent):
    """A branch moved; `after` is all zeros if it was deleted."""

    kind: Literal["pushed"] = "pushed"
    branch: str
    before: str
    after: str


class RepositoryChanged(RepositoryEvent):
    kind: Literal["repository_changed"] = "repository_changed"
    change: Literal["renamed", "transferred", "archived", "unarchived", "deleted"]


class InstallationChanged(Record):
    """The App was installed, removed or suspended, or its repositories changed; an empty list means all of them."""

    kind: Literal["installation_changed"] = "installation_changed"
    installation: int
    actor: Account
    change: Literal["created", "deleted", "suspended", "unsuspended", "added", "removed"]
    repositories: tuple[int, ...] = Field(default=())


TriggerEvent = LabelAdded | Assigned | IssueCommented | ReviewCommented | ReviewSubmitted | ProgramCommand
"""Somebody may be asking for something."""
StateChangeEvent = LabelRemoved | IssueChanged | PullRequestChanged
"""An issue or pull request took a turn."""
Event = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(event: TriggerEvent | ChecksFailed | LabelRemoved, asked_at: datetime) -> str:
    """The key of an event. `asked_at` is when a label changed or somebody was assigned; the rest has an id."""
    repository = event.repository.id
    match event:
        case LabelAdded() | LabelRemoved() | Assigned():
            return label_key(repository, event.subject.number, asked_at, event.kind)
        case IssueCommented():
            return comment_key(repository, "comment", event.id)
        case ReviewCommented():
            return comment_key(repository, "review_comment", event.id)
        case ProgramCommand():
            return f"r{repository}/api:{event.request.job}"
        case ChecksFailed():
            return checks_key(repository, event.head_sha)
        case _:
            return comment_key(repository, "review", event.id)


def label_key(
    repository: int, number: int, at: datetime, what: Literal["labelled", "unlabelled", "assigned"] = "labelled"
) -> str:
    return f"r{repository}/issue:{number}/{what}@{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def comment_key(repository: int, kind: Literal["comment", "review_comment", "review"], number: int) -> str:
    return f"r{repository}/{kind}:{number}"


def checks_key(repository: int, commit: str) -> str:
    """One key per commit: its checks fail together, and one job fixes them."""
    return f"r{repository}/checks:{commit}"


def conflict_key(repository: int, number: int, head: str, base: str) -> str:
    """One key per pair of commits: two conflicting branches are handled once."""
    return f"r{repository}/conflicts:{number}/{head[:20]}.{base[:20]}"
