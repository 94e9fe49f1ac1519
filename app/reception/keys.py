"""The names of triggers: the same for a thing that was asked, whether a webhook, a redelivery or a look brought it."""

from datetime import UTC, datetime

from app.events import ChecksFailed, Commented, Labelled, ReviewCommented, Trigger


def key_of(event: Trigger | ChecksFailed, asked_at: datetime) -> str:
    """`asked_at` is when a label was put on; the other things have numbers.

    Checks are known by their commit: several fail together, and one job mends them.
    """
    place = f"r{event.repository.id}"
    match event:
        case Labelled():
            when = asked_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return f"{place}/issue:{event.subject.number}/labelled@{when}"
        case Commented():
            return f"{place}/comment:{event.id}"
        case ReviewCommented():
            return f"{place}/review_comment:{event.id}"
        case ChecksFailed():
            return f"{place}/checks:{event.head_sha}"
        case _:
            return f"{place}/review:{event.id}"


def conflict_key(repository: int, number: int, head: str, base: str) -> str:
    """Two branches that conflict are looked at once for each pair of their commits."""
    return f"r{repository}/conflicts:{number}/{head[:20]}.{base[:20]}"
