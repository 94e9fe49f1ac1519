"""Stops calls to a provider that keeps failing, and says how long to wait before a call is repeated."""

import hashlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from app.llm.base import ModelInfo
from app.llm.errors import ModelError
from app.llm.sql_ledger import pauses

logger = logging.getLogger(__name__)

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_REST_SECONDS = 300.0
"""The longest pause in seconds, whatever the provider asks for; then one call tries it again."""


@dataclass(frozen=True, slots=True)
class SharedPause:
    """A provider's or a model's pause that all processes with one database keep. Without a database, calls go on."""

    engine: Engine
    provider: str
    now: Callable[[], float]
    """Seconds since 1970."""

    def read(self) -> tuple[float, str]:
        """The seconds left, and why; 0 if there is no pause. Blocking."""
        try:
            with self.engine.connect() as db:
                found = db.execute(select(pauses).where(pauses.c.provider == self.provider)).mappings().first()
        except SQLAlchemyError as error:
            logger.warning("pauses of providers cannot be read: %s", type(error).__name__)
            return 0.0, ""
        return (max(0.0, found["until"] - self.now()), found["why"]) if found else (0.0, "")

    def extend(self, seconds: float, why: str) -> None:
        """Pause the provider for at least that long: the longer of two pauses counts. Blocking."""
        until = self.now() + seconds
        values = {"until": until, "why": why[:80]}
        here = pauses.c.provider == self.provider
        try:
            with self.engine.begin() as db:
                known = db.execute(update(pauses).where(here, pauses.c.until < until).values(values)).rowcount
                if not known and db.execute(select(pauses.c.until).where(here)).first() is None:
                    db.execute(insert(pauses).values(provider=self.provider, **values))
        except IntegrityError:  # another process was faster with a pause of about the same length
            return
        except SQLAlchemyError as error:
            logger.warning("a pause of a provider cannot be stored: %s", type(error).__name__)


class CircuitBreaker:
    """Closed until `FAILURES` calls in a row failed; then open, and one call may try every `OPEN_SECONDS`.

    If a provider tells one caller to come back later, all callers wait until then; with `shared`, in all processes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, shared: SharedPause | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._failures = 0
        self._until = 0.0
        self._resting = 0.0
        self.why = ""
        """The reason of the last failure (`app.llm.errors`)."""

    def delay(self) -> float:
        """Seconds until a call may be made; 0 lets this caller try. Blocking."""
        left, why = self._shared.read() if self._shared else (0.0, "")
        if left:
            self.why = why
            return left
        if left := self._remaining():
            return left
        self._until = self._clock() + OPEN_SECONDS
        return 0.0

    def _remaining(self) -> float:
        until = max(self._resting, self._until if self._failures >= FAILURES else 0.0)
        return max(until - self._clock(), 0.0)

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, why: str = "", retry_after: float | None = None) -> None:
        """Count a failure. Blocking."""
        self._failures += 1
        self.why = why
        if self._failures >= FAILURES:
            self._until = self._clock() + OPEN_SECONDS
        if retry_after is not None:
            self._resting = max(self._resting, self._clock() + min(retry_after, MAX_REST_SECONDS))
        if self._shared and (left := self._remaining()):
            self._shared.extend(left, why)


PROVIDER_WIDE = frozenset({"unreachable", "connection_lost", "quota", "no_key", "bad_key"})
"""Reasons that hold for every model of a provider; load, limits and errors are one model's."""


class ModelBreaker:
    """The breakers of one model: its own, and that of its provider and endpoint, which other models share."""

    def __init__(self, model: CircuitBreaker, provider: CircuitBreaker) -> None:
        self._model = model
        self._provider = provider
        self.why = ""
        """The reason of the pause that `delay` gave last."""

    def delay(self) -> float:
        """As `CircuitBreaker.delay`. Blocking."""
        for breaker in (self._provider, self._model):
            if left := breaker.delay():
                self.why = breaker.why
                return left
        return 0.0

    def succeeded(self) -> None:
        self._provider.succeeded()
        self._model.succeeded()

    def failed(self, why: str = "", retry_after: float | None = None) -> None:
        """Count a failure where its reason holds. Blocking."""
        (self._provider if why in PROVIDER_WIDE else self._model).failed(why, retry_after)


class CircuitBreakers:
    """One breaker for each model and one for each provider, at their endpoint; shared by all users of this object.

    With an `engine`, pauses are shared by all processes with that database; `now` is in seconds since 1970.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        engine: Engine | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._now = now
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}

    def of(self, info: ModelInfo) -> ModelBreaker:
        """A model's breakers; its provider is the part of its name before the first slash."""
        provider, _, rest = info.name.partition("/")
        return ModelBreaker(self._at(f"{provider}/{rest}", info.endpoint), self._at(provider, info.endpoint))

    def _at(self, name: str, endpoint: str) -> CircuitBreaker:
        key = name, endpoint
        if key not in self._breakers:
            shared = None
            if self._engine is not None:
                digest = hashlib.sha256(endpoint.encode()).hexdigest()[:16] if endpoint else ""
                shared = SharedPause(self._engine, f"{name[:140]} {digest}".strip(), self._now)
            self._breakers[key] = CircuitBreaker(self._clock, shared)
        return self._breakers[key]


@cache
def process_breakers() -> CircuitBreakers:
    """The breakers that all models of this process share."""
    return CircuitBreakers()


MAX_ATTEMPTS = 5
WAITS = 10
FIRST_DELAY = 1.0
MAX_DELAY_SECONDS = 30.0
MAX_WAIT_SECONDS = 300.0
TOTAL_WAIT = 900.0


@dataclass(slots=True)
class RetryBackoff:
    """The time allowed for one answer. `delay` counts what it grants; `jitter` draws from 0 to 1.

    Not stamina, which takes 65 ms to import: outages and rate limits are counted apart, each with its own waits.
    """

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
            if self.waits > WAITS or (error.retry_after or 0.0) > MAX_WAIT_SECONDS:
                wanted = None
            elif error.retry_after is None:
                wanted = self._backoff(self.waits + 2)
            else:
                wanted = error.retry_after + self.jitter()
        else:
            return None
        return None if wanted is None or not self.grant(wanted) else wanted

    def grant(self, seconds: float) -> bool:
        """Subtract a wait from the total; False if that is used up."""
        if self.waited + seconds > TOTAL_WAIT:
            return False
        self.waited += seconds
        return True

    def _backoff(self, repetition: int) -> float:
        longest = min(FIRST_DELAY * 2.0 ** (repetition - 1), MAX_DELAY_SECONDS)
        return float(longest * (0.5 + self.jitter()))
