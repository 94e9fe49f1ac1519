"""Shows whether a server makes progress: figures for alarms, and the job that has been stalled the longest."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import in_utc
from app.core.money import MicroUSD
from app.jobs.daily_budget import WAITS_FOR_MONEY
from app.jobs.inbox import DELIVERIES, deliveries
from app.jobs.job_queries import BOTH, WORKED_ON
from app.jobs.queue import QueueLimits
from app.jobs.tables import effects, job_contexts, jobs
from app.llm.sql_ledger import calls

TOO_LONG = timedelta(minutes=10)
"""A job in which nobody works for so long, although it is somebody's turn, is an alarm (R11)."""

SLOW = timedelta(minutes=1)
"""A webhook usually takes seconds; the dashboard says when one has been waiting for longer than this."""

SPENT_LASTS = timedelta(minutes=1)
"""How long the cached sum of all model calls is valid."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """What decides whether an active job should be in progress. `held`: a worker has a valid lease on it."""

    job: str
    repository: int
    state: str
    reason: str
    held: bool
    ready: bool
    since: datetime
    """When its state or owner last changed, or when it became due."""


@dataclass(frozen=True, slots=True)
class StalledJob:
    """A job that should be making progress but that nobody works on."""

    job: str
    seconds: float


@dataclass(frozen=True, slots=True)
class HealthFigures:
    """A server's current load. Ages are in seconds, 0.0 if there is nothing of that kind."""

    jobs: dict[str, int]
    oldest_queued: float
    stalled: StalledJob | None
    deliveries_undone: int
    oldest_delivery: float
    deliveries_dead: int
    outbox: dict[str, int]
    oldest_effect: float
    effects_retried: int
    cost: MicroUSD
    model_calls: int


class HealthMetrics:
    """Reads the health figures; each call is one short read transaction."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime], limits: QueueLimits) -> None:
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._spent: tuple[datetime, MicroUSD, int] | None = None

    def stalled(self) -> StalledJob | None:
        """The job that has been stalled the longest; None if there is none."""
        now = self._clock()
        with self._engine.connect() as db:
            waiting = _waiting_jobs(db, now)
            return longest_stalled(waiting, self._limits, _last_release(db, waiting), now)

    def figures(self) -> HealthFigures:
        now = self._clock()
        with self._engine.connect() as db:
            waiting = _waiting_jobs(db, now)
            undone, oldest, dead = _deliveries(db)
            former = sa.exists().where(jobs.c.id == effects.c.job, jobs.c.epoch != effects.c.epoch)
            open_effects = sa.and_(effects.c.state == "wanted", sa.not_(former))  # nobody claims those of former owners
            due = sa.select(sa.func.min(effects.c.due)).where(open_effects)
            retried = sa.and_(open_effects, effects.c.attempts > 0, effects.c.key.not_like("%/notification/%"))
            if self._spent is None or now - self._spent[0] >= SPENT_LASTS:
                self._spent = now, *_spent(db)
            queued = [job.since for job in waiting if job.state == "queued"]
            return HealthFigures(
                jobs=_counted(db, jobs.c.state),
                oldest_queued=_age(min(queued, default=now), now),
                stalled=longest_stalled(waiting, self._limits, _last_release(db, waiting), now),
                deliveries_undone=undone,
                oldest_delivery=_age(oldest or now, now),
                deliveries_dead=dead,
                outbox=_counted(db, effects.c.state),
                oldest_effect=max(now.timestamp() - (db.scalar(due) or now.timestamp()), 0.0),
                effects_retried=db.scalar(sa.select(sa.func.count()).where(retried)) or 0,
                cost=self._spent[1],
                model_calls=self._spent[2],
            )


def longest_stalled(
    waiting: list[WaitingJob], limits: QueueLimits, last_release: datetime | None, now: datetime
) -> StalledJob | None:
    """The longest-stalled job.

    A job that waits for its turn behind others, for the daily budget or for people is not stalled.
    """
    busy = Counter(job.repository for job in waiting if job.held)
    full = busy.total() >= limits.jobs
    found = []
    for job in waiting:
        begins = job.since
        if job.state != "publishing":
            waits_its_turn = full or busy[job.repository] >= limits.per_repository
            if job.held or job.reason.startswith(WAITS_FOR_MONEY) or (job.ready and waits_its_turn):
                continue
            if job.ready and last_release is not None:
                begins = max(begins, last_release)  # before that it may have been waiting for its turn
        if begins <= now:
            found.append(StalledJob(job.job, (now - begins).total_seconds()))
    return max(found, key=lambda stalled: stalled.seconds, default=None)


def _waiting_jobs(db: Connection, now: datetime) -> list[WaitingJob]:
    job = (jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.owner, jobs.c.updated_at)
    place = (job_contexts.c.repository, job_contexts.c.ready, job_contexts.c.due, job_contexts.c.lease_until)
    query = sa.select(*job, *place).select_from(BOTH).where(jobs.c.state.in_((*WORKED_ON, "publishing")))
    query = query.where(job_contexts.c.waiting_for != "pull_requests")
    found, moment = [], now.timestamp()
    for id, state, reason, owner, updated_at, repository, ready, due, lease_until in db.execute(query):  # noqa: A001
        leased = lease_until if owner else 0.0
        since = datetime.fromtimestamp(max(in_utc(updated_at).timestamp(), due, min(leased, moment)), UTC)
        found.append(WaitingJob(id, repository, state, reason, leased > moment, ready, since))
    return found


def _last_release(db: Connection, waiting: list[WaitingJob]) -> datetime | None:
    """When a worker last released a job; None, without a query, if no job is waiting for its turn."""
    if not any(job.ready and not job.held for job in waiting):
        return None
    query = sa.select(sa.func.max(jobs.c.updated_at)).select_from(BOTH).where(jobs.c.owner.is_(None), jobs.c.epoch > 0)
    found = db.execute(query).scalar()
    return in_utc(found) if found is not None else None


def _spent(db: Connection) -> tuple[MicroUSD, int]:
    """The cost and the number of all model calls; a fifth of a second for a million."""
    cost = sa.select(sa.func.coalesce(sa.func.sum(calls.c.cost), 0), sa.func.count())
    spent, count = db.execute(cost.where(calls.c.state != "reserved")).one()
    return int(spent), int(count)


def _deliveries(db: Connection) -> tuple[int, datetime | None, int]:
    query = sa.select(sa.func.count(), sa.func.min(deliveries.c.received_at)).where(DELIVERIES.open)
    count, oldest = db.execute(query).one()
    dead = db.scalar(sa.select(sa.func.count()).where(DELIVERIES.dead)) or 0
    return count, in_utc(oldest) if oldest is not None else None, dead


def _counted(db: Connection, column: sa.Column[str]) -> dict[str, int]:
    return {row[0]: row[1] for row in db.execute(sa.select(column, sa.func.count()).group_by(column))}


def _age(since: datetime, now: datetime) -> float:
    return max((now - since).total_seconds(), 0.0)
