"""The roster of a server: which jobs live where, which of them wait for what, and how they stood when last told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.failpoints import failpoint
from app.core.job import Job, JobState
from app.jobs.context import JobContext, ThreadRef
from app.jobs.store import JobRow, Wants, job_row
from app.jobs.tables import commissions, jobs, writing

WORKED_ON: tuple[JobState, ...] = ("queued", "planning", "working", "verifying", "publishing")
"""States in which a job wants a worker, until it is handed over to the publisher."""
POSTED_STATES = timedelta(minutes=10)
"""For so long at least a change is news; clocks of several machines differ by less."""
ACTIVE = commissions.c.living > ""
"""Not just `IS NOT NULL`, which SQLite reads the whole table for."""
BOTH = jobs.join(commissions, commissions.c.job == jobs.c.id)


@dataclass(frozen=True, slots=True)
class JobWithContext:
    """A job with its commission."""

    row: JobRow
    job_context: JobContext
    ready: bool
    crashes: int
    handed_over: bool = False
    posted_state: str = ""
    """The state that people were told of last."""
    posted_at: float = 0.0
    waiting_for: Wants = ""
    """What it cannot go on without, where it is paused."""

    @property
    def job(self) -> Job:
        return self.row.job


class JobQueries:
    """Reads of jobs with their commissions, and the few marks that are made on them."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._looked_at_all: datetime | None = None

    def get(self, job_id: str) -> JobWithContext | None:
        return self._first(jobs.c.id == job_id)

    def active(self, repository: int, number: int) -> JobWithContext | None:
        """The one job that is not final at this place; questions asked beside it are not meant."""
        return self._first(commissions.c.living == f"{repository}#{number}")

    def newest(self, repository: int, number: int) -> JobWithContext | None:
        """The last job of a place, questions left out."""
        place = (commissions.c.repository == repository, commissions.c.number == number)
        return self._first(*place, sa.not_(jobs.c.key.like("%/ask:%")))

    def of_issue(self, repository: int, number: int, most: int) -> tuple[JobWithContext, ...]:
        """The last jobs of a place, the newest first, questions left out."""
        place = (commissions.c.repository == repository, commissions.c.number == number)
        return self._all(*place, sa.not_(jobs.c.key.like("%/ask:%")))[::-1][:most]

    def active_jobs(self, installation: int | None = None, repository: int | None = None) -> tuple[JobWithContext, ...]:
        """The living jobs of a repository or an installation, or all."""
        found = self._all(ACTIVE)
        places = ((each, each.job_context.place) for each in found)
        return tuple(
            each
            for each, place in places
            if installation in {None, place.installation} and repository in {None, place.repository}
        )

    def follow_up_count(self, repository: int, number: int) -> int:
        """How often the bot followed up on this pull request without a word to it."""
        place = (commissions.c.repository == repository, commissions.c.number == number)
        return sum(each.job_context.is_round for each in self._all(*place))

    def has_jobs_in(self, repository: int) -> bool:
        """Whether anything was ever done there."""
        with self._engine.connect() as db:
            query = sa.select(commissions.c.job).where(commissions.c.repository == repository).limit(1)
            return db.execute(query).first() is not None

    def without_base_commit(self) -> tuple[JobWithContext, ...]:
        """Jobs whose base commit is still to be brought."""
        return self._all(commissions.c.ready.is_(False), jobs.c.state.in_(WORKED_ON))

    def publisher_context(self) -> tuple[JobWithContext, ...]:
        """Jobs whose work is done and whose effects are under way."""
        return self._all(jobs.c.state == "publishing", commissions.c.handed_over.is_(True))

    def not_posted(self, at_least_every: timedelta) -> tuple[JobWithContext, ...]:
        """Jobs that changed since people were told of them, and living ones that were not told of for so long."""
        now = self._clock()
        long_ago = (now - at_least_every).timestamp()
        living = self._all(ACTIVE)
        changed = self._all(commissions.c.told != jobs.c.state, *self._lately(now))
        found = {each.job.id: each for each in (*living, *changed)}
        return tuple(
            each
            for _, each in sorted(found.items())
            if each.posted_state != each.row.state or each.posted_at <= long_ago
        )

    def _lately(self, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
        """What changed lately, so that a look costs as much as there is news; all jobs, however old, now and then."""
        if self._looked_at_all is None or now - self._looked_at_all >= POSTED_STATES:
            self._looked_at_all = now
            return ()
        return (jobs.c.updated_at >= now - 2 * POSTED_STATES,)

    def mark_ready(self, job_id: str) -> None:
        with writing(self._engine) as db:
            db.execute(commissions.update().where(commissions.c.job == job_id).values(ready=True))
        failpoint("stock.ready")

    def join_threads(self, job_id: str, threads: Sequence[ThreadRef]) -> None:
        """A review joined a job that is there, which will answer in its threads too. Said again, it changes nothing."""
        here = commissions.c.job == job_id
        with writing(self._engine) as db:
            kept = db.execute(sa.select(commissions.c.commission).where(here).with_for_update()).scalar_one()
            job_context = JobContext.model_validate(kept)
            known = {each.comment for each in job_context.threads}
            joined = (*job_context.threads, *(each for each in threads if each.comment not in known))
            values = job_context.model_copy(update={"threads": joined}).model_dump(mode="json")
            db.execute(commissions.update().where(here).values(commission=values))
        failpoint("review.joined")

    def mark_posted(self, job_id: str, state: JobState) -> None:
        """People will be told that it is in this state."""
        with writing(self._engine) as db:
            values = {"told": state, "told_at": self._clock().timestamp()}
            db.execute(commissions.update().where(commissions.c.job == job_id).values(values))
        failpoint("herald.told")

    def _first(self, *where: sa.ColumnElement[bool]) -> JobWithContext | None:
        with self._engine.connect() as db:
            query = sa.select(jobs, commissions).select_from(BOTH).where(*where)
            row = db.execute(query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(1)).mappings().first()
        return _commissioned(row) if row else None

    def _all(self, *where: sa.ColumnElement[bool]) -> tuple[JobWithContext, ...]:
        with self._engine.connect() as db:
            query = sa.select(jobs, commissions).select_from(BOTH).where(*where)
            found = [_commissioned(row) for row in db.execute(query).mappings()]
        return tuple(sorted(found, key=lambda each: each.job.id))  # to sort in the database is to read all jobs


def _commissioned(row: Mapping[Any, Any]) -> JobWithContext:
    return JobWithContext(
        row=job_row(cast("sa.RowMapping", row)),
        job_context=JobContext.model_validate(row["commission"]),
        ready=row["ready"],
        crashes=row["crashes"],
        handed_over=row["handed_over"],
        posted_state=row["told"],
        posted_at=row["told_at"],
        waiting_for=row["wants"],
    )
