"""A circuit breaker per provider: after repeated failures, calls pause for a while, then one call tries again."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial

from app.llm.base import ModelInfo

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_REST_LENGTH = 300.0
"""Whatever a provider asks for: it is asked again, by one, after so many seconds."""


class CircuitBreaker:
    """Closed until `FAILURES` calls in a row failed; then open, and one call may try every `OPEN_SECONDS`.

    If a provider tells one caller to come back later, all callers wait until then.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0
        self._resting = 0.0
        self.why = ""
        """The reason of the last failure (`app.llm.errors`)."""

    def delay(self) -> float:
        """Seconds until a call may be made; 0 lets this caller try."""
        if left := self.remaining():
            return left
        self._until = self._clock() + OPEN_SECONDS
        return 0.0

    def remaining(self) -> float:
        """As `delay`, without letting anyone try."""
        left = max(self._resting, self._until if self._failures >= FAILURES else 0.0) - self._clock()
        return max(left, 0.0)

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, why: str = "", retry_after: float | None = None) -> None:
        self._failures += 1
        self.why = why
        if self._failures >= FAILURES:
            self._until = self._clock() + OPEN_SECONDS
        if retry_after is not None:
            self._resting = self._clock() + min(retry_after, MAX_REST_LENGTH)


class CircuitBreakers:
    """One breaker per provider and endpoint, shared by all users of this object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._breakers: defaultdict[tuple[str, str], CircuitBreaker] = defaultdict(partial(CircuitBreaker, clock))

    def of(self, info: ModelInfo) -> CircuitBreaker:
        """The breaker of a model's provider: the part of its name before the first slash, and its endpoint."""
        return self._breakers[info.name.partition("/")[0], info.endpoint]


@cache
def process_breakers() -> CircuitBreakers:
    """The breakers that all models of this process share."""
    return CircuitBreakers()
