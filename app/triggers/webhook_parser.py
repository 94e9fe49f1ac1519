"""Parses raw webhook JSON into an Event, or into a reason for ignoring it; fields that we do not read are ignored."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from app.github.models import Account, Repository
from app.triggers.events import (
    Assigned,
    BranchHead,
    ChecksFailed,
    DiffThread,
    Event,
    EventSubject,
    InstallationChanged,
    IssueChanged,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    ReviewCommented,
    ReviewSubmitted,
    SignedText,
)


def _encodable(text: str) -> str:
    """Refuse lone surrogates, which can neither be stored nor sent."""
    text.encode()
    return text


Id = Annotated[int, Field(gt=0, lt=2**63)]
Sha = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
Text = Annotated[str, AfterValidator(_encodable)]
When = Annotated[datetime, Field(strict=False)]


class WebhookModel(BaseModel):
    """Strict about the fields it reads (no `true` for 1, no "7" for 7); ignores all others."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class WebhookId(WebhookModel):
    id: Id


class WebhookUser(WebhookModel):
    id: Id
    login: Text
    type: Text = "User"


class WebhookName(WebhookModel):
    name: Text


class WebhookRepository(WebhookModel):
    id: Id
    name: Text
    owner: Text = Field(validation_alias=AliasPath("owner", "login"))
    default_branch: Text
    private: bool
    archived: bool = False


class WebhookPayload(WebhookModel):
    """The fields that every event of a repository has."""

    installation: WebhookId
    sender: WebhookUser
    repository: WebhookRepository


class InstallationPayload(WebhookModel):
    installation: WebhookId
    sender: WebhookUser
    repositories: tuple[WebhookId, ...] | None = Field(default=None, strict=False)
    repositories_added: tuple[WebhookId, ...] | None = Field(default=None, strict=False)
    repositories_removed: tuple[WebhookId, ...] | None = Field(default=None, strict=False)


class WebhookHead(WebhookModel):
    ref: Text
    sha: Sha
    repo: WebhookId | None = None


class WebhookPullRequestLink(WebhookModel):
    """The field that marks an issue as a pull request."""


class WebhookSubject(WebhookModel):
    """An issue, or a pull request in either of its shapes."""

    number: Id
    title: Text
    body: Text | None = None
    user: WebhookUser | None = None
    labels: tuple[WebhookName, ...] = Field(default=(), strict=False)
    pull_request: WebhookPullRequestLink | None = None
    head: WebhookHead | None = None
    merged: bool | None = None

    @property
    def is_pull_request(self) -> bool:
        return self.pull_request is not None or self.head is not None


class SubjectPayload(WebhookPayload):
    issue: WebhookSubject | None = None
    pull_request: WebhookSubject | None = None

    @model_validator(mode="after")
    def _is_about_one_thing(self) -> Self:
        if (self.issue is None) == (self.pull_request is None):
            raise ValueError("expected exactly one of issue and pull_request")
        return self

    @property
    def about(self) -> WebhookSubject:
        return self.issue or self.pull_request  # type: ignore[return-value]  # exactly one is there


class LabelPayload(SubjectPayload):
    label: WebhookName


class AssignmentPayload(SubjectPayload):
    assignee: WebhookUser


class WebhookText(WebhookId):
    user: WebhookUser | None = None
    body: Text | None = None
    performed_via_github_app: WebhookId | None = None


class WebhookComment(WebhookText):
    created_at: When


class WebhookReviewComment(WebhookComment):
    path: Text
    diff_hunk: Text = ""
    line: Id | None = None
    original_line: Id | None = None
    start_line: Id | None = None
    side: Text | None = None
    in_reply_to_id: Id | None = None


class WebhookReview(WebhookText):
    state: Text
    submitted_at: When


class CommentPayload(SubjectPayload):
    comment: WebhookComment


class ReviewCommentPayload(SubjectPayload):
    comment: WebhookReviewComment


class ReviewPayload(SubjectPayload):
    review: WebhookReview


class WebhookPullRequestNumber(WebhookModel):
    number: Id


class WebhookCheckSuite(WebhookModel):
    head_branch: Text | None = None


class WebhookCheckOutcome(WebhookId):
    """The result of a check. A run names its branch in its suite."""

    name: Text | None = None
    conclusion: Text | None = None
    head_sha: Sha
    head_branch: Text | None = None
    check_suite: WebhookCheckSuite | None = None
    pull_requests: tuple[WebhookPullRequestNumber, ...] = Field(default=(), strict=False)
    app: WebhookId | None = None

    @property
    def branch(self) -> str:
        return self.head_branch or (self.check_suite.head_branch if self.check_suite else None) or ""


class ChecksPayload(WebhookPayload):
    outcome: WebhookCheckOutcome = Field(validation_alias=AliasChoices("check_run", "check_suite", "workflow_run"))


class PushPayload(WebhookPayload):
    ref: Text
    before: Sha
    after: Sha


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
        return _event(name, payload)
    except _Ignore as no:
        return no.reason
    except ValidationError:
        return "malformed"


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


def _labelled(payload: Mapping[str, Any]) -> Event:
    found = LabelPayload.model_validate(payload)
    return LabelAdded(**_event_fields(found), subject=_subject(found.about), label=found.label.name)


def _unlabelled(payload: Mapping[str, Any]) -> Event:
    found = LabelPayload.model_validate(payload)
    return LabelRemoved(**_event_fields(found), subject=_subject(found.about), label=found.label.name)


def _assigned(payload: Mapping[str, Any]) -> Event:
    found = AssignmentPayload.model_validate(payload)
    return Assigned(**_event_fields(found), subject=_subject(found.about), assignee=found.assignee.id)


def _commented(payload: Mapping[str, Any]) -> Event:
    found = CommentPayload.model_validate(payload)
    return IssueCommented(**_text_fields(found, found.comment), at=found.comment.created_at)


def _review_commented(payload: Mapping[str, Any]) -> Event:
    found = ReviewCommentPayload.model_validate(payload)
    comment = found.comment
    thread = DiffThread(
        comment=comment.in_reply_to_id or comment.id,
        path=comment.path,
        start=comment.start_line or comment.line or comment.original_line,
        end=comment.line or comment.original_line,
        side=comment.side or "RIGHT",
        hunk=comment.diff_hunk,
    )
    return ReviewCommented(**_text_fields(found, comment), at=comment.created_at, thread=thread)


def _reviewed(payload: Mapping[str, Any]) -> Event:
    found = ReviewPayload.model_validate(payload)
    return ReviewSubmitted(
        **_text_fields(found, found.review), at=found.review.submitted_at, verdict=found.review.state.lower()
    )


def _checks(source: Literal["check_run", "check_suite", "workflow_run"]) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = ChecksPayload.model_validate(payload)
        outcome = found.outcome
        if outcome.conclusion not in FAILURES:
            raise _Ignore("no_failure")
        return ChecksFailed(
            **_event_fields(found),
            source=source,
            id=outcome.id,
            name=outcome.name or source,
            conclusion=outcome.conclusion,
            head_ref=outcome.branch,
            head_sha=outcome.head_sha,
            pull_requests=tuple(pull.number for pull in outcome.pull_requests),
            app=outcome.app.id if outcome.app else None,
        )

    return reader


def _issue_changed(
    change: Literal["closed", "reopened", "edited", "deleted", "transferred"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = SubjectPayload.model_validate(payload)
        return IssueChanged(**_event_fields(found), change=change, subject=_subject(found.about))

    return reader


def _pull_request_changed(
    change: Literal["synchronize", "closed", "reopened", "edited"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = SubjectPayload.model_validate(payload)
        merged = bool(found.about.merged)
        return PullRequestChanged(**_event_fields(found), change=change, subject=_subject(found.about), merged=merged)

    return reader


def _pushed(payload: Mapping[str, Any]) -> Event:
    found = PushPayload.model_validate(payload)
    if not found.ref.startswith(_BRANCH):
        raise _Ignore("no_branch")
    return Pushed(
        **_event_fields(found), branch=found.ref.removeprefix(_BRANCH), before=found.before, after=found.after
    )


def _repository_changed(
    change: Literal["renamed", "transferred", "archived", "unarchived", "deleted"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        return RepositoryChanged(**_event_fields(WebhookPayload.model_validate(payload)), change=change)

    return reader


def _installation_changed(
    change: Literal["created", "deleted", "suspended", "unsuspended", "added", "removed"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = InstallationPayload.model_validate(payload)
        named = {
            "added": found.repositories_added,
            "removed": found.repositories_removed,
        }.get(change, found.repositories)
        return InstallationChanged(
            installation=found.installation.id,
            actor=_actor(found.sender),
            change=change,
            repositories=tuple(repository.id for repository in named or ()),
        )

    return reader


def _actor(user: WebhookUser) -> Account:
    return Account(id=user.id, login=user.login, kind=user.type)


def _event_fields(found: WebhookPayload) -> dict[str, Any]:
    repository = Repository(
        id=found.repository.id,
        owner=found.repository.owner,
        name=found.repository.name,
        default_branch=found.repository.default_branch,
        private=found.repository.private,
        archived=found.repository.archived,
    )
    return {"installation": found.installation.id, "repository": repository, "actor": _actor(found.sender)}


def _text_fields(found: SubjectPayload, text: WebhookText) -> dict[str, Any]:
    if text.user is None or text.user.id != found.sender.id:
        raise _Ignore("not_the_author")
    via = text.performed_via_github_app
    fields = {"id": text.id, "words": SignedText.of(text.body or ""), "app": via.id if via else None}
    return {**_event_fields(found), "subject": _subject(found.about), **fields}


def _subject(about: WebhookSubject) -> EventSubject:
    head = about.head
    return EventSubject(
        number=about.number,
        is_pull_request=about.is_pull_request,
        title=about.title,
        body=SignedText.of(about.body or ""),
        author=about.user.id if about.user else None,
        labels=tuple(label.name for label in about.labels),
        head=BranchHead(repository=head.repo.id if head.repo else None, ref=head.ref, sha=head.sha) if head else None,
    )


_READERS: Final[dict[str, dict[str, Callable[[Mapping[str, Any]], Event]]]] = {
    "issues": {
        "labeled": _labelled,
        "assigned": _assigned,
        "unlabeled": _unlabelled,
        "closed": _issue_changed("closed"),
        "reopened": _issue_changed("reopened"),
        "edited": _issue_changed("edited"),
        "deleted": _issue_changed("deleted"),
        "transferred": _issue_changed("transferred"),
    },
    "issue_comment": {"created": _commented},
    "pull_request": {
        "labeled": _labelled,
        "unlabeled": _unlabelled,
        "synchronize": _pull_request_changed("synchronize"),
        "closed": _pull_request_changed("closed"),
        "reopened": _pull_request_changed("reopened"),
        "edited": _pull_request_changed("edited"),
    },
    "pull_request_review": {"submitted": _reviewed},
    "pull_request_review_comment": {"created": _review_commented},
    "check_run": {"completed": _checks("check_run")},
    "check_suite": {"completed": _checks("check_suite")},
    "workflow_run": {"completed": _checks("workflow_run")},
    "push": {"": _pushed},
    "repository": {
        "renamed": _repository_changed("renamed"),
        "transferred": _repository_changed("transferred"),
        "archived": _repository_changed("archived"),
        "unarchived": _repository_changed("unarchived"),
        "deleted": _repository_changed("deleted"),
    },
    "installation": {
        "created": _installation_changed("created"),
        "deleted": _installation_changed("deleted"),
        "suspend": _installation_changed("suspended"),
        "unsuspend": _installation_changed("unsuspended"),
    },
    "installation_repositories": {
        "added": _installation_changed("added"),
        "removed": _installation_changed("removed"),
    },
}
