"""A job of which only the forge remembers: its row and commission are written down as people were told of it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Engine

from app.commission import Commission
from app.job import FINAL, Job, JobState
from app.jobs.queue import living_key, paid_by
from app.jobs.roster import Roster
from app.jobs.tables import commissions, jobs, writing


class RecallingRoster(Roster):
    """A roster without rows of the past. `mended` says how often pull requests were followed up, as they tell."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        super().__init__(engine, clock)
        self.mended: dict[int, int] = {}

    def rounds(self, repository: int, number: int) -> int:
        return super().rounds(repository, number) + self.mended.get(number, 0)

    def knows(self, repository: int) -> bool:
        return True


class Recalled:
    """Writes rows of the past."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def write(
        self,
        job: Job,
        commission: Commission,
        state: JobState,
        result: dict[str, Any] | None,
        *,
        reason: str = "",
        told: bool,
    ) -> None:
        """`told`: people know of this state, so nothing is said of it again."""
        now, key, place = self._clock(), living_key(commission), commission.place
        row = {"id": job.id, "key": key, "state": state, "job": job.model_dump(mode="json")}
        came_to = {"result": result, "reason": reason}
        there = {"repository": place.repository, "number": place.number, "living": None if state in FINAL else key}
        known = {"told": state if told else "", "told_at": now.timestamp(), "created_at": now.timestamp()}
        with writing(self._engine) as db:
            db.execute(jobs.insert().values(**row, **came_to, created_at=now, updated_at=now))
            values = {"commission": commission.model_dump(mode="json"), "priority": 1, "ready": False}
            values["actor"] = paid_by(job, commission)
            db.execute(commissions.insert().values(job=job.id, **there, **known, **values))

    def forget(self, job_id: str) -> None:
        """As if it had not been written down."""
        with writing(self._engine) as db:
            db.execute(jobs.delete().where(jobs.c.id == job_id))
            db.execute(commissions.delete().where(commissions.c.job == job_id))
