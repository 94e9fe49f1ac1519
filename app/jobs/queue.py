"""A server's job queue: one active job per issue, claimed under a lease, taken over from dead workers, resumable.

    admit ─► queued ─claim─► in progress ─release─► paused ─resume─► queued …
               ▲                │ its process or its worker died (too often without a finished step: given up)
               └────────────────┘

A claim raises the job's epoch; earlier holders can neither keep the job nor have anything published (`app.publish`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

from app.core.failpoints import failpoint
from app.core.job import FINAL, WAITING, Job, JobResult, JobState
from app.core.model_usage import DOLLAR, MicroUSD, usd
from app.core.redaction import ANYBODYS, Redactor
from app.jobs.context import JobContext, paid_by
from app.jobs.status import (
    ACTIVE,
    BOTH,
    HAS_REST,
    IN_TURN,
    JOB_LEASE,
    WAITS_FOR_PULL_REQUESTS,
    WaitingFor,
    rest_waits,
    waits_for_worker,
)
from app.jobs.tables import adopt_effects, job_contexts, jobs, request_branch_again, verdict_of, writing
from app.jobs.trigger_log import JobMessage, Trigger, insert_message, insert_trigger, is_decided
from app.llm.errors import DayBudgetError
from app.llm.sql_ledger import calls

A_DAY = 24 * 3600.0
_OF_JOBS = calls.join(job_contexts, job_contexts.c.job == calls.c.job_id)
LEASE = timedelta(seconds=60)
MAX_CRASHES, MAX_WORKER_DEATHS = 3, 20
"""How often a job's own process, or its worker, may die without a finished step in between, until it is given up.

A worker takes all its jobs with it, and most often none of them is the reason: it ran out of memory, or was replaced.
"""
CLUSTERS: Final = frozenset({"kubernetes", "ecs"})
"""Owners of jobs whose own process, and not a worker, extends the lease."""
ORDINARY, URGENT = 1, -7
"""Priorities: an urgent job comes before ordinary ones that were requested up to four hours earlier."""
MAX_ERROR_PAUSE = timedelta(hours=6)
"""How long a job is postponed after errors in all, without a finished step in between, until it waits for a person."""
RECHECK_BUDGET_AFTER = timedelta(minutes=1)
"""How long a job whose daily budget is empty is left out of the queue."""
BATCH, MAX_BATCHES = 100, 10
"""A claim looks at up to MAX_BATCHES x BATCH jobs; it postpones each one that it skips."""
STOPPED = "It was stopped."
_NOT_PUBLISHED: Final = ("error", "no_access")
_NO_FAILURES: Final = {"crashes": 0, "worker_deaths": 0, "error_pause_seconds": 0.0}
_ONE_CLAIM_AT_A_TIME = 0x61676E74
"""An advisory lock on Postgres; SQLite has one writer anyway."""


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

    def refusal(self, spent: MicroUSD, worst: MicroUSD) -> DayBudgetError:
        return DayBudgetError(
            f"The day's budget of {self.label} ({usd(self.cap)}) leaves no room for a model call of up to"
            f" {usd(worst)}: {usd(spent)} is spent.",
            hint="The job continues automatically once enough of that spending is more than 24 hours old.",
        )

    @property
    def spent_reason(self) -> str:
        return f"The day's budget of {self.label} is spent; the job goes on once less was spent in the last 24 hours."

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


def spent(engine: Engine, repository: int, since: datetime) -> MicroUSD:
    """The cost of a repository's model calls since then, including lost and pending calls."""
    query = sa.select(sa.func.coalesce(sa.func.sum(calls.c.cost), 0)).select_from(_OF_JOBS)
    query = query.where(_is_recent(since.timestamp()), job_contexts.c.repository == repository)
    with engine.connect() as db:
        return int(db.execute(query).scalar_one())


def _is_recent(since: float) -> sa.ColumnElement[bool]:
    """Selects recent calls. Calls stored without a time use the time at which their job was admitted."""
    return sa.or_(calls.c.at > since, sa.and_(calls.c.at == 0.0, job_contexts.c.created_at > since))


def _micro(dollars: float | None) -> MicroUSD:
    return round((dollars or 0) * DOLLAR)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many jobs are in progress at once, in total and per repository."""

    jobs: int
    per_repository: int


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A job that one worker holds until its lease ends. `resumed`: another process worked on it before."""

    job: str
    epoch: int
    owner: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A waiting job's place, from 1, and for how long it waits since it was admitted.

    A job that waits for `pull_requests` has its place among those of its repository.
    """

    place: int
    of: int
    waiting: timedelta
    urgent: bool
    waiting_for: WaitingFor = ""


class JobQueue:
    """The queue, in short transactions over jobs and their contexts, from any number of processes."""

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], datetime],
        *,
        caps: DayCaps | None = None,
        redactor: Redactor = ANYBODYS,
    ) -> None:
        self.engine = engine
        self._redactor = redactor
        self._clock = clock
        self._caps = caps or DayCaps()

    def admit(
        self,
        job: Job,
        job_context: JobContext,
        trigger: Trigger,
        *,
        priority: int = ORDINARY,
        ready: bool = False,
        waiting_reason: str = "",
    ) -> str:
        """Store a new job together with its trigger and return its id.

        With `waiting_reason`, which people read, the job waits until pull requests are merged or closed.

        Returns an empty text if the trigger was already decided, or if the job was requested by a program
        (`app.jobs.job_actions`) and has ended meanwhile. If the issue already has an active job, returns that job's id:
        nothing was written, and the trigger still has to be decided.
        """
        for _ in range(8):
            try:
                return self._admit(
                    job, job_context, trigger, priority=priority, ready=ready, waiting_reason=waiting_reason
                )
            except IntegrityError:  # another job was admitted at the same moment; the next try sees it
                continue
        raise RuntimeError(f"job {job.id} could be admitted neither as the first nor as a second")

    def _admit(
        self, job: Job, job_context: JobContext, trigger: Trigger, *, priority: int, ready: bool, waiting_reason: str
    ) -> str:
        now = self._clock()
        place = job_context.issue_ref
        with writing(self.engine) as db:
            same_issue = job_contexts.c.active_key == job_context.active_key
            active = db.execute(sa.select(job_contexts.c.job).where(same_issue)).scalar()
            if active is not None:
                return str(active)
            requested = db.execute(sa.select(jobs.c.state).where(jobs.c.id == job.id).with_for_update()).scalar()
            if requested in FINAL:
                return ""
            if not insert_trigger(db, trigger, f"job {job.id}", job.id):
                return ""
            failpoint("job.admitting")
            row = {
                "key": job_context.active_key,
                "state": "queued",
                "job": job.model_dump(mode="json"),
                "reason": waiting_reason,
            }
            if requested is None:
                db.execute(jobs.insert().values(id=job.id, **row, created_at=now, updated_at=now))
            else:
                db.execute(jobs.update().where(jobs.c.id == job.id).values(**row, updated_at=now))
            there = {"repository": place.repository, "number": place.number, "active_key": job_context.active_key}
            how = {"context": job_context.model_dump(mode="json"), "priority": priority, "ready": ready}
            how |= {"actor": paid_by(job, job_context), "waiting_for": "pull_requests" if waiting_reason else ""}
            db.execute(job_contexts.insert().values(job=job.id, **there, **how, created_at=now.timestamp()))
        failpoint("job.admitted")
        return job.id

    def claim(self, owner: str, limits: QueueLimits, lease: timedelta = LEASE) -> JobClaim | None:
        """Claim the next job for this worker; None if there is none."""
        return next(iter(self.claim_several(owner, limits, 1, lease)), None)

    def claim_several(self, owner: str, limits: QueueLimits, most: int, lease: timedelta = LEASE) -> list[JobClaim]:
        """Claim the next `most` jobs for this worker, or fewer. Jobs whose workers died too often end here."""
        now, claims = self._clock(), list[JobClaim]()
        with writing(self.engine) as db:
            if db.dialect.name == "postgresql":
                db.execute(sa.select(sa.func.pg_advisory_xact_lock(_ONE_CLAIM_AT_A_TIME)))
            JOB_LEASE.end_leases_of_dead(db, now)
            self._end_stopped(db, now)
            busy = jobs_in_progress(db, now)
            free_slots = min(most, limits.jobs - busy.total())
            if free_slots <= 0:
                return []
            spent: dict[DailyBudget, MicroUSD] = {}
            jobs_first = chain(self._waiting(db, now, limits.per_repository), self._rests(db, now, limits, free_slots))
            for row in jobs_first:
                deaths = {name: row[name] for name in ("crashes", "worker_deaths")}
                if row["owner"] is not None:
                    deaths["crashes" if row["owner"] in CLUSTERS else "worker_deaths"] += 1
                if busy[row["repository"]] >= limits.per_repository:  # by a claim of this call
                    continue
                if reason := _died_too_often(**deaths):
                    self._give_up(db, row["id"], reason, now)
                elif row["waiting_for"] == "rest" or self._may_spend(db, row, now, spent):
                    claims.append(self._take(db, row, owner, now + lease, deaths))
                    busy[row["repository"]] += 1
                if len(claims) == free_slots:
                    break
        return claims

    def heartbeat(self, claim: JobClaim) -> bool:
        """Extend the lease; False if another worker has claimed the job."""
        until = (self._clock() + LEASE).timestamp()
        with writing(self.engine) as db:
            held = sa.exists().where(jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.owner == claim.owner)
            mine = job_contexts.update().where(job_contexts.c.job == claim.job, held)
            return db.execute(mine.values(lease_until=until)).rowcount == 1

    def note_failure(self, claim: JobClaim, cause: str) -> None:
        """Store what ended the job's process, for people and for the reason if the job is given up."""
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.state.not_in(FINAL))
            db.execute(jobs.update().where(*mine).values(reason=cause, updated_at=self._clock()))

    def release(self, claim: JobClaim, *, crashed: bool = False, cause: str = "") -> None:
        """Give the job back in its current state; `crashed` counts that its process died, of `cause` if known."""
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.owner == claim.owner)
            given = jobs.update().where(*mine).values(owner=None, updated_at=self._clock())
            row = db.execute(given.returning(jobs.c.reason)).first()
            if row is None:
                return
            crashes = job_contexts.c.crashes + 1 if crashed else job_contexts.c.crashes
            mine_too = job_contexts.update().where(job_contexts.c.job == claim.job).returning(job_contexts.c.crashes)
            deaths = db.execute(mine_too.values(lease_until=0.0, crashes=crashes)).scalar_one()
            if crashed and (reason := _died_too_often(crashes=deaths, cause=cause or row.reason)):
                self._give_up(db, claim.job, reason, self._clock())

    def retry_later(self, claim: JobClaim, error: str, pause: timedelta) -> None:
        """Postpone a job after an error that may pass. After MAX_ERROR_PAUSE of this it waits for a person."""
        if self.postpone(claim, f"{error} It is tried again.", pause) >= MAX_ERROR_PAUSE:
            reason = f"{error} It was tried again, with pauses of {MAX_ERROR_PAUSE // timedelta(hours=1)} hours in all."
            reason = self._redactor.redact(reason)
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.state.not_in(FINAL))
            with writing(self.engine) as db:
                db.execute(jobs.update().where(*mine).values(state="paused", reason=reason, updated_at=self._clock()))

    def postpone(self, claim: JobClaim, reason: str, pause: timedelta, *, waiting_for: WaitingFor = "") -> timedelta:
        """Give the job back to be retried later by any worker, because the obstacle may be gone by then.

        Returns the sum of its pauses after errors since its last finished step, or since it waited for a budget.

        A published job, of which only the remaining tests are retried, keeps its state and its reason.
        """
        now = self._clock()
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch)
            values = {"state": "queued", "reason": self._redactor.redact(reason), "updated_at": now}
            db.execute(jobs.update().where(*mine, jobs.c.state.not_in(FINAL)).values(values))
            waits = job_contexts.update().where(job_contexts.c.job == claim.job, sa.exists().where(*mine))
            longer = job_contexts.c.error_pause_seconds + pause.total_seconds()
            waits = waits.values(due=(now + pause).timestamp(), error_pause_seconds=0.0 if waiting_for else longer)
            waits = waits.values(waiting_for=waiting_for) if waiting_for else waits
            seconds = db.execute(waits.returning(job_contexts.c.error_pause_seconds)).scalar()
        return timedelta(seconds=seconds or 0.0)

    def hand_over(self, claim: JobClaim, result: dict[str, Any]) -> bool:
        """Pass the finished job to the publisher, with all its effects requested. False if the claim was lost."""
        result = self._redactor.redact_all(result)
        with writing(self.engine) as db:
            mine = (jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, jobs.c.state.not_in(FINAL))
            values: dict[str, Any] = {"state": "publishing", "result": result, "verdict": verdict_of(result)}
            values |= {"reason": "", "updated_at": self._clock()}
            if db.execute(jobs.update().where(*mine).values(values)).rowcount != 1:
                return False
            db.execute(job_contexts.update().where(job_contexts.c.job == claim.job).values(handed_over=True))
        failpoint("job.handed_over")
        return True

    def store_rest(self, claim: JobClaim, result: dict[str, Any]) -> bool:
        """Store the result with the rest of the suite so far. False if the claim was lost, or if the rest has ended."""
        with writing(self.engine) as db:
            return self._store_rest(db, claim, result)

    def end_rest(self, claim: JobClaim, result: dict[str, Any]) -> bool:
        """Store the result with the rest of the suite, for the publisher. False as with `store_rest`."""
        with writing(self.engine) as db:
            if not self._store_rest(db, claim, result):
                return False
            self._end_rest(db, claim.job)
        failpoint("rest.ended")
        return True

    def give_up_rest(self, job_id: str) -> None:
        """End a rest that nobody works on any more."""
        with writing(self.engine) as db:
            self._end_rest(db, job_id)

    def others_wait(self, claim: JobClaim, limits: QueueLimits) -> bool:
        """True if a job could be claimed if this one gave its place back."""
        now = self._clock()
        with self.engine.connect() as db:
            busy = jobs_in_progress(db, now)
            mine = sa.select(job_contexts.c.repository).where(job_contexts.c.job == claim.job)
            own = db.execute(mine).scalar()
            query = sa.select(job_contexts.c.repository).select_from(BOTH).where(waits_for_worker(now), ACTIVE)
            waiting = set(db.execute(query.distinct()).scalars())
        return any(busy[place] < limits.per_repository or place == own for place in waiting)

    def made_progress(self, job_id: str) -> None:
        """Record that a step finished: earlier deaths and errors no longer count."""
        with writing(self.engine) as db:
            failed = sa.or_(*(job_contexts.c[name] > 0 for name in _NO_FAILURES))
            db.execute(job_contexts.update().where(job_contexts.c.job == job_id, failed).values(_NO_FAILURES))

    def resume(
        self,
        job_id: str,
        job: Job | None = None,
        *,
        messages: Sequence[JobMessage] = (),
        trigger: Trigger | None = None,
        outcome: str = "",
    ) -> bool:
        """Queue a paused job again, with new limits if `job` is given; store `messages` and decide `trigger` with it.

        False, and nothing is stored, if the job is not paused, if its issue has another active job by now, or if the
        trigger was already decided.
        """
        now = self._clock()
        try:
            with writing(self.engine) as db:
                if trigger is not None and is_decided(db, trigger.key):
                    return False
                values: dict[str, Any] = {"state": "queued", "reason": "", "updated_at": now}
                if job is not None:
                    values["job"] = job.model_dump(mode="json")
                paused = jobs.update().where(jobs.c.id == job_id, jobs.c.state.in_(WAITING))
                key = db.execute(paused.values(values).returning(jobs.c.key)).scalar()
                if key is None:
                    return False
                for message in messages:
                    insert_message(db, job_id, message, now)
                if trigger is not None:
                    insert_trigger(db, trigger, outcome, job_id)
                mine = job_contexts.update().where(job_contexts.c.job == job_id)
                db.execute(mine.values(active_key=key, due=0.0, waiting_for="", **_NO_FAILURES))
        except IntegrityError:
            return False
        failpoint("job.resumed")
        return True

    def publish_again(self, job_id: str, *, trigger: Trigger | None = None, outcome: str = "") -> bool:
        """Publish the verified change of a job that ended while it was published; no finished step is repeated.

        False, and nothing is stored, if there is no such change, if its issue has another active job by now, or if the
        trigger was already decided.
        """
        now = self._clock()
        try:
            with writing(self.engine) as db:
                if trigger is not None and is_decided(db, trigger.key):
                    return False
                columns = (jobs.c.key, jobs.c.result, jobs.c.epoch, job_contexts.c.handed_over)
                mine = (jobs.c.id == job_id, jobs.c.state.in_(_NOT_PUBLISHED), jobs.c.stop_requested.is_(False))
                row = db.execute(sa.select(*columns).select_from(BOTH).where(*mine)).first()
                result = JobResult.read(row.result) if row is not None else None
                if row is None or result is None or result.verification is None:
                    return False
                if not result.unpublished or (row.handed_over and not request_branch_again(db, job_id, now)):
                    return False
                wanted = {"reason": " ".join(result.verification.reasons), "hint": "", "error_code": None}
                values: dict[str, Any] = {"state": "publishing", "reason": "", "reported": False, "updated_at": now}
                values["result"] = result.model_copy(update=wanted).model_dump(mode="json")
                db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
                if trigger is not None:
                    insert_trigger(db, trigger, outcome, job_id)
                context = job_contexts.update().where(job_contexts.c.job == job_id)
                db.execute(context.values(active_key=row.key, due=0.0, waiting_for="", **_NO_FAILURES))
        except IntegrityError:
            return False
        failpoint("job.published_again")
        return True

    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        """Force a final state and raise the epoch, so that the worker's later writes fail.

        False if it is already final.
        """
        ended = {
            "state": state,
            "reason": self._redactor.redact(reason),
            "stop_requested": True,
            "owner": None,
            "epoch": jobs.c.epoch + 1,
        }
        with writing(self.engine) as db:
            mine = jobs.update().where(jobs.c.id == job_id, jobs.c.state.not_in(FINAL))
            if db.execute(mine.values(updated_at=self._clock(), **ended)).rowcount != 1:
                return False
            db.execute(job_contexts.update().where(job_contexts.c.job == job_id).values(active_key=None))
        return True

    def stop(self, job_id: str, reason: str, *, trigger: Trigger | None = None) -> bool:
        """Request that a job stops: True if that ended it, False if a process must end first.

        A trigger that asked for it is decided with it.
        """
        with writing(self.engine) as db:
            if trigger is not None:
                insert_trigger(db, trigger, f"stop {job_id}", job_id)
            db.execute(jobs.update().where(jobs.c.id == job_id).values(stop_requested=True))
            first = (job_contexts.c.job == job_id, job_contexts.c.stop_reason == "")
            db.execute(job_contexts.update().where(*first).values(stop_reason=reason))
            now = self._clock()
            JOB_LEASE.end_leases_of_dead(db, now)
            return job_id in self._end_stopped(db, now)

    def to_stop(self) -> frozenset[str]:
        """Jobs in progress that were asked to stop."""
        query = sa.select(jobs.c.id).where(jobs.c.stop_requested.is_(True), jobs.c.owner.is_not(None))
        with self.engine.connect() as db:
            return frozenset(db.execute(query).scalars())

    def place(self, job_id: str) -> QueuePlace | None:
        """The job's place among those that wait for the same; None if it does not wait for its turn."""
        now = self._clock()
        mine = sa.select(job_contexts.c.repository, job_contexts.c.waiting_for).where(job_contexts.c.job == job_id)
        place, of = sa.func.row_number().over(order_by=IN_TURN), sa.func.count().over()
        columns = (jobs.c.id, job_contexts.c.priority, job_contexts.c.created_at, place.label("place"), of.label("of"))
        with self.engine.connect() as db:
            found = db.execute(mine).first()
            if found is None:
                return None
            here = (WAITS_FOR_PULL_REQUESTS, job_contexts.c.repository == found.repository)
            same = here if found.waiting_for == "pull_requests" else (waits_for_worker(now),)
            waiting = sa.select(*columns).select_from(BOTH).where(*same).subquery()
            row = db.execute(sa.select(waiting).where(waiting.c.id == job_id)).first()
        if row is None:
            return None
        waited = timedelta(seconds=max(now.timestamp() - row.created_at, 0.0))
        return QueuePlace(row.place, row.of, waited, row.priority <= URGENT, found.waiting_for)

    def end_wait(self, job_id: str, base: str) -> bool:
        """Release a job that waited for the pull request limit, with a new base commit unless it is empty."""
        now = self._clock()
        with writing(self.engine) as db:
            mine = job_contexts.update().where(
                job_contexts.c.job == job_id, job_contexts.c.waiting_for == "pull_requests"
            )
            if db.execute(mine.values(waiting_for="")).rowcount != 1:
                return False
            kept = Job.model_validate(db.execute(sa.select(jobs.c.job).where(jobs.c.id == job_id)).scalar_one())
            if base:
                kept = kept.model_copy(update={"task": kept.task.model_copy(update={"base": base})})
            values = {"job": kept.model_dump(mode="json"), "reason": "", "updated_at": now}
            db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
        failpoint("job.waited")
        return True

    def stop_reason(self, job_id: str) -> str:
        """Why the job was asked to stop; `STOPPED` if no reason was given."""
        with self.engine.connect() as db:
            reason = db.execute(sa.select(job_contexts.c.stop_reason).where(job_contexts.c.job == job_id)).scalar()
        return reason or STOPPED

    def _waiting(self, db: Connection, now: datetime, per_repository: int) -> Iterator[sa.RowMapping]:
        """Jobs that need a worker, next one first: unclaimed ones and those with an expired lease.

        Whoever iterates takes, ends or postpones each job, so that the next batch begins behind it.
        """
        wanted = (waits_for_worker(now), ACTIVE, job_contexts.c.repository.not_in(_full(now, per_repository)))
        # Ids first: rows are wide, and all that wait are sorted.
        first = sa.select(jobs.c.id).select_from(BOTH).where(*wanted).order_by(*IN_TURN).limit(BATCH)
        query = sa.select(jobs, job_contexts).select_from(BOTH).where(jobs.c.id.in_(first)).order_by(*IN_TURN)
        for _ in range(MAX_BATCHES):
            found = db.execute(query).mappings().all()
            yield from found
            if len(found) < BATCH:
                return

    def _rests(self, db: Connection, now: datetime, limits: QueueLimits, most: int) -> Iterator[sa.RowMapping]:
        """Published jobs whose suites have remaining tests to run; they come after all jobs that need a worker."""
        wanted = (rest_waits(now), job_contexts.c.repository.not_in(_full(now, limits.per_repository)))
        query = sa.select(jobs, job_contexts).select_from(BOTH).where(*wanted).order_by(*IN_TURN).limit(most)
        yield from db.execute(query).mappings().all()

    def _may_spend(self, db: Connection, row: sa.RowMapping, now: datetime, spent: dict[DailyBudget, MicroUSD]) -> bool:
        """True if the job's daily budgets have money left; otherwise it is looked at again later, and says why.

        `spent` remembers what was found for budgets that several jobs share.
        """
        budgets = self._caps.budgets(JobContext.model_validate(row["context"]), row["actor"], now.timestamp)
        for budget in budgets:
            if budget not in spent:
                spent[budget] = budget.spent(db)[1]
        empty = next((budget for budget in budgets if spent[budget] >= budget.cap), None)
        if empty is None:
            return True
        if row["reason"] != empty.spent_reason:
            values = {"reason": empty.spent_reason, "updated_at": now}
            db.execute(jobs.update().where(jobs.c.id == row["id"]).values(values))
        later = job_contexts.update().where(job_contexts.c.job == row["id"])
        due = (now + RECHECK_BUDGET_AFTER).timestamp()
        db.execute(later.values(due=due, waiting_for="daily_budget", error_pause_seconds=0.0))
        return False

    def _end_stopped(self, db: Connection, now: datetime) -> list[str]:
        """End jobs that were asked to stop and that no live process works on, unless the publisher has them."""
        here = (job_contexts.c.job == jobs.c.id, job_contexts.c.handed_over.is_(False), JOB_LEASE.free(now))
        stoppable = (jobs.c.stop_requested.is_(True), jobs.c.state.not_in(FINAL), sa.exists().where(*here))
        stopped = jobs.update().where(*stoppable).returning(jobs.c.id)
        why = sa.select(job_contexts.c.stop_reason).where(job_contexts.c.job == jobs.c.id).scalar_subquery()
        reason = sa.func.coalesce(sa.func.nullif(why, ""), STOPPED)
        values = {"state": "stopped", "reason": reason, "owner": None, "updated_at": now}
        ended = list(db.execute(stopped.values(values)).scalars())
        if ended:
            db.execute(job_contexts.update().where(job_contexts.c.job.in_(ended)).values(active_key=None))
        resting = (HAS_REST, jobs.c.stop_requested.is_(True), JOB_LEASE.free(now))
        rests = db.execute(sa.select(jobs.c.id).select_from(BOTH).where(*resting)).scalars().all()
        return [*ended, *(job_id for job_id in rests if self._end_rest(db, job_id))]

    def _store_rest(self, db: Connection, claim: JobClaim, result: dict[str, Any]) -> bool:
        resting = sa.exists().where(job_contexts.c.job == claim.job, HAS_REST)
        mine = jobs.update().where(jobs.c.id == claim.job, jobs.c.epoch == claim.epoch, resting)
        values = {"result": self._redactor.redact_all(result), "verdict": verdict_of(result)}
        return db.execute(mine.values(**values, updated_at=self._clock())).rowcount == 1

    def _end_rest(self, db: Connection, job_id: str) -> bool:
        """False if the job has no rest to run."""
        mine = job_contexts.update().where(job_contexts.c.job == job_id, HAS_REST)
        if db.execute(mine.values(waiting_for="rest_ended", lease_until=0.0)).rowcount != 1:
            return False
        db.execute(jobs.update().where(jobs.c.id == job_id).values(owner=None, updated_at=self._clock()))
        return True

    def _take(
        self, db: Connection, row: sa.RowMapping, owner: str, until: datetime, deaths: dict[str, int]
    ) -> JobClaim:
        epoch = row["epoch"] + 1
        values = {"owner": owner, "epoch": epoch, "reason": "", "updated_at": self._clock()}
        db.execute(jobs.update().where(jobs.c.id == row["id"]).values(values))
        mine = job_contexts.update().where(job_contexts.c.job == row["id"])
        rest = row["waiting_for"] == "rest"
        values = {"lease_until": until.timestamp(), "waiting_for": "rest" if rest else ""}
        db.execute(mine.values(values | deaths))
        if rest:  # what publishing it requested is still to be carried out
            adopt_effects(db, row["id"], epoch, branches=False)
        return JobClaim(row["id"], epoch, owner, resumed=epoch > 1)

    def _give_up(self, db: Connection, job_id: str, reason: str, now: datetime) -> None:
        """End a job; a published one only loses its remaining tests."""
        if self._end_rest(db, job_id):
            return
        values = {"state": "error", "reason": f"{reason}; the job was given up.", "owner": None, "updated_at": now}
        db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
        db.execute(job_contexts.update().where(job_contexts.c.job == job_id).values(active_key=None))


def _died_too_often(*, crashes: int, worker_deaths: int = 0, cause: str = "") -> str:
    """Why a job is given up; empty if it is not."""
    if crashes >= MAX_CRASHES:
        if cause:
            return f"{cause} This happened {crashes} times at the same step"
        return f"Its process died {crashes} times at the same step, or its sandbox was lost there"
    return f"Its worker died {worker_deaths} times at the same step" if worker_deaths >= MAX_WORKER_DEATHS else ""


def jobs_in_progress(db: Connection, now: datetime) -> Counter[int]:
    """The number of jobs in progress in each repository."""
    query = sa.select(job_contexts.c.repository).select_from(BOTH).where(JOB_LEASE.held(now))
    return Counter(db.execute(query).scalars())


def _full(now: datetime, per_repository: int) -> sa.Select[tuple[int]]:
    """The repositories with as many jobs in progress as they may have."""
    places = sa.select(job_contexts.c.repository).select_from(BOTH).where(JOB_LEASE.held(now))
    return places.group_by(job_contexts.c.repository).having(sa.func.count() >= per_repository)
