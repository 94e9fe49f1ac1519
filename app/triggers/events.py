"""What happened on the forge, as far as we care: frozen events with numeric ids and the text as it was signed."""

import hashlib
from datetime import datetime
from typing import Literal

from pydantic import Field

from app.core.record import Record


class SignedText(Record):
    """A text exactly as the signed delivery held it, with its SHA-256 in hex, so that a later edit is noticed."""

    text: str
    sha256: str

    @classmethod
    def of(cls, text: str) -> "SignedText":
        return cls(text=text, sha256=digest(text))


class Actor(Record):
    """Who did it. `type` is the forge's own word: User, Bot, Organization, Mannequin."""

    id: int
    login: str
    type: str

    @property
    def is_person(self) -> bool:
        return self.type == "User" and not self.login.endswith("[bot]")


class EventRepository(Record):
    """Its numeric id is its identity; owner, name and default branch are what they were at that moment."""

    id: int
    owner: str
    name: str
    default_branch: str
    private: bool
    archived: bool

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"


class BranchHead(Record):
    """The commit a pull request offers. `repository` is None where the fork it came from is gone."""

    repository: int | None
    ref: str
    sha: str


class EventSubject(Record):
    """The issue or pull request, as the delivery showed it; `head` only where the delivery told it."""

    number: int
    is_pull_request: bool
    title: str
    body: SignedText
    author: int | None
    """Numeric id; None for a ghost."""
    labels: tuple[str, ...]
    head: BranchHead | None = None


class DiffThread(Record):
    """The lines of a file that a review comment is about."""

    comment: int
    """The comment that opened the thread: replies go to it."""
    path: str
    start: int | None
    end: int | None
    side: str
    hunk: str


class RepositoryEvent(Record):
    """What every event of a repository knows."""

    installation: int
    repository: EventRepository
    actor: Actor


class LabelAdded(RepositoryEvent):
    """A label was put on; its actor is who did that, whoever wrote the issue."""

    kind: Literal["labelled"] = "labelled"
    subject: EventSubject
    label: str


class LabelRemoved(RepositoryEvent):
    kind: Literal["unlabelled"] = "unlabelled"
    subject: EventSubject
    label: str


class CommentEvent(RepositoryEvent):
    """Somebody wrote something for the first time. Edits are never events of this kind."""

    subject: EventSubject
    id: int
    """Of the comment or review."""
    words: SignedText
    at: datetime
    app: int | None = None
    """The App through which it was written, by its numeric id."""


class IssueCommented(CommentEvent):
    kind: Literal["commented"] = "commented"


class ReviewCommented(CommentEvent):
    kind: Literal["review_commented"] = "review_commented"
    thread: DiffThread


class ReviewSubmitted(CommentEvent):
    kind: Literal["reviewed"] = "reviewed"
    verdict: str
    """The forge's word: approved, changes_requested, commented."""


class ChecksFailed(RepositoryEvent):
    """A check run, check suite or workflow ended badly. Empty `pull_requests` are to be found by the head."""

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
    """A branch moved; all zeros in `after` where it is gone."""

    kind: Literal["pushed"] = "pushed"
    branch: str
    before: str
    after: str


class RepositoryChanged(RepositoryEvent):
    kind: Literal["repository_changed"] = "repository_changed"
    change: Literal["renamed", "transferred", "archived", "unarchived", "deleted"]


class InstallationChanged(Record):
    """The App was installed, taken away or suspended, or its repositories changed; none are named for all of them."""

    kind: Literal["installation_changed"] = "installation_changed"
    installation: int
    actor: Actor
    change: Literal["created", "deleted", "suspended", "unsuspended", "added", "removed"]
    repositories: tuple[int, ...] = Field(default=())


TriggerEvent = LabelAdded | IssueCommented | ReviewCommented | ReviewSubmitted
"""Somebody may be asking for something."""
StateChangeEvent = LabelRemoved | IssueChanged | PullRequestChanged
"""An issue or pull request took a turn."""
Event = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
