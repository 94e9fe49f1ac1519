"""The ledger that survives its process: one row per call, in short transactions, on SQLite and Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    and_,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)

from app.model.base import MicroUSD, Usage
from app.model.budget import NOTHING, Totals, over_cap, total

metadata = MetaData()
calls = Table(
    "calls",
    metadata,
    Column("job_id", String(128), primary_key=True),
    Column("call", String(200), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("worst", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("answer", Text, nullable=False, default=""),
)
"""Until a call is booked its usage columns hold what counts if it is lost."""


class SqlLedger:
    """One job's account in the table `calls`; the caller creates `metadata`. Safe between threads and processes."""

    def __init__(self, engine: Engine, job_id: str, cap: MicroUSD) -> None:
        self._engine = engine
        self._job = job_id
        self._cap = cap

    @property
    def cap(self) -> MicroUSD:
        return self._cap

    def reserve(self, call: str, worst: MicroUSD, *, if_lost: Usage = NOTHING) -> None:
        with self._writing() as connection:
            earlier = self._rows(call)
            connection.execute(update(calls).where(earlier, calls.c.state == "reserved").values(state="lost"))
            last = connection.scalar(select(func.max(calls.c.attempt)).where(earlier)) or 0
            spent, remaining = self._money(connection, "")
            if worst <= remaining:
                row = {"job_id": self._job, "call": call, "attempt": last + 1, "state": "reserved", "worst": worst}
                connection.execute(insert(calls).values(**row, **if_lost.model_dump()))
        if worst > remaining:  # raised outside, so that the lost call is kept
            raise over_cap(self._cap, spent, worst)

    def book(self, call: str, usage: Usage, answer: str = "") -> None:
        with self._writing() as connection:
            pending = and_(self._rows(call), calls.c.state == "reserved")
            booked = update(calls).where(pending)
            connection.execute(booked.values(state="booked", answer=answer, **usage.model_dump()))

    def bought(self, call: str) -> str | None:
        with self._engine.connect() as connection:
            query = select(calls.c.answer).where(self._rows(call), calls.c.state == "booked", calls.c.answer != "")
            return connection.scalar(query)

    def spent(self) -> MicroUSD:
        with self._engine.connect() as connection:
            return self._money(connection, "")[0]

    def remaining(self, call: str = "") -> MicroUSD:
        with self._engine.connect() as connection:
            return self._money(connection, call)[1]

    def totals(self) -> Totals:
        with self._engine.connect() as connection:
            rows = connection.execute(select(calls).where(calls.c.job_id == self._job)).mappings().all()
        return total((row["state"], _usage(row)) for row in rows)

    def _money(self, connection: Connection, call: str) -> tuple[MicroUSD, MicroUSD]:
        """Spent, and what the next call may cost at worst."""
        pending = calls.c.state == "reserved"
        held = case((or_(~pending, calls.c.call == call), calls.c.cost), else_=calls.c.worst)
        spent = case((pending, literal(0)), else_=calls.c.cost)
        query = select(func.sum(spent), func.sum(held)).where(calls.c.job_id == self._job)
        sums = connection.execute(query).one()
        return int(sums[0] or 0), max(0, self._cap - int(sums[1] or 0))

    def _rows(self, call: str) -> ColumnElement[bool]:
        return and_(calls.c.job_id == self._job, calls.c.call == call)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that no other of this job overlaps with: what is read in it stays true until it ends."""
        with self._engine.begin() as connection:
            if connection.dialect.name != "sqlite":  # SQLite has one writer, and ours write before they read
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:job))"), {"job": self._job})
            yield connection


def _usage(row: RowMapping) -> Usage:
    return Usage(**{name: row[name] for name in Usage.model_fields})
