"""The ledger that survives its process: one row per call, in short transactions, on SQLite and Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    and_,
    bindparam,
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
    Index("ix_calls_money", "job_id", "state", "cost"),  # sums without the pages that hold the answers
)
"""Until a call is booked its usage columns hold what counts if it is lost."""


# Written once, because SQLAlchemy takes longer to write a statement than SQLite to execute it.
_OF_JOB = calls.c.job_id == bindparam("job")
_OF_CALL = and_(_OF_JOB, calls.c.call == bindparam("name"))
_PENDING = calls.c.state == "reserved"
_LOSE = update(calls).where(_OF_CALL, _PENDING).values(state="lost")
_LAST = select(func.max(calls.c.attempt)).where(_OF_CALL)
_RESERVE = insert(calls)
_BOOK = update(calls).where(_OF_CALL, _PENDING)
_BOUGHT = select(calls.c.answer).where(_OF_CALL, calls.c.state == "booked", calls.c.answer != "")
_ALL = select(calls).where(_OF_JOB)
_MONEY = select(
    func.sum(case((_PENDING, literal(0)), else_=calls.c.cost)),
    func.sum(case((or_(~_PENDING, calls.c.call == bindparam("name")), calls.c.cost), else_=calls.c.worst)),
).where(_OF_JOB)
"""What is spent, and what is spent or held; what is pending for the named call counts as lost already."""


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
            connection.execute(_LOSE, self._named(call))
            last = connection.scalar(_LAST, self._named(call)) or 0
            spent, remaining = self._money(connection, "")
            if worst <= remaining:
                row = {"job_id": self._job, "call": call, "attempt": last + 1, "state": "reserved", "worst": worst}
                connection.execute(_RESERVE, {**row, **if_lost.model_dump()})
        if worst > remaining:  # raised outside, so that the lost call is kept
            raise over_cap(self._cap, spent, worst)

    def book(self, call: str, usage: Usage, answer: str = "") -> None:
        booked = {"state": "booked", "answer": answer, **usage.model_dump()}
        with self._writing() as connection:
            connection.execute(_BOOK, {**self._named(call), **booked})

    def bought(self, call: str) -> str | None:
        with self._engine.connect() as connection:
            return connection.scalar(_BOUGHT, self._named(call))

    def spent(self) -> MicroUSD:
        with self._engine.connect() as connection:
            return self._money(connection, "")[0]

    def remaining(self, call: str = "") -> MicroUSD:
        with self._engine.connect() as connection:
            return self._money(connection, call)[1]

    def totals(self) -> Totals:
        with self._engine.connect() as connection:
            rows = connection.execute(_ALL, {"job": self._job}).mappings().all()
        return total(((row["state"], _usage(row)) for row in rows), (row["answer"] for row in rows))

    def _money(self, connection: Connection, call: str) -> tuple[MicroUSD, MicroUSD]:
        """Spent, and what the next call may cost at worst."""
        spent, held = connection.execute(_MONEY, self._named(call)).one()
        return int(spent or 0), max(0, self._cap - int(held or 0))

    def _named(self, call: str) -> dict[str, str]:
        return {"job": self._job, "name": call}

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that no other of this job overlaps with: what is read in it stays true until it ends."""
        with self._engine.begin() as connection:
            if connection.dialect.name != "sqlite":  # SQLite has one writer, and ours write before they read
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:job))"), {"job": self._job})
            yield connection


def _usage(row: RowMapping) -> Usage:
    return Usage(**{name: row[name] for name in Usage.model_fields})
