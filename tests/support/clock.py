"""A clock that stands still until a test moves it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class SettableClock:
    """Returns `now`, which a test sets or moves on."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def passes(self, time: timedelta) -> None:
        self.now += time
