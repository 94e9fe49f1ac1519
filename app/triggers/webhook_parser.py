"""Parses raw webhook JSON into an Event, or into a reason for ignoring it; fields that we do not read are ignored."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import from_json

from app.github.models import GitHubModel
from app.triggers.events import (
    Assigned,
    ChecksFailed,
    CheckSource,
    CommentEvent,
    Event,
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
