"""Paces requests as GitHub requires: one mutation a second, and none at all while a rate limit lasts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.core.clock import utc_now
from app.github.errors import RateLimited

BETWEEN_MUTATIONS = timedelta(seconds=1)
MAX_WAIT_LENGTH = timedelta(seconds=3)
"""Longer waits raise RateLimited, so that the caller can do other work."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What an answer said of one of GitHub's limits."""

    resource: str
    remaining: int
    limit: int
    resets_at: datetime
    at: datetime


class MutationPacer:
    """The pacer of one installation. Reads run in parallel, mutations one after the other.

    The first `at_once` mutations do not wait; later ones keep a second between them.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        at_once: int = 1,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._ahead = (at_once - 1) * BETWEEN_MUTATIONS
        self._mutating = asyncio.Lock()
        self._next_mutation = datetime(1, 1, 2, tzinfo=UTC)
        self._silent_until = datetime.min.replace(tzinfo=UTC)
        self.limits: dict[str, RateLimit] = {}
        """What the newest answers said, by resource."""

    @asynccontextmanager
    async def wait_for_mutation(self, *, mutation: bool) -> AsyncIterator[None]:
        """Enter when the request may be sent. Raises RateLimited if that is too far away."""
        if not mutation:
            await self._wait(self._silent_until)
            yield
            return
        async with self._mutating:
            await self._wait(max(self._silent_until, self._next_mutation - self._ahead))
            try:
                yield
            finally:
                self._next_mutation = max(self._next_mutation, self._now()) + BETWEEN_MUTATIONS

    def note_limit(self, headers: Mapping[str, str]) -> None:
        """Store the rate limit from a response's headers; Enterprise Server may send none."""
        numbers = [headers.get(f"x-ratelimit-{name}", "") for name in ("remaining", "limit", "reset")]
        if not all(number.isascii() and number.isdecimal() and len(number) < 11 for number in numbers):
            return
        remaining, limit, reset = map(int, numbers)
        resource = headers.get("x-ratelimit-resource", "core")[:40]
        resets_at = datetime.fromtimestamp(reset, UTC)
        self.limits[resource] = RateLimit(
            resource, min(remaining, 2**31 - 1), min(limit, 2**31 - 1), resets_at, self._now()
        )

    def pause_until(self, until: datetime) -> None:
        self._silent_until = max(self._silent_until, until)

    async def _wait(self, moment: datetime) -> None:
        while (remaining := moment - self._now()) > timedelta():
            if remaining > MAX_WAIT_LENGTH:
                raise RateLimited(f"GitHub accepts no request before {moment:%H:%M:%S} UTC.", until=moment)
            await self._sleep(remaining.total_seconds())
            moment = max(moment, self._silent_until)
