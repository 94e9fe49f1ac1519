"""Remembers requests by their Idempotency-Key, so that a repeated one gets the first one's answer and does nothing."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy.engine import Engine

from app.core.job import new_job_id
from app.jobs.tables import idempotency_keys, writing

KEPT_FOR: Final = timedelta(days=2)
IN_PROGRESS: Final = timedelta(seconds=30)
"""How long the first request is waited for; after that its process has died, and a repetition does its work."""


class KeyReused(Exception):  # noqa: N818  # an answer, not a fault
    """The key was used for another request."""


class StillInProgress(Exception):  # noqa: N818  # an answer, not a fault
    """The first request with this key has no answer yet."""


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """`id` names what the request creates, also if it is repeated after a crash; `answer` is set if there was one."""

    key: str
    id: str
    answer: dict[str, Any] | None = None


class IdempotencyKeys:
    """The remembered requests, in short transactions."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def begin(self, caller: str, key: str, request: str) -> RememberedRequest:
        """Remember a request before it is carried out. Raises KeyReused or StillInProgress.

        Without a key, nothing is remembered.
        """
        new, now = new_job_id(), self._clock().timestamp()
        if not key:
            return RememberedRequest("", new)
        name, digest = _digest(f"{caller}\0{key}"), _digest(request)
        mine = idempotency_keys.c.key == name
        with writing(self._engine) as db:
            old = idempotency_keys.c.at < now - KEPT_FOR.total_seconds()
            db.execute(idempotency_keys.delete().where(old))
            row = db.execute(idempotency_keys.select().where(mine).with_for_update()).mappings().first()
            if row is None:
                db.execute(idempotency_keys.insert().values(key=name, request=digest, id=new, at=now))
                return RememberedRequest(name, new)
            if row["request"] != digest:
                raise KeyReused("This Idempotency-Key was used for another request.")
            if row["answer"] is None:
                if row["at"] > now - IN_PROGRESS.total_seconds():
                    raise StillInProgress("The first request with this Idempotency-Key has not been answered yet.")
                db.execute(idempotency_keys.update().where(mine).values(at=now))
        return RememberedRequest(name, row["id"], row["answer"])

    def finish(self, remembered: RememberedRequest, answer: dict[str, Any]) -> None:
        """Store the answer for repetitions."""
        if remembered.key:
            mine = idempotency_keys.update().where(idempotency_keys.c.key == remembered.key)
            with writing(self._engine) as db:
                db.execute(mine.values(answer=answer))

    def forget(self, remembered: RememberedRequest) -> None:
        """Forget a request that was refused and changed nothing, so that it may be tried again."""
        if remembered.key:
            with writing(self._engine) as db:
                db.execute(idempotency_keys.delete().where(idempotency_keys.c.key == remembered.key))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
