"""A circuit breaker per provider: after repeated failures calls pause, for all processes with one database."""

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from app.llm.base import ModelInfo
from app.llm.sql_ledger import pauses

FAILURES = 5
OPEN_SECONDS = 30.0
MAX_REST_LENGTH = 300.0
"""The longest pause in seconds, whatever the provider asks for; then one call tries it again."""


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


logger = logging.getLogger(__name__)


class SharedBreaker(CircuitBreaker):
    """Reads and writes block. A database that cannot be used stops no call."""

    def __init__(self, local: CircuitBreaker, provider: str, engine: Engine, clock: Callable[[], float]) -> None:
        super().__init__()
        self._local = local
        self._provider = provider
        self._engine = engine
        self._now = clock

    def delay(self) -> float:
        if left := self._shared():
            return left
        return self._local.delay()

    def remaining(self) -> float:
        return self._local.remaining()

    def succeeded(self) -> None:
        self._local.succeeded()

    def failed(self, why: str = "", retry_after: float | None = None) -> None:
        self.why = why
        self._local.failed(why, retry_after)
        if left := self._local.remaining():
            self._pause(self._now() + left, why[:80])

    def _shared(self) -> float:
        try:
            with self._engine.connect() as db:
                found = db.execute(select(pauses).where(pauses.c.provider == self._provider)).mappings().first()
        except SQLAlchemyError as error:
            logger.warning("pauses of providers cannot be read: %s", type(error).__name__)
            return 0.0
        if found is None or found["until"] <= self._now():
            return 0.0
        self.why = found["why"]
        return float(found["until"] - self._now())

    def _pause(self, until: float, why: str) -> None:
        """The longer of two pauses counts."""
        values = {"until": until, "why": why}
        here = pauses.c.provider == self._provider
        try:
            with self._engine.begin() as db:
                known = db.execute(update(pauses).where(here, pauses.c.until < until).values(values)).rowcount
                if not known and db.execute(select(pauses.c.until).where(here)).first() is None:
                    db.execute(insert(pauses).values(provider=self._provider, **values))
        except IntegrityError:  # another process was faster with a pause of about the same length
            return
        except SQLAlchemyError as error:
            logger.warning("a pause of a provider cannot be stored: %s", type(error).__name__)


class SharedBreakers(CircuitBreakers):
    """One breaker per provider and endpoint; `clock` in seconds since 1970."""

    def __init__(self, engine: Engine, clock: Callable[[], float], local: CircuitBreakers) -> None:
        super().__init__()
        self._engine = engine
        self._now = clock
        self._local = local
        self._shared: dict[str, SharedBreaker] = {}

    def of(self, info: ModelInfo) -> CircuitBreaker:
        endpoint = hashlib.sha256(info.endpoint.encode()).hexdigest()[:16] if info.endpoint else ""
        provider = f"{info.name.partition('/')[0][:100]} {endpoint}".strip()
        if provider not in self._shared:
            self._shared[provider] = SharedBreaker(self._local.of(info), provider, self._engine, self._now)
        return self._shared[provider]
