"""The time of day, as everything stores it."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def moment(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)
