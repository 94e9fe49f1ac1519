"""A durable ledger: one row per call, in short transactions, on SQLite and Postgres."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
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

from app.core.model_usage import MicroUSD, Totals
from app.llm.base import Usage
from app.llm.errors import BudgetError
from app.llm.ledger import NOTHING, near_cap_warning, over_cap, total

metadata = MetaData()
pauses = Table(
    "provider_pauses",
    metadata,
    Column("provider", String(160), primary_key=True),
    Column("until", Double, nullable=False),
    Column("why", String(80), nullable=False, default=""),
)
"""Until when no process uses a provider, in seconds since 1970. `provider` is its name and a digest of the endpoint,
which may hold a password."""
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
    Column("at", Double, nullable=False, default=0.0),
    Index("ix_calls_days", "at", "state", "cost", "job_id"),  # the same for sums of days
    Index("ix_calls_money", "job_id", "state", "cost"),  # totals without reading the pages that hold the answers
)
"""Until a call is booked its usage columns hold what counts if it is lost. `at`: seconds since 1970; 0 is unknown."""

job_costs = Table(
    "job_costs",
    metadata,
    Column("job_id", String(128), primary_key=True),
    Column("cost", BigInteger, nullable=False),
)
"""The sum of a job's calls that are not pending, so that lists need not add them up."""


class SharedBudget(Protocol):
    """A budget that several jobs share (`app.jobs.queue.DailyBudget`)."""

    @property
    def label(self) -> str: ...

    @property
    def cap(self) -> MicroUSD: ...

    def spent(self, db: Connection, job: str = "", call: str = "") -> tuple[MicroUSD, MicroUSD]:
        """The money spent, and that plus what is reserved for calls other than this one."""
        ...

    def lock(self, db: Connection) -> None:
        """Prevent other reservations from this budget until the transaction ends."""
        ...

    def refusal(self, spent: MicroUSD, worst: MicroUSD) -> BudgetError: ...


# Built once, because SQLAlchemy takes longer to build a statement than SQLite to execute it.
_OF_JOB = calls.c.job_id == bindparam("job")
_OF_CALL = and_(_OF_JOB, calls.c.call == bindparam("name"))
_PENDING = calls.c.state == "reserved"
_LOSE = update(calls).where(_OF_CALL, _PENDING).values(state="lost")
_NAME = bindparam("name", type_=String)
_LOSE_ALL = (
    update(calls)
    .where(_OF_JOB, _PENDING, func.substr(calls.c.call, 1, func.length(_NAME)) == _NAME)
    .values(state="lost")
)
_LAST = select(func.max(calls.c.attempt)).where(_OF_CALL)
_RESERVE = insert(calls)
_BOOK = update(calls).where(_OF_CALL, _PENDING)
_BOUGHT = (
    select(calls.c.answer)
    .where(_OF_CALL, calls.c.state == "booked", calls.c.answer != "")
    .order_by(calls.c.attempt.desc())
    .limit(1)
)
_SET_ASIDE = update(calls).where(_OF_JOB).values(call=literal("earlier.") + calls.c.call)
_ALL = select(calls).where(_OF_JOB)
_SUM_UP = text(
    "INSERT INTO job_costs (job_id, cost) SELECT CAST(:job AS VARCHAR), coalesce(sum(cost), 0) FROM calls "
    "WHERE job_id = :job AND state <> 'reserved' ON CONFLICT (job_id) DO UPDATE SET cost = excluded.cost"
)
_SUM_UP_ALL = text(
    "INSERT INTO job_costs (job_id, cost) SELECT job_id, sum(cost) FROM calls WHERE state <> 'reserved' "
    "GROUP BY job_id ON CONFLICT (job_id) DO UPDATE SET cost = excluded.cost WHERE excluded.cost > job_costs.cost"
)
_MONEY = select(
    func.sum(case((_PENDING, literal(0)), else_=calls.c.cost)),
    func.sum(case((or_(~_PENDING, calls.c.call == bindparam("name")), calls.c.cost), else_=calls.c.worst)),
).where(_OF_JOB)
"""What is spent, and what is spent or held; what is pending for the named call counts as lost already."""


def sum_up_costs(db: Connection) -> None:
    """Fill `job_costs` for calls that were booked by a program that does not know it."""
    db.execute(_SUM_UP_ALL)


class SqlLedger:
    """One job's account in the table `calls`; the caller creates `metadata`. Safe between threads and processes.

    `shared` are caps on what this and other jobs cost together; `clock` returns the time of a call in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        job_id: str,
        cap: MicroUSD,
        *,
        shared: Sequence[SharedBudget] = (),
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._engine = engine
        self._job = job_id
        self._cap = cap
        self._shared = shared
        self._clock = clock

    @property
    def cap(self) -> MicroUSD:
        return self._cap

    def reserve(self, call: str, worst: MicroUSD, *, if_lost: Usage = NOTHING) -> None:
        with self._writing() as connection:
            if connection.execute(_LOSE, self._named(call)).rowcount:
                connection.execute(_SUM_UP, {"job": self._job})
            last = connection.scalar(_LAST, self._named(call)) or 0
            refusal = self._refusal(connection, call, worst)
            if refusal is None:
                row = {"job_id": self._job, "call": call, "attempt": last + 1, "state": "reserved", "worst": worst}
                at = self._clock() if self._clock else 0.0
                connection.execute(_RESERVE, {**row, **if_lost.model_dump(), "at": at})
        if refusal is not None:  # raised outside the transaction, so that the lost call is stored
            raise refusal

    def book(self, call: str, usage: Usage, answer: str = "") -> None:
        booked = {"state": "booked", "answer": answer, **usage.model_dump()}
        with self._writing() as connection:
            connection.execute(_BOOK, {**self._named(call), **booked})
            connection.execute(_SUM_UP, {"job": self._job})

    def mark_lost(self, prefix: str) -> None:
        with self._writing() as connection:
            connection.execute(_LOSE_ALL, self._named(prefix))
            connection.execute(_SUM_UP, {"job": self._job})

    def set_aside(self) -> None:
        """Rename all calls, those in flight as lost: they stay paid for, and their answers are not used again."""
        self.mark_lost("")  # nobody would find their reservations under the new names
        with self._writing() as connection:
            connection.execute(_SET_ASIDE, {"job": self._job})

    def stored_answer(self, call: str) -> str | None:
        with self._engine.connect() as connection:
            return connection.scalar(_BOUGHT, self._named(call))

    def spent(self) -> MicroUSD:
        with self._engine.connect() as connection:
            return self._money(connection, "")[0]

    def remaining(self, call: str = "") -> MicroUSD:
        with self._engine.connect() as connection:
            left = [
                daily_budget.cap - daily_budget.spent(connection, self._job, call)[1] for daily_budget in self._shared
            ]
            return max(0, min([self._money(connection, call)[1], *left]))

    def totals(self) -> Totals:
        with self._engine.connect() as connection:
            rows = connection.execute(_ALL, {"job": self._job}).mappings().all()
        return total(((row["state"], _usage(row)) for row in rows), (row["answer"] for row in rows))

    def refusal(self, call: str, worst: MicroUSD) -> BudgetError:
        with self._engine.connect() as connection:
            found = self._refusal(connection, call, worst)
            return found or over_cap(self._cap, *self._money(connection, call), worst)

    def nearing(self, cost: MicroUSD) -> tuple[str, ...]:
        with self._engine.connect() as connection:
            found = near_cap_warning("budget", self._cap, self._money(connection, "")[0], cost)
            for daily_budget in self._shared:
                what = f"day's budget of {daily_budget.label}"
                found += near_cap_warning(what, daily_budget.cap, daily_budget.spent(connection)[0], cost)
        return found

    def _refusal(self, connection: Connection, call: str, worst: MicroUSD) -> BudgetError | None:
        """Checks the job's own cap first: more money for the day would not help it."""
        spent, remaining = self._money(connection, call)
        if worst > remaining:
            return over_cap(self._cap, spent, remaining, worst)
        for daily_budget in self._shared:
            daily_budget.lock(connection)
            spent, held = daily_budget.spent(connection, self._job, call)
            if worst > daily_budget.cap - held:
                return daily_budget.refusal(spent, worst)
        return None

    def _money(self, connection: Connection, call: str) -> tuple[MicroUSD, MicroUSD]:
        """The money spent, and the highest cost that the next call may have."""
        spent, held = connection.execute(_MONEY, self._named(call)).one()
        return int(spent or 0), max(0, self._cap - int(held or 0))

    def _named(self, call: str) -> dict[str, str]:
        return {"job": self._job, "name": call}

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that does not overlap with others of this job, so that what it reads stays true."""
        with self._engine.begin() as connection:
            if connection.dialect.name != "sqlite":  # SQLite has one writer, and ours write first
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:job))"), {"job": self._job})
            yield connection


def _usage(row: RowMapping) -> Usage:
    return Usage(**{name: row[name] for name in Usage.model_fields})
