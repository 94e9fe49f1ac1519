"""The names of triggers: the same for a thing that was asked, whether a webhook, a redelivery or a look brought it."""

from datetime import UTC, datetime
from typing import Literal

from app.triggers.events import ChecksFailed, IssueCommented, LabelAdded, LabelRemoved, ReviewCommented, TriggerEvent


def key_of(event: TriggerEvent | ChecksFailed | LabelRemoved, asked_at: datetime) -> str:
    """`asked_at` is when a label was put on or taken off; all else is known by numbers."""
    repository = event.repository.id
    match event:
        case LabelAdded() | LabelRemoved():
            return label_key(repository, event.subject.number, asked_at, off=isinstance(event, LabelRemoved))
        case IssueCommented():
            return comment_key(repository, "comment", event.id)
        case ReviewCommented():
            return comment_key(repository, "review_comment", event.id)
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
    """Several checks of a commit fail together, and one job mends them."""
    return f"r{repository}/checks:{commit}"


def conflict_key(repository: int, number: int, head: str, base: str) -> str:
    """Two branches that conflict are looked at once for each pair of their commits."""
    return f"r{repository}/conflicts:{number}/{head[:20]}.{base[:20]}"
