"""Restores a job that only GitHub remembers: writes its row and context from the status comment."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Engine

from app.core.job import FINAL, Job, JobState
from app.jobs.context import JobContext
from app.jobs.job_queries import JobQueries
from app.jobs.queue import active_key, paid_by
from app.jobs.tables import TableStore, job_contexts, jobs, writing


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
        now, key, place = self._clock(), active_key(job_context), job_context.issue_ref
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
