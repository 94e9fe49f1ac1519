"""How a server is doing: the operators' page (queue, workers, dead letters, rate limits) and the figures for alarms."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import in_utc, moment
from app.core.model_usage import MicroUSD
from app.jobs.inbox import inbox_health
from app.jobs.queries import REPOSITORY_NAME, TITLE
from app.jobs.queue import URGENT, QueueLimits, jobs_in_progress
from app.jobs.status import BOTH, IN_TURN, WORKED_ON, needs_worker
from app.jobs.tables import DELIVERIES, EFFECTS, deliveries, effects, github_limits, job_contexts, jobs, writing
from app.llm.sql_ledger import calls, pauses

SHOWN: Final = 50
"""Rows of each list; a longer one says how many there are."""
TOO_LONG = timedelta(minutes=10)
"""A job in which nobody works for so long, although it is somebody's turn, is an alarm (R11)."""

SLOW = timedelta(minutes=1)
"""A webhook usually takes seconds; the dashboard says when one has been waiting for longer than this."""

SPENT_LASTS = timedelta(minutes=1)
"""How long the cached sum of all model calls is valid."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for a worker, with its place, from 1, and why it has not begun."""

    place: int
    id: str
    title: str
    repository: str
    since: datetime
    urgent: bool
    why: str


@dataclass(frozen=True, slots=True)
class JobLease:
    """A job that a worker holds until its lease ends. A lease that has expired is taken over."""

    id: str
    title: str
    state: str
    until: datetime
    expired: bool


@dataclass(frozen=True, slots=True)
class BusyWorker:
    """A worker's process with the jobs that it holds."""

    owner: str
    leases: tuple[JobLease, ...]

    @property
    def host(self) -> str:
        return self.owner.split(":")[0]

    @property
    def pid(self) -> str:
        return self.owner.split(":")[1] if ":" in self.owner else ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A delivery or an effect that was given up. `id` names it for a retry."""

    id: str
    kind: str
    what: str
    job: str
    reason: str
    attempts: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class GitHubLimit:
    """What an installation has left of one of GitHub's rate limits, as its newest answer said."""

    installation: int
    resource: str
    remaining: int
    limit: int
    resets_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class ProviderPause:
    """A model provider that is temporarily paused."""

    provider: str
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Operations:
    """Everything on the operators' page; `waiting`, `held` and `dead` are the numbers of all jobs and letters."""

    queue: tuple[QueuedJob, ...]
    waiting: int
    workers: tuple[BusyWorker, ...]
    busy: int
    """The number of workers that hold a job."""
    held: int
    letters: tuple[DeadLetter, ...]
    dead: int
    limits: tuple[GitHubLimit, ...]
    pauses: tuple[ProviderPause, ...]


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """What decides whether an active job should be in progress. `held`: a worker has a valid lease on it."""

    job: str
    repository: int
    state: str
    waiting_for: str
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


class OperationsOverview:
    """Reads the data, each time in one short transaction, and gives dead letters another try."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime], limits: QueueLimits) -> None:
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._spent: tuple[datetime, MicroUSD, int] | None = None

    def now(self) -> Operations:
        now = self._clock()
        with self._engine.connect() as db:
            workers = tuple(_workers(db, now))
            queue, waiting = self._queue(db, now)
            busy, held = db.execute(_HELD).one()
            letters = [*_dead_deliveries(db), *_failed_effects(db)]
            counts = (sa.select(sa.func.count()).where(each) for each in (DELIVERIES.dead, EFFECTS.dead))
            dead = sum(db.scalar(count) or 0 for count in counts)
            limits = db.execute(github_limits.select().order_by(*github_limits.primary_key.columns)).mappings()
            paused = db.execute(pauses.select().where(pauses.c.until > now.timestamp())).mappings()
            return Operations(
                queue=queue,
                waiting=waiting,
                workers=workers,
                busy=busy,
                held=held,
                letters=tuple(letters),
                dead=dead,
                limits=tuple(_limit(row) for row in limits),
                pauses=tuple(ProviderPause(row["provider"], moment(row["until"]), row["why"]) for row in paused),
            )

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
            inbox = inbox_health(db)
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
                deliveries_undone=inbox.undone,
                oldest_delivery=_age(inbox.oldest or now, now),
                deliveries_dead=inbox.dead,
                outbox=_counted(db, effects.c.state),
                oldest_effect=max(now.timestamp() - (db.scalar(due) or now.timestamp()), 0.0),
                effects_retried=db.scalar(sa.select(sa.func.count()).where(retried)) or 0,
                cost=self._spent[1],
                model_calls=self._spent[2],
            )

    def why_waiting(self, job_ids: Collection[str]) -> dict[str, str]:
        """Why each of these jobs has not begun, by its id; only jobs that need a worker and have none."""
        now = self._clock()
        query = sa.select(*_WHY).select_from(BOTH).where(needs_worker(now), jobs.c.id.in_(job_ids))
        with self._engine.connect() as db:
            busy = jobs_in_progress(db, now)
            return {row["id"]: self._why(row, busy, now) for row in db.execute(query).mappings()}

    def retry(self, kind: str, id: str) -> bool:  # noqa: A002
        """Give a dead letter new attempts, at once; False if there is no such letter any more."""
        now = self._clock()
        with writing(self._engine) as db:
            if kind == "delivery" and id.isdecimal() and len(id) < 19:
                this = sa.and_(deliveries.c.seq == int(id), deliveries.c.body.is_not(None))
                return DELIVERIES.retry(db, this, now, done_at=None)
            if kind == "effect":
                return EFFECTS.retry(db, effects.c.key == id, now, reason="", error=None)
        return False

    def store_limits(self, found: Iterable[GitHubLimit]) -> None:
        """Replace what is known of these limits."""
        with writing(self._engine) as db:
            for each in found:
                mine = (github_limits.c.installation == each.installation, github_limits.c.resource == each.resource)
                db.execute(github_limits.delete().where(*mine))
                values = {"remaining": each.remaining, "limit": each.limit, "resets_at": each.resets_at.timestamp()}
                names = {"installation": each.installation, "resource": each.resource, "at": each.at.timestamp()}
                db.execute(github_limits.insert().values(**names, **values))

    def _queue(self, db: Connection, now: datetime) -> tuple[tuple[QueuedJob, ...], int]:
        """The next of the jobs that need a worker and have none, as they are taken, and the number of all of them."""
        needs = needs_worker(now)
        columns = (
            *_WHY,
            TITLE.label("title"),
            REPOSITORY_NAME.label("name"),
            job_contexts.c.created_at,
            job_contexts.c.priority,
        )
        query = sa.select(*columns).select_from(BOTH).where(needs).order_by(*IN_TURN).limit(SHOWN)
        rows = db.execute(query).mappings()
        count = db.scalar(sa.select(sa.func.count()).select_from(BOTH).where(needs)) or 0
        busy = jobs_in_progress(db, now)
        queue = tuple(
            QueuedJob(
                place=place,
                id=row["id"],
                title=row["title"] or "",
                repository=row["name"] or "",
                since=moment(row["created_at"]),
                urgent=row["priority"] <= URGENT,
                why=self._why(row, busy, now),
            )
            for place, row in enumerate(rows, 1)
        )
        return queue, count

    def _why(self, row: sa.RowMapping, busy: Counter[int], now: datetime) -> str:
        limits, here = self._limits, busy[row["repository"]]
        if row["waiting_for"] == "pull_requests":
            return "until a pull request of its repository is merged or closed"
        if not row["ready"]:
            return row["reason"] or "fetching its base commit"
        if row["due"] > now.timestamp():
            return row["reason"] or f"retrying at {moment(row['due']):%H:%M:%S} UTC"
        if busy.total() >= limits.jobs:
            return f"the server is at its limit of {limits.jobs} jobs"
        if here >= limits.per_repository:
            return f"its repository is at its limit of {limits.per_repository} jobs"
        return "for a free worker"


_WHY: Final = (
    jobs.c.id,
    jobs.c.reason,
    job_contexts.c.repository,
    job_contexts.c.ready,
    job_contexts.c.due,
    job_contexts.c.waiting_for,
)
_HELD: Final = sa.select(sa.func.count(jobs.c.owner.distinct()), sa.func.count()).where(jobs.c.owner.is_not(None))


def _workers(db: Connection, now: datetime) -> list[BusyWorker]:
    columns = (jobs.c.id, jobs.c.state, jobs.c.owner, TITLE.label("title"), job_contexts.c.lease_until)
    query = sa.select(*columns).select_from(BOTH).where(jobs.c.owner.is_not(None)).order_by(jobs.c.owner, jobs.c.id)
    query = query.limit(SHOWN)
    found: dict[str, list[JobLease]] = {}
    for row in db.execute(query).mappings():
        until = moment(row["lease_until"])
        lease = JobLease(row["id"], row["title"] or "", row["state"], until, expired=until <= now)
        found.setdefault(row["owner"], []).append(lease)
    return [BusyWorker(owner, tuple(leases)) for owner, leases in found.items()]


def _dead_deliveries(db: Connection) -> list[DeadLetter]:
    columns = [column for column in deliveries.columns if column is not deliveries.c.body]
    query = sa.select(*columns).where(DELIVERIES.dead).order_by(deliveries.c.seq.desc()).limit(SHOWN)
    return [
        DeadLetter(
            id=str(row["seq"]),
            kind="delivery",
            what=row["event"],
            job="",
            reason=row["outcome"],
            attempts=row["attempts"],
            at=in_utc(row["received_at"]),
        )
        for row in db.execute(query).mappings()
    ]


def _failed_effects(db: Connection) -> list[DeadLetter]:
    query = effects.select().where(EFFECTS.dead).order_by(effects.c.seq.desc()).limit(SHOWN)
    return [
        DeadLetter(
            id=row["key"],
            kind="effect",
            what=str(row["effect"].get("kind", "")),
            job=row["job"],
            reason=row["reason"],
            attempts=row["attempts"],
            at=None,
        )
        for row in db.execute(query).mappings()
    ]


def _limit(row: sa.RowMapping) -> GitHubLimit:
    numbers = (row["installation"], row["resource"], row["remaining"], row["limit"])
    return GitHubLimit(*numbers, moment(row["resets_at"]), moment(row["at"]))


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
            if job.held or job.waiting_for == "daily_budget" or (job.ready and waits_its_turn):
                continue
            if job.ready and last_release is not None:
                begins = max(begins, last_release)  # before that it may have been waiting for its turn
        if begins <= now:
            found.append(StalledJob(job.job, (now - begins).total_seconds()))
    return max(found, key=lambda stalled: stalled.seconds, default=None)


def _waiting_jobs(db: Connection, now: datetime) -> list[WaitingJob]:
    job = (jobs.c.id, jobs.c.state, jobs.c.owner, jobs.c.updated_at, job_contexts.c.waiting_for)
    place = (job_contexts.c.repository, job_contexts.c.ready, job_contexts.c.due, job_contexts.c.lease_until)
    query = sa.select(*job, *place).select_from(BOTH).where(jobs.c.state.in_(WORKED_ON))
    query = query.where(job_contexts.c.waiting_for != "pull_requests")
    found, at = [], now.timestamp()
    for id, state, owner, updated_at, waiting_for, repository, ready, due, lease_until in db.execute(query):  # noqa: A001
        leased = lease_until if owner else 0.0
        since = datetime.fromtimestamp(max(in_utc(updated_at).timestamp(), due, min(leased, at)), UTC)
        found.append(WaitingJob(id, repository, state, waiting_for, leased > at, ready, since))
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


def _counted(db: Connection, column: sa.Column[str]) -> dict[str, int]:
    return {row[0]: row[1] for row in db.execute(sa.select(column, sa.func.count()).group_by(column))}


def _age(since: datetime, now: datetime) -> float:
    return max((now - since).total_seconds(), 0.0)
