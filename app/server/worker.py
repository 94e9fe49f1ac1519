"""The worker: claims jobs, starts a process for each, keeps their leases, and stops them when required.

It holds the model keys and the database. It never imports a model library itself: its processes do.
"""

import asyncio
import logging
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from app.config.settings import Settings
from app.core.errors import ExitCode
from app.core.failpoints import failpoint
from app.jobs.process_owner import this_process
from app.jobs.queue import JobClaim
from app.pipeline.wiring.cleanup import sweep_everywhere
from app.server.wiring.context import ServerContext

_ENDED_WELL = frozenset(ExitCode) - {ExitCode.INTERNAL}

logger = logging.getLogger(__name__)


class JobProcessHandle(Protocol):
    """A process that works on a job."""

    @property
    def returncode(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


Start = Callable[[JobClaim], Awaitable[JobProcessHandle]]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals in seconds.

    Between two polls, between two heartbeats of a lease (which lasts four times as long), before a process that does
    not stop is killed, before one that finishes its step is killed, and between two sweeps.
    """

    poll: float = 0.5
    heartbeat: float = 15.0
    stop: float = 5.0
    drain: float = 25.0
    sweep: float = 15.0


INTERVALS = Intervals()


@dataclass(slots=True)
class RunningJob:
    """A claimed job and its process. `stopping_since` is when the stop request was first seen."""

    claim: JobClaim
    process: JobProcessHandle
    stopping_since: float | None = None
    heartbeat_at: float = field(default_factory=monotonic)


class Worker:
    """Claims jobs while it has capacity, until it is told to drain."""

    def __init__(
        self, server_context: ServerContext, start: Start, *, owner: str = "", intervals: Intervals = INTERVALS
    ) -> None:
        self._server_context = server_context
        self._start = start
        self._owner = owner or this_process()
        self._intervals = intervals
        self._running_jobs: dict[str, RunningJob] = {}
        self._sweeping: asyncio.Task[int] | None = None
        self._swept_at = -math.inf
        self.draining = asyncio.Event()

    async def work(self) -> None:
        """Work until drained. If the database is unavailable, wait: the leases decide what happens to the jobs."""
        while not self.draining.is_set():
            try:
                await self._look_after()
                await self._claim()
                self._sweep_now_and_then()
            except SQLAlchemyError as error:
                logger.warning("the database did not answer: %s", type(error).__name__)
            await _either(self.draining.wait(), self._intervals.poll)
        await self._drain()

    def _sweep_now_and_then(self) -> None:
        """Sweep in the background, because a large tree takes time. Failures are logged."""
        if self._sweeping is not None and self._sweeping.done():
            done, self._sweeping = self._sweeping, None
            done.result()
        if self._sweeping is None and monotonic() - self._swept_at >= self._intervals.sweep:
            self._swept_at = monotonic()
            settings, store = self._server_context.settings, self._server_context.store()
            self._sweeping = asyncio.create_task(asyncio.to_thread(sweep_everywhere, settings, store))

    async def _claim(self) -> None:
        queue = self._server_context.queue
        while len(self._running_jobs) < self._server_context.limits.jobs:
            claim = await asyncio.to_thread(queue.claim, self._owner, self._server_context.limits)
            if claim is None:
                return
            failpoint("job.claimed")
            self._running_jobs[claim.job] = RunningJob(claim, await self._start(claim))
            failpoint("job.begun")
            logger.info("job %s started (epoch %s)", claim.job, claim.epoch)

    async def _look_after(self) -> None:
        for running_job in list(self._running_jobs.values()):
            if running_job.process.returncode is not None:
                await self._reap(running_job)
            elif monotonic() - running_job.heartbeat_at >= self._intervals.heartbeat:
                await self._beat(running_job)
            await self._stop_if_requested(running_job)

    async def _reap(self, running_job: RunningJob) -> None:
        """Release the job. A signal or an internal error counts as a crash."""
        code = running_job.process.returncode
        crashed = code not in _ENDED_WELL
        failpoint("job.ended")
        await asyncio.to_thread(self._server_context.queue.release, running_job.claim, crashed=crashed)
        if crashed:  # told after it was kept: a database that is away is asked again and again
            logger.error("the process of job %s ended with %s", running_job.claim.job, code)
        failpoint("job.released")
        del self._running_jobs[running_job.claim.job]
        if running_job.process.returncode != ExitCode.OK:
            self._swept_at = -math.inf  # what it left is not left lying

    async def _beat(self, running_job: RunningJob) -> None:
        running_job.heartbeat_at = monotonic()
        if not await asyncio.to_thread(self._server_context.queue.heartbeat, running_job.claim):
            logger.warning("job %s was taken over by another worker", running_job.claim.job)
            with suppress(ProcessLookupError):  # it may have ended meanwhile
                running_job.process.kill()

    async def _stop_if_requested(self, running_job: RunningJob) -> None:
        if not await asyncio.to_thread(self._server_context.store().stop_requested, running_job.claim.job):
            return
        running_job.stopping_since = running_job.stopping_since or monotonic()
        if monotonic() - running_job.stopping_since >= self._intervals.stop and running_job.process.returncode is None:
            logger.warning("job %s did not stop in time", running_job.claim.job)
            running_job.process.kill()

    async def _drain(self) -> None:
        """Let each job finish its current step, then release all of them."""
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping}, timeout=self._intervals.drain)
        for running_job in self._running_jobs.values():
            if running_job.process.returncode is None:
                running_job.process.terminate()
        ending = asyncio.gather(*(running_job.process.wait() for running_job in self._running_jobs.values()))
        await _either(ending, self._intervals.drain)
        for running_job in list(self._running_jobs.values()):
            if running_job.process.returncode is None:
                running_job.process.kill()
                await running_job.process.wait()
            await asyncio.to_thread(self._server_context.queue.release, running_job.claim)
        self._running_jobs.clear()


async def _either(work: Awaitable[object], seconds: float) -> None:
    """Wait until it is done or the time is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


def start_process(settings: Settings) -> Start:
    """How a job's process is started: isolated from the directory it is started in, with the worker's environment."""

    environment = {**settings.environment, "AGENT_FIX_STATE_DIR": str(settings.state)}

    async def start(claim: JobClaim) -> JobProcessHandle:
        words = (sys.executable, "-I", "-m", "app.server.job_process", claim.job, str(claim.epoch), claim.owner)
        return await asyncio.create_subprocess_exec(*words, env=environment, cwd="/", stdin=asyncio.subprocess.DEVNULL)

    return start


def run_worker(settings: Settings) -> int:
    """Run the worker's process until SIGTERM or SIGINT."""
    server_context = ServerContext(settings)
    server_context.prepare()
    return asyncio.run(_run(server_context, settings))


async def _run(server_context: ServerContext, settings: Settings) -> int:
    worker = Worker(server_context, start_process(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.draining.set)
    logger.info("worker ready, at most %s jobs at once, process %s", settings.jobs, os.getpid())
    await worker.work()
    return ExitCode.OK
