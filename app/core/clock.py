"""The time of day, as everything stores it."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


def moment(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)


def in_utc(at: datetime) -> datetime:
    """Add UTC: SQLite stores no time zone, and all our times are in UTC."""
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
