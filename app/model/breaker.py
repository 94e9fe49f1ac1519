"""A circuit breaker per provider: after a row of failures everybody stops asking for a while, then one tries."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

FAILURES = 5
OPEN_SECONDS = 30.0


class Breaker:
    """Closed until `FAILURES` calls in a row failed; then open, and every `OPEN_SECONDS` one call may try."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    def delay(self) -> float:
        """Seconds until a call may be made; 0 gives leave to the one who asks."""
        if self._failures < FAILURES:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        self._until = self._clock() + OPEN_SECONDS
        return 0.0

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = self._clock() + OPEN_SECONDS


class Breakers:
    """One breaker per provider, shared by all jobs of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._breakers: defaultdict[str, Breaker] = defaultdict(partial(Breaker, clock))

    def of(self, model: str) -> Breaker:
        """The breaker of a model's provider: what stands before the first slash of its name."""
        return self._breakers[model.partition("/")[0]]
