"""The worker: claims jobs, starts a process for each, keeps their leases, and stops them when required.

It holds the model keys and the database. It never imports a model library itself: its processes do. Where they run is
up to its launcher (`app.server.launch`).
"""

import asyncio
import logging
import math
import os
import signal
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from app.config.settings import Settings
from app.core.errors import ExitCode, SandboxError
from app.core.failpoints import failpoint
from app.jobs.queue import JobClaim
from app.pipeline.wiring.sandboxes import sandbox_usability, sweep_everywhere, sweep_trials
from app.server.context import ServerContext, make_launcher
from app.server.launch.base import DRAIN_SECONDS, HEARTBEAT_SECONDS, JobHandle, JobLauncher, LaunchError

CLAIMS = 32
"""How many jobs are claimed at once."""
RETRY_AFTER_FAILED_START = timedelta(seconds=30)
"""Before a job that could not be started is tried again."""
_ENDED_WELL = frozenset(ExitCode) - {ExitCode.INTERNAL}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals in seconds.

    Between two polls, between two heartbeats of a lease (which lasts four times as long), before a process that does
    not stop is killed, before one that finishes its step is killed, and between two sweeps.
    """

    poll: float = 0.5
    heartbeat: float = HEARTBEAT_SECONDS
    stop: float = 5.0
    drain: float = DRAIN_SECONDS
    sweep: float = 15.0


INTERVALS = Intervals()


@dataclass(slots=True)
class RunningJob:
    """A claimed job and its process. `stopping_since` is when the stop request was first seen."""

    claim: JobClaim
    process: JobHandle
    stopping_since: float | None = None
    heartbeat_at: float = field(default_factory=monotonic)


class Worker:
    """Claims jobs while it has capacity, until it is told to drain."""

    def __init__(
        self, server_context: ServerContext, launcher: JobLauncher, *, intervals: Intervals = INTERVALS
    ) -> None:
        self._server_context = server_context
        self._launcher = launcher
        self._intervals = intervals
        self._running_jobs: dict[str, RunningJob] = {}
        self._sweeping: asyncio.Task[int] | None = None
        self._swept_at = -math.inf
        self.draining = asyncio.Event()

    async def work(self) -> None:
        """Work until drained. If the database is unavailable, wait: the leases decide what happens to the jobs.

        Raises LaunchError if no job could be started.
        """
        for claim, process in await self._launcher.running():
            self._running_jobs[claim.job] = RunningJob(claim, process)
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
            if error := done.exception():
                text = type(error).__name__ if isinstance(error, SQLAlchemyError) else error  # may show the password
                logger.error("the sweep failed: %s", text)
        if self._sweeping is None and monotonic() - self._swept_at >= self._intervals.sweep:
            self._swept_at = monotonic()
            settings, store = self._server_context.settings, self._server_context.job_store()
            self._sweeping = asyncio.create_task(asyncio.to_thread(sweep_everywhere, settings, store))

    async def _claim(self) -> None:
        queue, limits = self._server_context.queue, self._server_context.limits
        free = min(limits.jobs, self._server_context.settings.jobs_per_worker) - len(self._running_jobs)
        if free <= 0:
            return
        claims = await asyncio.to_thread(queue.claim_several, self._launcher.owner, limits, min(free, CLAIMS))
        if claims:
            failpoint("job.claimed")
        await asyncio.gather(*map(self._start, claims))

    async def _start(self, claim: JobClaim) -> None:
        try:
            self._running_jobs[claim.job] = RunningJob(claim, await self._launcher.start(claim))
        except LaunchError as error:
            logger.warning("job %s cannot be started: %s", claim.job, error.message)
            queue = self._server_context.queue
            await asyncio.to_thread(queue.retry_later, claim, error.message, RETRY_AFTER_FAILED_START)
            await asyncio.to_thread(queue.release, claim)
            return
        failpoint("job.begun")
        logger.info("job %s started (attempt %s)", claim.job, claim.epoch)

    async def _look_after(self) -> None:
        running_jobs = list(self._running_jobs.values())
        to_stop = await asyncio.to_thread(self._server_context.queue.to_stop) if running_jobs else frozenset()
        for running_job in running_jobs:
            if running_job.process.returncode is not None:
                await self._reap(running_job)
                continue
            if monotonic() - running_job.heartbeat_at >= self._intervals.heartbeat:
                await self._beat(running_job)
            if running_job.claim.job in to_stop:
                self._stop(running_job)

    async def _reap(self, running_job: RunningJob) -> None:
        """Release the job. A signal or an internal error counts as a crash."""
        code = running_job.process.returncode
        crashed = code not in _ENDED_WELL
        failpoint("job.ended")
        await asyncio.to_thread(self._server_context.queue.release, running_job.claim, crashed=crashed)
        if crashed:  # after the release, which is repeated while the database is down
            logger.error("the process of job %s ended with %s", running_job.claim.job, code)
        failpoint("job.released")
        del self._running_jobs[running_job.claim.job]
        if running_job.process.returncode != ExitCode.OK:
            self._swept_at = -math.inf  # what it left is not left lying

    async def _beat(self, running_job: RunningJob) -> None:
        running_job.heartbeat_at = monotonic()
        if not self._launcher.needs_heartbeat(running_job.claim):
            return
        if not await asyncio.to_thread(self._server_context.queue.heartbeat, running_job.claim):
            logger.warning("job %s was taken over by another worker", running_job.claim.job)
            with suppress(ProcessLookupError):  # it may have ended meanwhile
                running_job.process.kill()

    def _stop(self, running_job: RunningJob) -> None:
        """Kill a job that does not stop by itself in time."""
        running_job.stopping_since = running_job.stopping_since or monotonic()
        if monotonic() - running_job.stopping_since >= self._intervals.stop:
            logger.warning("job %s did not stop in time", running_job.claim.job)
            running_job.process.kill()

    async def _drain(self) -> None:
        """Let each job finish its current step, then release all of them; leave those that survive this worker."""
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping}, timeout=self._intervals.drain)
        if self._launcher.survives_worker:
            return
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


def run_worker(settings: Settings) -> int:
    """Run the worker's process until SIGTERM or SIGINT."""
    server_context = ServerContext(settings)
    server_context.prepare()
    return asyncio.run(_run(server_context, settings))


async def _run(server_context: ServerContext, settings: Settings) -> int:
    worker = Worker(server_context, make_launcher(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.draining.set)
    if settings.jobs_run_on == "process":
        await _check_sandbox(settings)
    logger.info(
        "worker ready, at most %s jobs at once, run on %s, process %s",
        settings.jobs,
        settings.jobs_run_on,
        os.getpid(),
    )
    await worker.work()
    return ExitCode.OK


async def _check_sandbox(settings: Settings) -> None:
    """Raises SandboxError if no job could run on this machine: each would be paused until a person continues it."""
    found = await sandbox_usability(settings.sandbox, settings)
    if not found.ok:
        await asyncio.to_thread(sweep_trials, settings)  # of earlier starts
        raise SandboxError(f"Jobs cannot run in {settings.sandbox} on this machine: {found.detail}", hint=found.repair)
