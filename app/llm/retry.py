"""Decides when a failed call is retried: after an exponential delay with jitter, or when the provider said."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from app.llm.errors import ModelError

MAX_ATTEMPTS = 5
WAITS = 10
FIRST_DELAY = 1.0
MAX_DELAY_LENGTH = 30.0
MAX_WAIT_LENGTH = 300.0
TOTAL_WAIT = 900.0


@dataclass(slots=True)
class RetryBackoff:
    """The time allowed for one answer. `delay` counts what it grants; `jitter` draws from 0 to 1."""

    jitter: Callable[[], float] = random.random
    tries: int = field(default=1, init=False)
    waits: int = field(default=0, init=False)
    waited: float = field(default=0.0, init=False)

    def delay(self, error: ModelError) -> float | None:
        """Seconds until the next try, or None for no further try.

        If a provider asks for a longer wait than is left, there is none: an earlier retry would fail.
        """
        if error.kind == "retry":
            self.tries += 1
            wanted = self._backoff(self.tries - 1) if self.tries <= MAX_ATTEMPTS else None
        elif error.kind == "wait":
            self.waits += 1
            wanted = self._until(error) if self.waits <= WAITS else None
        else:
            return None
        return None if wanted is None or not self.grant(wanted) else wanted

    def grant(self, seconds: float) -> bool:
        """Subtract a wait from the total; False if that is used up."""
        if self.waited + seconds > TOTAL_WAIT:
            return False
        self.waited += seconds
        return True

    def _until(self, error: ModelError) -> float | None:
        if error.retry_after is None:
            return self._backoff(self.waits + 2)
        return error.retry_after + self.jitter() if error.retry_after <= MAX_WAIT_LENGTH else None

    def _backoff(self, repetition: int) -> float:
        longest = min(FIRST_DELAY * 2.0 ** (repetition - 1), MAX_DELAY_LENGTH)
        return float(longest * (0.5 + self.jitter()))
