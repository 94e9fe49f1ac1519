"""The deliveries table: each accepted webhook once, until a worker has processed it.

A delivery is identified by its id and by its signed content, because the id is not signed. It counts as received only
once it is committed, so GitHub can redeliver one that could not be stored. Rows outlive the work for a while: content
hashes for longer than a trigger would act on an old comment, bodies only as long as they are useful.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.core.clock import in_utc
from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.jobs.tables import DELIVERIES, deliveries, insert_into, write_checks, writing

PROGRAM_EVENT: Final = "api:request"
"""The event name of deliveries that the API makes. A webhook cannot have it, because of the colon."""
MAX_UNDONE: Final = 50_000
MAX_ATTEMPTS: Final = 3
MAX_DEATHS: Final = 8
"""How many workers may die while they hold a delivery before it is given up.

A worker holds several, and only one may be to blame.
"""
KEEP_BODIES: Final = timedelta(days=3)
KEEP_ROWS: Final = timedelta(days=30)
LEASE: Final = timedelta(seconds=60)

StoreOutcome = Literal["stored", "duplicate", "conflict"]
Clock = Callable[[], datetime]


class InboxError(AgentFixError):
    """A delivery could not be stored; the sender should try again later."""

    exit_code = ExitCode.OUTPUT
    repeatable = True


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery with a valid signature. `body` is the signed JSON."""

    id: str
    event: str
    body: bytes

    @property
    def content(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery that this process holds until the lease ends; `attempt` fences off earlier holders."""

    seq: int
    attempt: int
    owner: str
    delivery: Delivery
    received_at: datetime


@dataclass(frozen=True, slots=True)
class InboxHealth:
    """How many deliveries are unfinished and since when, and how many were given up."""

    undone: int
    oldest: datetime | None
    dead: int


class Inbox:
    """The deliveries table, in short transactions on SQLite or Postgres, from any number of processes.

    Raises InboxError if a transaction fails.
    """

    def __init__(self, engine: Engine, clock: Clock, *, most_undone: int = MAX_UNDONE) -> None:
        self.engine = engine
        self._clock = clock
        self._most = most_undone

    def store(self, arrived: Sequence[Delivery]) -> list[StoreOutcome]:
        """Store all of them in one transaction; they are committed when this returns."""
        with self._transaction() as db:
            undone = db.scalar(sa.select(sa.func.count()).where(DELIVERIES.open)) or 0
            if undone + len(arrived) > self._most:
                raise InboxError(f"{undone} deliveries wait already.")
            stored = [self._store(db, delivery) for delivery in arrived]
            failpoint("delivery.storing")
        failpoint("delivery.stored")
        return stored

    def claim(self, owner: str, limit: int = 10, lease: timedelta = LEASE) -> list[ClaimedDelivery]:
        """Claim the oldest deliveries that nobody works on, or whose worker's lease has expired."""
        now = self._clock()
        due = sa.select(deliveries.c.seq).where(DELIVERIES.due(now)).order_by(deliveries.c.seq).limit(limit)
        with self._transaction() as db:
            DELIVERIES.end_leases_of_dead(db, now)
            DELIVERIES.give_up(db, sa.true(), now, MAX_DEATHS, "its worker died each time", done_at=now)
            # Not a subquery of the claim: Postgres may run that once for each row, with other rows each time.
            oldest = db.execute(due.with_for_update(skip_locked=True)).scalars().all()
            rows = DELIVERIES.claim(db, deliveries.c.seq.in_(oldest), owner, now, now + lease)
            found = sorted((_claimed(row) for row in rows), key=lambda claimed: claimed.seq)
        if found:
            failpoint("delivery.claimed")
        return found

    def renew(self, claimed: ClaimedDelivery) -> bool:
        """Extend the lease; False if another process has claimed the delivery."""
        return self._change(claimed, due_at=self._clock() + LEASE)

    def finish(self, claimed: ClaimedDelivery, outcome: str) -> bool:
        """Mark the delivery as processed; False if another process has claimed it."""
        failpoint("delivery.dealt_with")
        finished = self._change(claimed, state="done", outcome=outcome, owner=None, done_at=self._clock())
        failpoint("delivery.finished")
        return finished

    def put_back(self, claimed: ClaimedDelivery, reason: str, after: timedelta, *, counts: bool = True) -> bool:
        """Schedule a retry, or give up after the last attempt; False if another process has claimed the delivery.

        With `counts` False the attempt does not count, because the delivery is not at fault: GitHub is down, or other
        work must finish first.
        """
        now = self._clock()
        if not counts:
            spared = {"attempts": claimed.attempt - 1, "due_at": now + after}
            return self._change(claimed, state="waiting", outcome=reason, owner=None, **spared)
        if claimed.attempt >= MAX_ATTEMPTS:
            return self._change(claimed, state="dead", outcome=reason, owner=None, done_at=now)
        return self._change(claimed, state="waiting", outcome=reason, owner=None, due_at=now + after)

    def has_webhooks(self) -> bool:
        """True if any webhook has arrived in the last thirty days."""
        webhook = sa.exists().where(deliveries.c.event != PROGRAM_EVENT)
        with self.engine.connect() as db:
            return db.scalar(sa.select(webhook)) is True

    def health(self) -> InboxHealth:
        """The inbox's figures, from a transaction that also writes, so that a full or read-only disk is noticed."""
        with self._transaction() as db:
            beat = insert_into(db, write_checks).values(id=1, at=self._clock())
            db.execute(beat.on_conflict_do_update(index_elements=["id"], set_={"at": self._clock()}))
            return inbox_health(db)

    def prune(self) -> int:
        """Delete the bodies, and later the rows, of old processed deliveries; return the number of rows."""
        now = self._clock()
        over = sa.not_(DELIVERIES.open) & deliveries.c.done_at.is_not(None)
        with self._transaction() as db:
            old = deliveries.update().where(
                over, deliveries.c.state == "done", deliveries.c.done_at < now - KEEP_BODIES
            )
            db.execute(old.values(body=None))
            return db.execute(deliveries.delete().where(over, deliveries.c.done_at < now - KEEP_ROWS)).rowcount

    def _store(self, db: Connection, delivery: Delivery) -> StoreOutcome:
        if insert_delivery(db, delivery, self._clock()):
            return "stored"
        known = db.execute(deliveries.select().where(deliveries.c.id == delivery.id)).mappings().first()
        if known is not None and known["content"] != delivery.content:
            return "conflict"
        same = deliveries.c.content == delivery.content  # one that was given up is redelivered to be tried again
        again = DELIVERIES.retry(db, same, self._clock(), done_at=None, body=delivery.body)
        return "stored" if again else "duplicate"

    def _change(self, claimed: ClaimedDelivery, **values: object) -> bool:
        with self._transaction() as db:
            return DELIVERIES.change(db, claimed.seq, claimed.owner, claimed.attempt, **values)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with writing(self.engine) as db:
                yield db
        except SQLAlchemyError as error:
            raise InboxError(f"The database refused a transaction: {type(error).__name__}.") from error


# Built once, because SQLAlchemy takes longer to build a statement than SQLite to execute it.
_NEW: Final = {
    "sqlite": sqlite.insert(deliveries).on_conflict_do_nothing().returning(deliveries.c.seq),
    "postgresql": postgresql.insert(deliveries).on_conflict_do_nothing().returning(deliveries.c.seq),
}


def insert_delivery(db: Connection, delivery: Delivery, now: datetime) -> bool:
    """Insert a delivery in the caller's transaction; False if its id or its content is known."""
    row = {"id": delivery.id, "content": delivery.content, "event": delivery.event, "body": delivery.body}
    times = {"received_at": now, "due_at": now}
    return db.execute(_NEW[db.dialect.name], {**row, **times, "state": "waiting"}).first() is not None


def inbox_health(db: Connection) -> InboxHealth:
    query = sa.select(sa.func.count(), sa.func.min(deliveries.c.received_at)).where(DELIVERIES.open)
    undone, oldest = db.execute(query).one()
    dead = db.scalar(sa.select(sa.func.count()).where(DELIVERIES.dead)) or 0
    return InboxHealth(undone, in_utc(oldest) if oldest else None, dead)


def _claimed(row: sa.RowMapping) -> ClaimedDelivery:
    delivery = Delivery(id=row["id"], event=row["event"], body=bytes(row["body"]))
    received = in_utc(row["received_at"])
    return ClaimedDelivery(row["seq"], row["attempts"], row["owner"], delivery, received)


MAX_TOGETHER: Final = 64

_Waiting = tuple[Delivery, "asyncio.Future[StoreOutcome]"]


class BatchWriter:
    """The async interface of an inbox: `put` returns after the commit with the delivery, or raises its InboxError."""

    def __init__(self, store: Callable[[Sequence[Delivery]], list[StoreOutcome]]) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def put(self, delivery: Delivery) -> StoreOutcome:
        future: asyncio.Future[StoreOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
            storing = asyncio.to_thread(self._store, [delivery for delivery, _ in batch])
            (outcome,) = await asyncio.gather(storing, return_exceptions=True)
            for number, (_, future) in enumerate(batch):
                if future.done():  # the sender may have disconnected
                    continue
                if isinstance(outcome, BaseException):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[number])
