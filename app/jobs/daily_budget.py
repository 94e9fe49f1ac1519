"""Limits what jobs may cost within 24 hours: per repository, per person, and for the whole server.

A budget is checked when its jobs are claimed and again before each of their model calls (`app.llm.sql_ledger`), in the
transaction that reserves the money: parallel jobs cannot spend the same dollar twice.
"""

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.core.money import DOLLAR, MicroUSD
from app.jobs.context import JobContext
from app.jobs.tables import job_contexts
from app.llm.errors import DayBudgetError
from app.llm.ledger import usd
from app.llm.sql_ledger import calls

A_DAY = 24 * 3600.0
WAITS_FOR_MONEY = "The day's budget of "
"""The beginning of the reason of a job that continues as soon as there is money again."""
_OF_JOBS = calls.join(job_contexts, job_contexts.c.job == calls.c.job_id)


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """A daily budget that jobs share: of a repository, of a person, of a person in a repository, or of the server."""

    label: str
    cap: MicroUSD
    repository: int | None = None
    actor: int | None = None
    clock: Callable[[], float] | None = None
    """Returns seconds since 1970."""

    def spent(self, db: Connection, job: str = "", call: str = "") -> tuple[MicroUSD, MicroUSD]:
        """The cost of the last 24 hours, and that cost plus what is reserved for calls other than this one."""
        since = (self.clock() if self.clock else 0.0) - A_DAY
        pending = calls.c.state == "reserved"
        this = sa.and_(calls.c.job_id == job, calls.c.call == call)
        query = sa.select(
            sa.func.sum(sa.case((pending, 0), else_=calls.c.cost)),
            sa.func.sum(sa.case((sa.or_(~pending, this), calls.c.cost), else_=calls.c.worst)),
        ).select_from(_OF_JOBS)
        booked, held = db.execute(query.where(_is_recent(since), *self._its_own())).one()
        return int(booked or 0), int(held or 0)

    def lock(self, db: Connection) -> None:
        """Lock the budget on Postgres until the transaction ends; SQLite has only one writer anyway."""
        if db.dialect.name == "postgresql":
            name = f"daily budget {self.repository} {self.actor}"
            db.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": name})

    def refuse(self, spent: MicroUSD, worst: MicroUSD) -> DayBudgetError:
        return DayBudgetError(
            f"{WAITS_FOR_MONEY}{self.label} ({usd(self.cap)}) leaves no room for a model call of up to {usd(worst)}: "
            f"{usd(spent)} is spent.",
            hint="The job continues automatically once enough of that spending is more than 24 hours old.",
        )

    @property
    def is_spent(self) -> str:
        return f"{WAITS_FOR_MONEY}{self.label} is spent; the job goes on once less was spent in the last 24 hours."

    def _its_own(self) -> list[sa.ColumnElement[bool]]:
        scope = ((job_contexts.c.repository, self.repository), (job_contexts.c.actor, self.actor))
        return [column == wanted for column, wanted in scope if wanted is not None]


@dataclass(frozen=True, slots=True)
class DayCaps:
    """The server's own daily caps in micro-dollars; 0 means no cap. A repository's caps are in its configuration."""

    server: MicroUSD = 0
    actor: MicroUSD = 0

    def budgets(self, job_context: JobContext, actor: int, clock: Callable[[], float]) -> tuple[DailyBudget, ...]:
        """The budgets that a job draws on. There is no personal one if the bot started the job by itself."""
        budget, repository, who = job_context.config.budget, job_context.issue_ref.repository, job_context.login
        here, one_here = _micro(budget.usd_per_day), _micro(budget.usd_per_day_actor)
        common = (
            DailyBudget("this repository", here, repository=repository, clock=clock),
            DailyBudget("this server", self.server, clock=clock),
        )
        personal = (
            DailyBudget(f"{who} in this repository", one_here, repository=repository, actor=actor, clock=clock),
            DailyBudget(who, self.actor, actor=actor, clock=clock),
        )
        return tuple(daily_budget for daily_budget in (*common, *(personal if who else ())) if daily_budget.cap)


def spent(db: Connection, repository: int, since: float) -> MicroUSD:
    """The cost of a repository's model calls since then (seconds since 1970), including lost and pending calls."""
    query = sa.select(sa.func.coalesce(sa.func.sum(calls.c.cost), 0)).select_from(_OF_JOBS)
    return int(db.execute(query.where(_is_recent(since), job_contexts.c.repository == repository)).scalar_one())


def _is_recent(since: float) -> sa.ColumnElement[bool]:
    """Selects recent calls. Calls stored without a time use the time at which their job was admitted."""
    return sa.or_(calls.c.at > since, sa.and_(calls.c.at == 0.0, job_contexts.c.created_at > since))


def _micro(dollars: float | None) -> MicroUSD:
    return round((dollars or 0) * DOLLAR)
