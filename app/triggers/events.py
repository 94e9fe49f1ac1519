"""The GitHub events that we handle, read from webhooks: frozen, with numeric ids and texts as they were signed.

An edit since then is noticed, because the texts are compared with the current ones. Fields that we do not read are
ignored.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, AliasChoices, AliasPath, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import from_json

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
from app.jobs.job_actions import ProgramRequest


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
    milestone: TextOrNull = Field(default="", validation_alias=AliasPath("milestone", "title"))
    head: BranchHead | None = None
    node: str = ""
    """Its id in GraphQL, if these texts were read now and not signed with the event: they may have been edited since
    it."""

    @model_validator(mode="before")
    @classmethod
    def _issue_or_pull_request(cls, found: object) -> object:
        """GitHub marks an issue that is a pull request with a link; a pull request itself has a head."""
        if not isinstance(found, Mapping) or "is_pull_request" in found:
            return found
        return {**found, "is_pull_request": found.get("pull_request") is not None or found.get("head") is not None}


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


IgnoredReason = Literal[
    "unknown_event",
    "unknown_action",
    "edited",
    "not_an_object",
    "malformed",
    "no_installation",
    "no_sender",
    "not_the_author",
    "no_failure",
    "no_branch",
]
"""Why a payload is no event of ours; a closed set, so that it can be counted."""

FAILURES: Final = frozenset({"failure", "timed_out", "startup_failure", "error"})
_BRANCH: Final = "refs/heads/"


class _Ignore(Exception):  # noqa: N818  # an answer, not a fault
    def __init__(self, reason: IgnoredReason) -> None:
        super().__init__(reason)
        self.reason = reason


def decode(body: bytes) -> dict[str, Any]:
    """Decode a delivery's JSON object. Raises ValueError for anything else, however deeply nested."""
    payload = from_json(body)
    if not isinstance(payload, dict):
        raise ValueError("the payload is not a JSON object")  # noqa: TRY004  # one kind of error for the caller
    return payload


def read(name: str, payload: object) -> Event | IgnoredReason:
    """Parse a payload by the event name in its header, or say why it is no event. Never raises."""
    if not isinstance(payload, Mapping):
        return "not_an_object"
    try:
        event = _event(name, payload)
    except _Ignore as no:
        return no.reason
    except ValidationError:
        return "malformed"
    return event if event.installation > 0 and event.actor.id > 0 else "malformed"


def _event(name: str, payload: Mapping[str, Any]) -> Event:
    actions = _READERS.get(name)
    if actions is None:
        raise _Ignore("unknown_event")
    action = payload.get("action") or ""
    reader = actions.get(action) if isinstance(action, str) else None
    if reader is None:
        raise _Ignore("edited" if action == "edited" else "unknown_action")
    if payload.get("installation") is None:
        raise _Ignore("no_installation")
    if payload.get("sender") is None:
        raise _Ignore("no_sender")
    return reader(payload)


Reader = Callable[[Mapping[str, Any]], Event]
E = TypeVar("E", bound=GitHubModel)
C = TypeVar("C", bound=CommentEvent)


def _valid(kind: type[E], payload: Mapping[str, Any], **fields: object) -> E:
    """The event of a payload, with these of its fields. Raises ValidationError."""
    return kind.model_validate({**payload, **fields}, strict=True)


def _value(payload: object, *path: str) -> object:
    """What is at a path of keys; None if there is nothing."""
    for key in path:
        payload = payload.get(key) if isinstance(payload, Mapping) else None
    return payload


def _subject(kind: type[E], **fields: object) -> Callable[[Mapping[str, Any]], E]:
    """Reads an event of one issue or one pull request."""

    def reader(payload: Mapping[str, Any]) -> E:
        if payload.get("issue") is not None and payload.get("pull_request") is not None:
            raise _Ignore("malformed")
        there = {key: value for key, value in payload.items() if value is not None}
        return _valid(kind, there, **fields)

    return reader


def _changes(kind: type[IssueChanged | PullRequestChanged], *changes: str) -> dict[str, Reader]:
    return {change: _subject(kind, change=change) for change in changes}


def _text(kind: type[C], part: Literal["comment", "review"]) -> Callable[[Mapping[str, Any]], C]:
    """Reads a comment or review that its sender wrote."""
    read_subject = _subject(kind)

    def reader(payload: Mapping[str, Any]) -> C:
        event = read_subject(payload)
        if _value(payload, part, "user", "id") != event.actor.id:
            raise _Ignore("not_the_author")
        return event

    return reader


def _checks(payload: Mapping[str, Any], *, source: CheckSource) -> Event:
    """Reads a failed check. A run names its branch in its suite."""
    outcome = payload.get(source)
    if not isinstance(outcome, Mapping):
        raise _Ignore("malformed")
    conclusion = outcome.get("conclusion")
    if not isinstance(conclusion, str) or conclusion not in FAILURES:
        raise _Ignore("no_failure")
    return _valid(
        ChecksFailed,
        payload,
        source=source,
        id=outcome.get("id") or None,
        name=outcome.get("name") or source,
        conclusion=conclusion,
        head_ref=outcome.get("head_branch") or _value(outcome, "check_suite", "head_branch") or "",
        head_sha=outcome.get("head_sha"),
        pull_requests=outcome.get("pull_requests"),
        app=_value(outcome, "app", "id"),
    )


def _pushed(payload: Mapping[str, Any]) -> Event:
    ref = payload.get("ref")
    if not isinstance(ref, str):
        raise _Ignore("malformed")
    event = _valid(Pushed, payload, branch=ref.removeprefix(_BRANCH))
    if not ref.startswith(_BRANCH):
        raise _Ignore("no_branch")
    return event


def _installation(payload: Mapping[str, Any], *, change: str) -> Event:
    key = {"added": "repositories_added", "removed": "repositories_removed"}.get(change, "repositories")
    return _valid(InstallationChanged, payload, change=change, repositories=payload.get(key))


_READERS: Final[dict[str, dict[str, Reader]]] = {
    "issues": {
        "labeled": _subject(LabelAdded),
        "assigned": _subject(Assigned),
        "unlabeled": _subject(LabelRemoved),
        **_changes(IssueChanged, "closed", "reopened", "edited", "deleted", "transferred"),
    },
    "issue_comment": {"created": _text(IssueCommented, "comment")},
    "pull_request": {
        "labeled": _subject(LabelAdded),
        "unlabeled": _subject(LabelRemoved),
        **_changes(PullRequestChanged, "synchronize", "closed", "reopened", "edited"),
    },
    "pull_request_review": {"submitted": _text(ReviewSubmitted, "review")},
    "pull_request_review_comment": {"created": _text(ReviewCommented, "comment")},
    **{source: {"completed": partial(_checks, source=source)} for source in get_args(CheckSource)},
    "push": {"": _pushed},
    "repository": {
        change: partial(_valid, RepositoryChanged, change=change)
        for change in ("renamed", "transferred", "archived", "unarchived", "deleted")
    },
    "installation": {
        "created": partial(_installation, change="created"),
        "deleted": partial(_installation, change="deleted"),
        "suspend": partial(_installation, change="suspended"),
        "unsuspend": partial(_installation, change="unsuspended"),
    },
    "installation_repositories": {change: partial(_installation, change=change) for change in ("added", "removed")},
}
