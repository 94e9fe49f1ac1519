"""Keys of triggers: the same for a webhook, its redelivery and a poll."""

from datetime import UTC, datetime
from typing import Literal

from app.triggers.events import (
    ChecksFailed,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    ProgramCommand,
    ReviewCommented,
    TriggerEvent,
)


def key_of(event: TriggerEvent | ChecksFailed | LabelRemoved, asked_at: datetime) -> str:
    """The key of an event. `asked_at` is when a label changed; everything else has an id."""
    repository = event.repository.id
    match event:
        case LabelAdded() | LabelRemoved():
            return label_key(repository, event.subject.number, asked_at, off=isinstance(event, LabelRemoved))
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


def label_key(repository: int, number: int, at: datetime, *, off: bool = False) -> str:
    what = "unlabelled" if off else "labelled"
    return f"r{repository}/issue:{number}/{what}@{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def comment_key(repository: int, kind: Literal["comment", "review_comment", "review"], number: int) -> str:
    return f"r{repository}/{kind}:{number}"


def checks_key(repository: int, commit: str) -> str:
    """One key per commit: its checks fail together, and one job fixes them."""
    return f"r{repository}/checks:{commit}"


def conflict_key(repository: int, number: int, head: str, base: str) -> str:
    """One key per pair of commits: two conflicting branches are handled once."""
    return f"r{repository}/conflicts:{number}/{head[:20]}.{base[:20]}"
