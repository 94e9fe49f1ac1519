"""The time of day, as everything stores it."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)
