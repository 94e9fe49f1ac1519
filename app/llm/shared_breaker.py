"""Circuit breakers whose pauses all processes with one database keep: what one job learned of a provider, all know."""

import hashlib
import logging
from collections.abc import Callable

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from app.llm.base import ModelInfo
from app.llm.circuit_breaker import CircuitBreaker, CircuitBreakers
from app.llm.sql_ledger import pauses

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
