"""Queries for a server's jobs by issue, repository and state, and for those whose status must be posted.

A server or a workflow that lost its rows restores them from the status comments on GitHub (`RecoveredJobs`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.failpoints import failpoint
from app.core.job import FINAL, Job, JobState
from app.jobs.context import JobContext, ThreadRef, paid_by
from app.jobs.leases import Lease
from app.jobs.store import JobRow, WaitingFor, job_row
from app.jobs.tables import TableStore, job_contexts, jobs, verdict_of, writing

WORKED_ON: tuple[JobState, ...] = ("queued", "planning", "working", "verifying", "publishing")
"""States in which a job wants a worker, until it is handed over to the publisher."""
ALL_JOBS_EVERY = timedelta(minutes=10)
"""Between two queries of all jobs for unposted changes; the others read only jobs that changed within twice that."""
ACTIVE = job_contexts.c.active_key > ""
"""Not just `IS NOT NULL`, which SQLite reads the whole table for."""
BOTH = jobs.join(job_contexts, job_contexts.c.job == jobs.c.id)
JOB_LEASE: Final = Lease(
    BOTH, job_contexts.c.job, jobs.c.owner, job_contexts.c.lease_until, claimed=jobs.c.owner.is_not(None)
)
AHEAD = timedelta(minutes=30)
"""How much earlier a job seems to have been requested for each step of its priority. So a job that waits long enough
comes before every newer one, whatever their priorities."""
IN_TURN: Final = (job_contexts.c.created_at + job_contexts.c.priority * AHEAD.total_seconds(), jobs.c.id)
"""The order in which waiting jobs are claimed."""
NO_QUESTION: Final = sa.not_(jobs.c.key.like("%/ask:%"))
AFTER_REST: Final = "rest_ended"
"""The `posted_state` of a published job of which the remaining tests have ended: its status is posted again."""
WAITS_FOR_PULL_REQUESTS: Final = sa.and_(
    job_contexts.c.waiting_for == "pull_requests", jobs.c.state.in_(WORKED_ON), jobs.c.stop_requested.is_(False)
)
"""True for a job that waits until fewer of its repository's pull requests are open."""


@dataclass(frozen=True, slots=True)
class JobWithContext:
    """A job together with its JobContext."""

    row: JobRow
    job_context: JobContext
    ready: bool
    crashes: int
    handed_over: bool = False
    posted_state: str = ""
    """The state that was last posted to GitHub."""
    posted_at: float = 0.0
    waiting_for: WaitingFor = ""
    """What a paused or queued job is waiting for."""

    @property
    def job(self) -> Job:
        return self.row.job


class JobQueries:
    """Queries for jobs with their contexts, and the few updates that belong to them."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._looked_at_all: datetime | None = None

    def get(self, job_id: str) -> JobWithContext | None:
        return self._first(jobs.c.id == job_id)

    def context(self, job_id: str) -> JobContext | None:
        """A job's context; None for a command-line job or one that has not started."""
        query = sa.select(job_contexts.c.context).where(job_contexts.c.job == job_id)
        with self._engine.connect() as db:
            found = db.execute(query).scalar()
        return JobContext.model_validate(found) if found else None

    def active(self, repository: int, number: int) -> JobWithContext | None:
        """The one unfinished job of this issue or pull request, not counting questions."""
        return self._first(job_contexts.c.active_key == f"{repository}#{number}")

    def newest(self, repository: int, number: int) -> JobWithContext | None:
        """The newest job of an issue or pull request, not counting questions."""
        return self._first(*_about(repository, number), NO_QUESTION)

    def of_issue(self, repository: int, number: int, most: int) -> tuple[JobWithContext, ...]:
        """The newest jobs of an issue or pull request, newest first, not counting questions."""
        return self._all(*_about(repository, number), NO_QUESTION)[::-1][:most]

    def active_jobs(self, installation: int | None = None, repository: int | None = None) -> tuple[JobWithContext, ...]:
        """The unfinished jobs of a repository or an installation, or of the whole server."""
        found = self._all(ACTIVE, *(() if repository is None else (job_contexts.c.repository == repository,)))
        places = ((each, each.job_context.issue_ref) for each in found)
        return tuple(each for each, place in places if installation in {None, place.installation})

    def follow_up_count(self, repository: int, number: int) -> int:
        """How often the bot has followed up on this pull request without being asked."""
        return sum(each.job_context.is_round for each in self._all(*_about(repository, number)))

    def has_jobs_in(self, repository: int) -> bool:
        """True if the repository has ever had a job."""
        with self._engine.connect() as db:
            query = sa.select(job_contexts.c.job).where(job_contexts.c.repository == repository).limit(1)
            return db.execute(query).first() is not None

    def without_base_commit(self) -> tuple[JobWithContext, ...]:
        """Jobs whose base commit has not been fetched yet."""
        waits = job_contexts.c.waiting_for == "pull_requests"
        return self._all(job_contexts.c.ready.is_(False), jobs.c.state.in_(WORKED_ON), sa.not_(waits))

    def waiting_for_pull_requests(self, repository: int | None = None) -> tuple[tuple[str, JobContext], ...]:
        """The jobs, in turn, that wait until fewer pull requests are open, in one repository or in all."""
        where = () if repository is None else (job_contexts.c.repository == repository,)
        query = sa.select(job_contexts.c.job, job_contexts.c.context).select_from(BOTH)
        with self._engine.connect() as db:
            rows = db.execute(query.where(WAITS_FOR_PULL_REQUESTS, *where).order_by(*IN_TURN)).all()
        return tuple((row.job, JobContext.model_validate(row.context)) for row in rows)

    def handed_over_jobs(self) -> tuple[JobWithContext, ...]:
        """Jobs whose work is done and whose effects are being published."""
        return self._all(jobs.c.state == "publishing", job_contexts.c.handed_over.is_(True))

    def ended_rests(self) -> tuple[JobWithContext, ...]:
        """Published jobs whose remaining tests have ended, but whose status was not posted again yet."""
        return self._all(job_contexts.c.waiting_for == "rest_ended")

    def with_rest(self, repository: int, number: int) -> JobWithContext | None:
        """The published job of an issue, or behind a pull request, of which the rest of the suite is being run."""
        here = sa.or_(job_contexts.c.number == number, _opened(number))
        return self._first(job_contexts.c.waiting_for == "rest", job_contexts.c.repository == repository, here)

    def opened(self, repository: int, pull: int) -> JobWithContext | None:
        """The newest job that published this pull request, whichever issue it was started on."""
        return self._first(job_contexts.c.repository == repository, _opened(pull))

    def not_posted(self, at_least_every: timedelta) -> tuple[JobWithContext, ...]:
        """Jobs whose change was not posted yet, and unfinished ones that were not posted for that long."""
        now = self._clock()
        long_ago = (now - at_least_every).timestamp()
        active = self._all(ACTIVE)
        changed = self._all(job_contexts.c.posted_state != jobs.c.state, *self._changed_recently(now))
        found = {each.job.id: each for each in (*active, *changed)}
        return tuple(
            each
            for _, each in sorted(found.items())
            if each.posted_state != each.row.state or each.posted_at <= long_ago
        )

    def _changed_recently(self, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
        """Limit a query to recent changes, so that its cost depends on their number; now and then, include all jobs."""
        if self._looked_at_all is None or now - self._looked_at_all >= ALL_JOBS_EVERY:
            self._looked_at_all = now
            return ()
        return (jobs.c.updated_at >= now - 2 * ALL_JOBS_EVERY,)

    def mark_ready(self, job_id: str) -> None:
        with writing(self._engine) as db:
            db.execute(job_contexts.update().where(job_contexts.c.job == job_id).values(ready=True))
        failpoint("base.ready")

    def join_threads(self, job_id: str, threads: Sequence[ThreadRef]) -> None:
        """Add a review's threads to an existing job, which will reply in them too. Idempotent."""
        here = job_contexts.c.job == job_id
        with writing(self._engine) as db:
            kept = db.execute(sa.select(job_contexts.c.context).where(here).with_for_update()).scalar_one()
            job_context = JobContext.model_validate(kept)
            known = {each.comment for each in job_context.threads}
            joined = (*job_context.threads, *(each for each in threads if each.comment not in known))
            values = job_context.model_copy(update={"threads": joined}).model_dump(mode="json")
            db.execute(job_contexts.update().where(here).values(context=values))
        failpoint("review.joined")

    def published_rest(self, job_id: str, result: dict[str, Any]) -> None:
        """Store the final result of a job whose suite's rest has ended, and have its status posted again."""
        with writing(self._engine) as db:
            values = {"result": result, "verdict": verdict_of(result), "updated_at": self._clock()}
            values["reason"] = str(result.get("reason", ""))
            db.execute(jobs.update().where(jobs.c.id == job_id).values(values))
            mine = job_contexts.update().where(job_contexts.c.job == job_id)
            db.execute(mine.values(waiting_for="", posted_state=AFTER_REST))
        failpoint("rest.published")

    def mark_posted(self, each: JobWithContext) -> None:
        """Record that a job's state is being posted, unless there has been more to tell since it was read."""
        with writing(self._engine) as db:
            values = {"posted_state": each.row.state, "posted_at": self._clock().timestamp()}
            same = (job_contexts.c.job == each.job.id, job_contexts.c.posted_state == each.posted_state)
            db.execute(job_contexts.update().where(*same).values(values))
        failpoint("status.posted")

    def _first(self, *where: sa.ColumnElement[bool]) -> JobWithContext | None:
        with self._engine.connect() as db:
            query = sa.select(jobs, job_contexts).select_from(BOTH).where(*where)
            row = db.execute(query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(1)).mappings().first()
        return _job_with_context(row) if row else None

    def _all(self, *where: sa.ColumnElement[bool]) -> tuple[JobWithContext, ...]:
        with self._engine.connect() as db:
            query = sa.select(jobs, job_contexts).select_from(BOTH).where(*where)
            found = [_job_with_context(row) for row in db.execute(query).mappings()]
        return tuple(sorted(found, key=lambda each: each.job.id))  # sorting in the database would read all jobs


def _about(repository: int, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (job_contexts.c.repository == repository, job_contexts.c.number == number)


def _opened(pull: int) -> sa.ColumnElement[bool]:
    address: sa.ColumnElement[str] = jobs.c.result["url"].as_string()
    return address.endswith(f"/pull/{pull}")


def _job_with_context(row: Mapping[Any, Any]) -> JobWithContext:
    return JobWithContext(
        row=job_row(cast("sa.RowMapping", row)),
        job_context=JobContext.model_validate(row["context"]),
        ready=row["ready"],
        crashes=row["crashes"],
        handed_over=row["handed_over"],
        posted_state=row["posted_state"],
        posted_at=row["posted_at"],
        waiting_for=row["waiting_for"],
    )


class RecoveredJobQueries(JobQueries):
    """JobQueries for a server that lost its rows. `follow_ups` are the counts that the pull requests state."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        super().__init__(engine, clock)
        self.follow_ups: dict[int, int] = {}

    def follow_up_count(self, repository: int, number: int) -> int:
        return super().follow_up_count(repository, number) + self.follow_ups.get(number, 0)

    def has_jobs_in(self, repository: int) -> bool:
        return True


class RecoveredJobs(TableStore):
    """Writes the rows of recovered jobs."""

    def write(
        self,
        job: Job,
        job_context: JobContext,
        state: JobState,
        result: dict[str, Any] | None,
        *,
        reason: str = "",
        posted: bool,
    ) -> None:
        """Write a recovered job. `posted` means that its state was already posted, so it is not posted again."""
        now, key, place = self._clock(), job_context.active_key, job_context.issue_ref
        row = {"id": job.id, "key": key, "state": state, "job": job.model_dump(mode="json")}
        came_to = {"result": result, "reason": reason}
        there = {"repository": place.repository, "number": place.number, "active_key": None if state in FINAL else key}
        known = {"posted_state": state if posted else "", "posted_at": now.timestamp(), "created_at": now.timestamp()}
        with writing(self._engine) as db:
            db.execute(jobs.insert().values(**row, **came_to, created_at=now, updated_at=now))
            values = {"context": job_context.model_dump(mode="json"), "priority": 1, "ready": False}
            values["actor"] = paid_by(job, job_context)
            db.execute(job_contexts.insert().values(job=job.id, **there, **known, **values))

    def forget(self, job_id: str) -> None:
        """Delete a recovered job's rows."""
        with writing(self._engine) as db:
            db.execute(jobs.delete().where(jobs.c.id == job_id))
            db.execute(job_contexts.delete().where(job_contexts.c.job == job_id))
