"""Parses raw webhook JSON into an Event, or into a reason for ignoring it that is counted."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from app.github.models import Account, Repository
from app.triggers import webhook_models
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


class ParseResult(NamedTuple):
    """An event, or the reason why there is none."""

    event: Event | None
    ignored: IgnoredReason | None = None


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


def read(name: str, payload: object) -> ParseResult:
    """Parse a payload by the event name in its header. Never raises."""
    if not isinstance(payload, Mapping):
        return ParseResult(None, "not_an_object")
    try:
        return ParseResult(_event(name, payload))
    except _Ignore as no:
        return ParseResult(None, no.reason)
    except ValidationError:
        return ParseResult(None, "malformed")


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
    found = webhook_models.LabelPayload.model_validate(payload)
    return LabelAdded(**_event_fields(found), subject=_subject(found.about), label=found.label.name)


def _unlabelled(payload: Mapping[str, Any]) -> Event:
    found = webhook_models.LabelPayload.model_validate(payload)
    return LabelRemoved(**_event_fields(found), subject=_subject(found.about), label=found.label.name)


def _assigned(payload: Mapping[str, Any]) -> Event:
    found = webhook_models.AssignmentPayload.model_validate(payload)
    return Assigned(**_event_fields(found), subject=_subject(found.about), assignee=found.assignee.id)


def _commented(payload: Mapping[str, Any]) -> Event:
    found = webhook_models.CommentPayload.model_validate(payload)
    return IssueCommented(**_text_fields(found, found.comment), at=found.comment.created_at)


def _review_commented(payload: Mapping[str, Any]) -> Event:
    found = webhook_models.ReviewCommentPayload.model_validate(payload)
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
    found = webhook_models.ReviewPayload.model_validate(payload)
    return ReviewSubmitted(
        **_text_fields(found, found.review), at=found.review.submitted_at, verdict=found.review.state.lower()
    )


def _checks(source: Literal["check_run", "check_suite", "workflow_run"]) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = webhook_models.ChecksPayload.model_validate(payload)
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
        found = webhook_models.SubjectPayload.model_validate(payload)
        return IssueChanged(**_event_fields(found), change=change, subject=_subject(found.about))

    return reader


def _pull_request_changed(
    change: Literal["synchronize", "closed", "reopened", "edited"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = webhook_models.SubjectPayload.model_validate(payload)
        merged = bool(found.about.merged)
        return PullRequestChanged(**_event_fields(found), change=change, subject=_subject(found.about), merged=merged)

    return reader


def _pushed(payload: Mapping[str, Any]) -> Event:
    found = webhook_models.PushPayload.model_validate(payload)
    if not found.ref.startswith(_BRANCH):
        raise _Ignore("no_branch")
    return Pushed(
        **_event_fields(found), branch=found.ref.removeprefix(_BRANCH), before=found.before, after=found.after
    )


def _repository_changed(
    change: Literal["renamed", "transferred", "archived", "unarchived", "deleted"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        return RepositoryChanged(**_event_fields(webhook_models.WebhookPayload.model_validate(payload)), change=change)

    return reader


def _installation_changed(
    change: Literal["created", "deleted", "suspended", "unsuspended", "added", "removed"],
) -> Callable[[Mapping[str, Any]], Event]:
    def reader(payload: Mapping[str, Any]) -> Event:
        found = webhook_models.InstallationPayload.model_validate(payload)
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


def _actor(user: webhook_models.WebhookUser) -> Account:
    return Account(id=user.id, login=user.login, kind=user.type)


def _event_fields(found: webhook_models.WebhookPayload) -> dict[str, Any]:
    repository = Repository(
        id=found.repository.id,
        owner=found.repository.owner,
        name=found.repository.name,
        default_branch=found.repository.default_branch,
        private=found.repository.private,
        archived=found.repository.archived,
    )
    return {"installation": found.installation.id, "repository": repository, "actor": _actor(found.sender)}


def _text_fields(found: webhook_models.SubjectPayload, text: webhook_models.WebhookText) -> dict[str, Any]:
    if text.user is None or text.user.id != found.sender.id:
        raise _Ignore("not_the_author")
    via = text.performed_via_github_app
    fields = {"id": text.id, "words": SignedText.of(text.body or ""), "app": via.id if via else None}
    return {**_event_fields(found), "subject": _subject(found.about), **fields}


def _subject(about: webhook_models.WebhookSubject) -> EventSubject:
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
