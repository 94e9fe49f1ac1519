"""The queue of a server: jobs are admitted once per place, claimed under a lease, taken over from the dead, resumed.

    admit ─► queued ─claim─► worked on ─release─► parked ─resume─► queued …
                      ▲          │ lease lapsed or process died (three times without a finished step: dead letter)
                      └──────────┘

A claim raises the job's epoch; whoever held it before can neither keep it nor have anything published (`app.publish`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

from app.core.failpoints import failpoint
from app.core.job import FINAL, Job, JobState
from app.jobs.context import JobContext
from app.jobs.daily_budget import DayCaps
from app.jobs.job_queries import BOTH, WORKED_ON
from app.jobs.process_owner import is_gone
from app.jobs.tables import commissions, jobs, writing
from app.jobs.triggers import TriggerRow, insert_trigger, is_decided

LEASE = timedelta(seconds=60)
MAX_CRASHES = 3
PARKED: tuple[JobState, ...] = ("awaiting_approval", "needs_input", "paused")
STOPPED = "It was stopped."
_ONE_CLAIM_AT_A_TIME = 0x61676E74
"""An advisory lock on Postgres; SQLite has one writer anyway."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many jobs are worked on at once, by all workers together and in one repository."""

    jobs: int = 4
    per_repository: int = 2


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A job in one worker's hands until its lease ends. `resumed`: somebody worked on it before."""

    job: str
    epoch: int
    owner: str
    resumed: bool


class JobQueue:
    """Short transactions over jobs and commissions, from any number of processes, on SQLite or Postgres."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime], *, caps: DayCaps | None = None) -> None:
        self.engine = engine
        self._clock = clock
        self._caps = caps or DayCaps()

    def admit(
        self, job: Job, job_context: JobContext, trigger: TriggerRow, *, priority: int = 1, ready: bool = False
    ) -> str:
        """Keep a new job together with what asked for it; returns its id.

        Empty where the trigger was decided before. The id of the job that lives at this place already where one does:
        then nothing was written, and the trigger still has to be decided.
        """
        for _ in range(8):
            try:
                return self._admit(job, job_context, trigger, priority=priority, ready=ready)
            except IntegrityError:  # another was admitted at this very moment: now it is there to be seen
                continue
        raise RuntimeError(f"job {job.id} could be admitted neither as the first nor as a second")

    def _admit(self, job: Job, job_context: JobContext, trigger: TriggerRow, *, priority: int, ready: bool) -> str:
        now = self._clock()
        place = job_context.place
        with writing(self.engine) as db:
            living = self._active(db, active_key(job_context))
            if living is not None:
                return living
            if not insert_trigger(db, trigger, f"job {job.id}", job.id):
                return ""
            failpoint("job.admitting")
            row = {"id": job.id, "key": active_key(job_context), "state": "queued", "job": job.model_dump(mode="json")}
            db.execute(jobs.insert().values(**row, created_at=now, updated_at=now))
            there = {"repository": place.repository, "number": place.number, "living": active_key(job_context)}
            how = {"commission": job_context.model_dump(mode="json"), "priority": priority, "ready": ready}
            how["actor"] = paid_by(job, job_context)
            db.execute(commissions.insert().values(job=job.id, **there, **how, created_at=now.timestamp()))
        failpoint("job.admitted")
        return job.id

    def claim(self, owner: str, limits: QueueLimits, lease: timedelta = LEASE) -> JobClaim | None:
        """The job that is next for this worker, or None. One whose processes died too often is ended on the way."""
        now = self._clock()
        with writing(self.engine) as db:
            if db.dialect.name == "postgresql":
                db.execute(sa.select(sa.func.pg_advisory_xact_lock(_ONE_CLAIM_AT_A_TIME)))
            self._end_leases_of_the_dead(db, now)
            self._end_stopped(db, now)
            busy = self._busy(db, now)
            if sum(busy.values()) >= limits.jobs:
                return None
            for row in self._waiting(db, now):
                died = row["owner"] is not None
                if busy.get(row["repository"], 0) >= limits.per_repository:
                    continue
                if died and row["crashes"] + 1 >= MAX_CRASHES:
                    self._end_dead_letter(db, row["id"], now)
                    continue
                if not self._may_spend(db, row, now):
                    continue
                return self._take(db, row, owner, now + lease, crashes=row["crashes"] + died)
        return None

    def heartbeat(self, claim: JobClaim, lease: timedelta = LEASE) -> bool:
        """Keep it for longer; False where another worker has it by now."""
        until = (self._clock() + lease).timestamp()
        with writing(self.engine) as db:
            held = sa.exists().where(jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.owner == claim.owner)
            mine = commissions.update().where(commissions.c.job == claim.job, held)
            return db.execute(mine.values(lease_until=until)).rowcount == 1

    def release(self, claim: JobClaim, *, crashed: bool = False) -> None:
        """Give it back, as it stands; with `crashed` its process died on it, which is counted."""
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.owner == claim.owner)
            if db.execute(jobs.update().where(*mine).values(owner=None, updated_at=self._clock())).rowcount != 1:
                return
            crashes = commissions.c.crashes + 1 if crashed else commissions.c.crashes
            mine_too = commissions.update().where(commissions.c.job == claim.job).returning(commissions.c.crashes)
            if db.execute(mine_too.values(lease_until=0.0, crashes=crashes)).scalar_one() >= MAX_CRASHES and crashed:
                self._end_dead_letter(db, claim.job, self._clock())

    def postpone(self, claim: JobClaim, reason: str, pause: timedelta) -> None:
        """Give it back to be taken up again later, by anybody: what was in the way may have gone by itself."""
        now = self._clock()
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.state.not_in(FINAL))
            values = {"state": "queued", "reason": reason, "updated_at": now}
            if db.execute(jobs.update().where(*mine).values(values)).rowcount == 1:
                waits = commissions.update().where(commissions.c.job == claim.job)
                db.execute(waits.values(due=(now + pause).timestamp()))

    def hand_over(self, claim: JobClaim, result: dict[str, Any]) -> bool:
        """The work is done and everything is wished for: from here on it is the publisher's. False for a lost claim."""
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.state.not_in(FINAL))
            values = {"state": "publishing", "result": result, "reason": "", "updated_at": self._clock()}
            if db.execute(jobs.update().where(*mine).values(values)).rowcount != 1:
                return False
            db.execute(commissions.update().where(commissions.c.job == claim.job).values(handed_over=True))
        failpoint("job.handed_over")
        return True

    def made_progress(self, job_id: str) -> None:
        """A step was finished: what died before does not count any more."""
        with writing(self.engine) as db:
            mine = commissions.update().where(commissions.c.job == job_id, commissions.c.crashes > 0)
            db.execute(mine.values(crashes=0))

    def resume(
        self, job_id: str, job: Job | None = None, *, trigger: TriggerRow | None = None, outcome: str = ""
    ) -> bool:
        """Set a parked job on its way again, with other limits where `job` is given.

        False where it is not parked, where another job lives at its place by now, or where the trigger was decided
        before; else the trigger is decided with it.
        """
        now = self._clock()
        try:
            with writing(self.engine) as db:
                if trigger is not None and is_decided(db, trigger.key):
                    return False
                values: dict[str, Any] = {"state": "queued", "reason": "", "updated_at": now}
                if job is not None:
                    values["job"] = job.model_dump(mode="json")
                parked = jobs.update().where(jobs.c.id == job_id, jobs.c.state.in_(PARKED))
                key = db.execute(parked.values(values).returning(jobs.c.key)).scalar()
                if key is None:
                    return False
                if trigger is not None:
                    insert_trigger(db, trigger, outcome, job_id)
                mine = commissions.update().where(commissions.c.job == job_id)
                db.execute(mine.values(living=key, crashes=0, due=0.0, wants=""))
        except IntegrityError:
            return False
        failpoint("job.resumed")
        return True

    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        """End it over the head of whoever works on it, who is fenced off from here on; False where it has ended."""
        ended = {"state": state, "reason": reason, "stop_requested": True, "owner": None, "epoch": jobs.c.epoch + 1}
        with writing(self.engine) as db:
            mine = jobs.update().where(jobs.c.id == job_id, jobs.c.state.not_in(FINAL))
            if db.execute(mine.values(updated_at=self._clock(), **ended)).rowcount != 1:
                return False
            db.execute(commissions.update().where(commissions.c.job == job_id).values(living=None))
        return True

    def stop(self, job_id: str, reason: str, *, trigger: TriggerRow | None = None) -> bool:
        """Ask for its end; True where it is ended by that, False where a process has to be ended first.

        The trigger, where one asked for it, is decided with it.
        """
        with writing(self.engine) as db:
            if trigger is not None:
                insert_trigger(db, trigger, f"stop {job_id}", job_id)
            db.execute(jobs.update().where(jobs.c.id == job_id).values(stop_requested=True))
            first = (commissions.c.job == job_id, commissions.c.stop_reason == "")
            db.execute(commissions.update().where(*first).values(stop_reason=reason))
            self._end_leases_of_the_dead(db, self._clock())
            return job_id in self._end_stopped(db, self._clock())

    def stop_reason(self, job_id: str) -> str:
        """Why it is to be stopped."""
        with self.engine.connect() as db:
            said = db.execute(sa.select(commissions.c.stop_reason).where(commissions.c.job == job_id)).scalar()
        return said or STOPPED

    def _active(self, db: Connection, key: str) -> str | None:
        return db.execute(sa.select(commissions.c.job).where(commissions.c.living == key)).scalar()

    def _busy(self, db: Connection, now: datetime) -> dict[int, int]:
        """How many jobs are being worked on in each repository."""
        held = (jobs.c.owner.is_not(None), commissions.c.lease_until > now.timestamp())
        query = sa.select(commissions.c.repository, sa.func.count()).select_from(BOTH).where(*held)
        return {row[0]: row[1] for row in db.execute(query.group_by(commissions.c.repository))}

    def _end_leases_of_the_dead(self, db: Connection, now: datetime) -> None:
        """A worker that has ended on this very machine is not waited for."""
        held = (jobs.c.owner.is_not(None), commissions.c.lease_until > now.timestamp())
        owners = db.execute(sa.select(jobs.c.owner).select_from(BOTH).where(*held).distinct()).scalars().all()
        gone = [owner for owner in owners if owner and is_gone(owner)]
        if gone:
            theirs = commissions.c.job.in_(sa.select(jobs.c.id).where(jobs.c.owner.in_(gone)))
            db.execute(commissions.update().where(theirs).values(lease_until=0.0))

    def _waiting(self, db: Connection, now: datetime) -> list[sa.RowMapping]:
        """Jobs that want a worker: nobody's, or whose worker let the lease end. Most urgent first."""
        free = sa.or_(jobs.c.owner.is_(None), commissions.c.lease_until <= now.timestamp())
        due = (commissions.c.ready.is_(True), commissions.c.due <= now.timestamp())
        unfinished = sa.and_(jobs.c.state.in_(WORKED_ON), commissions.c.handed_over.is_(False))
        wanted = (free, *due, unfinished, jobs.c.stop_requested.is_(False))
        query = sa.select(jobs, commissions).select_from(BOTH).where(*wanted)
        return list(db.execute(query.order_by(commissions.c.priority, jobs.c.id).limit(100)).mappings())

    def _may_spend(self, db: Connection, row: sa.RowMapping, now: datetime) -> bool:
        """Whether there is anything left of what it lives off today; a purse that is empty becomes its reason."""
        purses = self._caps.purses(JobContext.model_validate(row["commission"]), row["actor"], now.timestamp)
        empty = next((daily_budget for daily_budget in purses if daily_budget.spent(db)[1] >= daily_budget.cap), None)
        if empty is not None and row["reason"] != empty.is_spent:
            values = {"reason": empty.is_spent, "updated_at": now}
            db.execute(jobs.update().where(jobs.c.id == row["id"]).values(values))
        return empty is None

    def _end_stopped(self, db: Connection, now: datetime) -> list[str]:
        """End the jobs that are to be stopped and that no living process works on, unless they were handed over."""
        unheld = sa.or_(jobs.c.owner.is_(None), _lapsed(now))
        stoppable = (jobs.c.stop_requested.is_(True), unheld, jobs.c.state.not_in(FINAL))
        still_here = sa.exists().where(commissions.c.job == jobs.c.id, commissions.c.handed_over.is_(False))
        stopped = jobs.update().where(*stoppable, still_here).returning(jobs.c.id)
        why = sa.select(commissions.c.stop_reason).where(commissions.c.job == jobs.c.id).scalar_subquery()
        reason = sa.func.coalesce(sa.func.nullif(why, ""), STOPPED)
        values = {"state": "stopped", "reason": reason, "owner": None, "updated_at": now}
        ended = list(db.execute(stopped.values(values)).scalars())
        if ended:
            db.execute(commissions.update().where(commissions.c.job.in_(ended)).values(living=None))
        return ended

    def _take(self, db: Connection, row: sa.RowMapping, owner: str, until: datetime, *, crashes: int) -> JobClaim:
        epoch = row["epoch"] + 1
        values = {"owner": owner, "epoch": epoch, "reason": "", "updated_at": self._clock()}
        db.execute(jobs.update().where(jobs.c.id == row["id"]).values(values))
        mine = commissions.update().where(commissions.c.job == row["id"])
        db.execute(mine.values(lease_until=until.timestamp(), crashes=crashes))
        return JobClaim(row["id"], epoch, owner, resumed=epoch > 1)

    def _end_dead_letter(self, db: Connection, job_id: str, now: datetime) -> None:
        lost = "or its sandbox was lost there; the job was given up."
        reason = f"Its process died {MAX_CRASHES} times at the same step, {lost}"
        values = {"state": "error", "reason": reason, "owner": None, "updated_at": now}
        db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
        db.execute(commissions.update().where(commissions.c.job == job_id).values(living=None))


def _lapsed(now: datetime) -> sa.ColumnElement[bool]:
    """Of a job in an outer statement: its worker let the lease end."""
    return sa.exists().where(commissions.c.job == jobs.c.id, commissions.c.lease_until <= now.timestamp())


def paid_by(job: Job, job_context: JobContext) -> int:
    """Whose money a job spends: the person's who asked for it, by number; 0 where the bot began by itself."""
    origin = job.task.origin
    return origin.actor if origin is not None and job_context.login else 0


def active_key(job_context: JobContext) -> str:
    """One job lives at a place; a question is asked beside it."""
    place = f"{job_context.place.repository}#{job_context.place.number}"
    return f"{place}/ask:{job_context.trigger}" if job_context.aim == "ask" else place
