"""Runs each job's work separately: an unreadable row or a bug in one job does not stop the others."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic

from app.jobs.job_queries import JobWithContext

PAUSE = 60.0
"""Seconds to skip a job after it failed."""

logger = logging.getLogger(__name__)


class IsolatedLoop:
    """Does one kind of work for many jobs. `doing` is its name in the log."""

    def __init__(self, activity: str, clock: Callable[[], float] = monotonic) -> None:
        self._activity = activity
        self._clock = clock
        self._left_alone: dict[str, float] = {}

    async def run_each(self, jobs: Iterable[JobWithContext], work: Callable[[JobWithContext], bool]) -> int:
        """Run the work of each job in a thread, one after the other; returns how many jobs had something to do."""
        done = 0
        for job in jobs:
            if self._left_alone.get(job.job.id, 0.0) > self._clock():
                continue
            (outcome,) = await asyncio.gather(asyncio.to_thread(work, job), return_exceptions=True)
            if isinstance(outcome, Exception):
                self._left_alone[job.job.id] = self._clock() + PAUSE
                logger.error("%s failed for job %s", self._activity, job.job.id, exc_info=outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._left_alone.pop(job.job.id, None)
                done += outcome
        return done
