"""Each job by itself: one whose rows cannot be read, or that meets a bug of ours, keeps no other from being served."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic

from app.jobs.job_queries import JobWithContext

PAUSE = 60.0
"""Seconds for which a job is left alone after it failed."""

logger = logging.getLogger(__name__)


class IsolatedLoop:
    """Does one kind of work for many jobs. `doing` is what the log calls it."""

    def __init__(self, doing: str, clock: Callable[[], float] = monotonic) -> None:
        self._doing = doing
        self._clock = clock
        self._left_alone: dict[str, float] = {}

    async def run_each(self, jobs: Iterable[JobWithContext], work: Callable[[JobWithContext], bool]) -> int:
        """One job after the other, in threads; returns for how many there was something to do."""
        done = 0
        for job in jobs:
            if self._left_alone.get(job.job.id, 0.0) > self._clock():
                continue
            (outcome,) = await asyncio.gather(asyncio.to_thread(work, job), return_exceptions=True)
            if isinstance(outcome, Exception):
                self._left_alone[job.job.id] = self._clock() + PAUSE
                logger.error("%s failed for job %s", self._doing, job.job.id, exc_info=outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._left_alone.pop(job.job.id, None)
                done += outcome
        return done
