"""The GitHub events that we handle: frozen, with numeric ids and texts as they were signed.

An edit since then is noticed, because the texts are compared with the current ones.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, AliasPath, BeforeValidator, Field, model_validator

from app.github.models import (
    Account,
    DiffThread,
    GitHubModel,
    Id,
    Names,
    Repository,
    Sha,
    Text,
    TextOrNull,
    When,
    listed,
)
from app.jobs.requests import ProgramRequest


class BranchHead(GitHubModel):
    """A pull request's head commit. `repository` is None if the fork was deleted."""

    repository: Id | None = Field(default=None, validation_alias=AliasPath("repo", "id"))
    ref: Text
    sha: Sha


class EventSubject(GitHubModel):
    """The issue or pull request as in the delivery; `head` only if the delivery contained it."""

    number: Id
    is_pull_request: bool
    title: Text
    body: TextOrNull = ""
    author: Id | None = Field(default=None, validation_alias=AliasPath("user", "id"))
    """A numeric id; None for a deleted account."""
    labels: Names = ()
    head: BranchHead | None = None

    @model_validator(mode="before")
    @classmethod
    def _issue_or_pull_request(cls, found: object) -> object:
        """GitHub marks an issue that is a pull request with a link; a pull request itself has a head."""
        if not isinstance(found, Mapping) or "is_pull_request" in found:
            return found
        return {**found, "is_pull_request": found.get("pull_request") is not None or found.get("head") is not None}

    @property
    def head_commit(self) -> str:
        return self.head.sha if self.head else ""


class RepositoryEvent(GitHubModel):
    """The fields that all events of a repository share."""

    installation: int = Field(validation_alias=AliasPath("installation", "id"))
    repository: Repository
    """As it was at the time of the event."""
    actor: Account = Field(validation_alias="sender")


class SubjectEvent(RepositoryEvent):
    """An event of one issue or pull request."""

    subject: EventSubject = Field(validation_alias=AliasChoices("issue", "pull_request"))


class LabelAdded(SubjectEvent):
    """A label was added; the actor is the person who added it, not the issue's author."""

    kind: Literal["labelled"] = "labelled"
    label: Text = Field(validation_alias=AliasPath("label", "name"))


class Assigned(SubjectEvent):
    """An issue or pull request was assigned; the actor is the person who assigned it."""

    kind: Literal["assigned"] = "assigned"
    assignee: Id = Field(validation_alias=AliasPath("assignee", "id"))
    """The account's numeric id."""


class LabelRemoved(SubjectEvent):
    kind: Literal["unlabelled"] = "unlabelled"
    label: Text = Field(validation_alias=AliasPath("label", "name"))


def _in_text(*path: str) -> AliasChoices:
    return AliasChoices(AliasPath("comment", *path), AliasPath("review", *path))


class CommentEvent(SubjectEvent):
    """A new comment or review. Edits never become events of this kind."""

    id: Id = Field(validation_alias=_in_text("id"))
    """The id of the comment or review."""
    text: TextOrNull = Field(default="", validation_alias=_in_text("body"))
    at: When = Field(
        validation_alias=AliasChoices(AliasPath("comment", "created_at"), AliasPath("review", "submitted_at"))
    )
    app: Id | None = Field(default=None, validation_alias=_in_text("performed_via_github_app", "id"))
    """The numeric id of the App that wrote it on a user's behalf."""


class IssueCommented(CommentEvent):
    kind: Literal["commented"] = "commented"


class ReviewCommented(CommentEvent):
    kind: Literal["review_commented"] = "review_commented"
    thread: DiffThread = Field(validation_alias="comment")


class ProgramCommand(SubjectEvent):
    """A request of a program or of the dashboard for an issue or pull request.

    The actor is the person on the dashboard; else the bot: the program's key, or the operator, is the authority.
    """

    kind: Literal["program_command"] = "program_command"
    request: ProgramRequest

    @property
    def by_person(self) -> bool:
        """True if the rules for a person's commands apply."""
        return self.request.user != 0


class ReviewSubmitted(CommentEvent):
    kind: Literal["reviewed"] = "reviewed"
    verdict: Annotated[Text, AfterValidator(str.lower)] = Field(validation_alias=AliasPath("review", "state"))
    """GitHub's word: approved, changes_requested, commented."""


CheckSource = Literal["check_run", "check_suite", "workflow_run"]


class ChecksFailed(RepositoryEvent):
    """A check run, check suite or workflow failed.

    If `pull_requests` is empty, they are found by the head.
    """

    kind: Literal["checks_failed"] = "checks_failed"
    source: CheckSource
    id: int = Field(ge=0, lt=2**63)
    """0 for a commit status."""
    name: Text
    conclusion: Text
    head_ref: Text
    head_sha: Sha
    pull_requests: Annotated[tuple[Id, ...], listed("number")] = ()
    app: Id | None = None


class IssueChanged(SubjectEvent):
    kind: Literal["issue_changed"] = "issue_changed"
    change: Literal["closed", "reopened", "edited", "deleted", "transferred"]


class PullRequestChanged(SubjectEvent):
    kind: Literal["pull_request_changed"] = "pull_request_changed"
    change: Literal["synchronize", "closed", "reopened", "edited"]
    merged: Annotated[bool, BeforeValidator(lambda value: value or False)] = Field(
        default=False, validation_alias=AliasPath("pull_request", "merged")
    )


class Pushed(RepositoryEvent):
    """A branch moved. `after` is its new commit: all zeros if it was deleted, empty if nobody asked."""

    kind: Literal["pushed"] = "pushed"
    branch: Text
    after: Sha | Literal[""] = ""


class RepositoryChanged(RepositoryEvent):
    kind: Literal["repository_changed"] = "repository_changed"
    change: Literal["renamed", "transferred", "archived", "unarchived", "deleted"]


class InstallationChanged(GitHubModel):
    """The App was installed, removed or suspended, or its repositories changed; an empty list means all of them."""

    kind: Literal["installation_changed"] = "installation_changed"
    installation: int = Field(validation_alias=AliasPath("installation", "id"))
    actor: Account = Field(validation_alias="sender")
    change: Literal["created", "deleted", "suspended", "unsuspended", "added", "removed"]
    repositories: Annotated[tuple[Id, ...], listed("id")] = ()


TriggerEvent = LabelAdded | Assigned | IssueCommented | ReviewCommented | ReviewSubmitted | ProgramCommand
"""Events by which somebody may ask for something."""
StateChangeEvent = LabelRemoved | IssueChanged | PullRequestChanged
"""Events that change an issue or pull request."""
Event = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged | InstallationChanged


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
