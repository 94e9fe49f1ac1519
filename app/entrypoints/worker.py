"""The worker: claims jobs, gives each a process of its own, keeps their leases, and ends them when they are to end.

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

from app.bootstrap.premises import Premises
from app.bootstrap.sweeping import sweep_everywhere
from app.errors import ExitCode
from app.failpoints import failpoint
from app.jobs.owner import this_process
from app.jobs.queue import Claim
from app.settings import Settings

_ENDED_WELL = frozenset(ExitCode) - {ExitCode.INTERNAL}

logger = logging.getLogger(__name__)


class Process(Protocol):
    """A process that works on a job."""

    @property
    def returncode(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


Start = Callable[[Claim], Awaitable[Process]]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds: between two looks, between two heartbeats of a lease (which is four times as long), until a process
    that does not stop by itself is killed, until one that is to finish its step is, and between two sweeps."""

    look: float = 0.5
    heartbeat: float = 15.0
    stop: float = 5.0
    drain: float = 25.0
    sweep: float = 15.0


RHYTHM = Rhythm()


@dataclass(slots=True)
class Attended:
    """A claimed job and its process. `stopping_since`: when the job was first seen to have been stopped."""

    claim: Claim
    process: Process
    stopping_since: float | None = None
    beat_at: float = field(default_factory=monotonic)


class Worker:
    """Claims while there is room, until it is told to drain."""

    def __init__(self, premises: Premises, start: Start, *, owner: str = "", rhythm: Rhythm = RHYTHM) -> None:
        self._premises = premises
        self._start = start
        self._owner = owner or this_process()
        self._rhythm = rhythm
        self._attended: dict[str, Attended] = {}
        self._sweeping: asyncio.Task[int] | None = None
        self._swept_at = -math.inf
        self.draining = asyncio.Event()

    async def work(self) -> None:
        """Until drained. A database that is away is waited for: the leases decide what becomes of the jobs."""
        while not self.draining.is_set():
            try:
                await self._look_after()
                await self._claim()
                self._sweep_now_and_then()
            except SQLAlchemyError as error:
                logger.warning("the database did not answer: %s", type(error).__name__)
            await _either(self.draining.wait(), self._rhythm.look)
        await self._drain()

    def _sweep_now_and_then(self) -> None:
        """Beside everything else: a large tree takes its time. Its failures are told like those of a look."""
        if self._sweeping is not None and self._sweeping.done():
            done, self._sweeping = self._sweeping, None
            done.result()
        if self._sweeping is None and monotonic() - self._swept_at >= self._rhythm.sweep:
            self._swept_at = monotonic()
            settings, store = self._premises.settings, self._premises.store()
            self._sweeping = asyncio.create_task(asyncio.to_thread(sweep_everywhere, settings, store))

    async def _claim(self) -> None:
        queue = self._premises.queue
        while len(self._attended) < self._premises.limits.jobs:
            claim = await asyncio.to_thread(queue.claim, self._owner, self._premises.limits)
            if claim is None:
                return
            failpoint("job.claimed")
            self._attended[claim.job] = Attended(claim, await self._start(claim))
            failpoint("job.begun")
            logger.info("job %s taken up (epoch %s)", claim.job, claim.epoch)

    async def _look_after(self) -> None:
        for attended in list(self._attended.values()):
            if attended.process.returncode is not None:
                await self._reap(attended)
            elif monotonic() - attended.beat_at >= self._rhythm.heartbeat:
                await self._beat(attended)
            await self._stop_if_told(attended)

    async def _reap(self, attended: Attended) -> None:
        """Give the job back. What ended by a signal or an error of our own died on it."""
        code = attended.process.returncode
        crashed = code not in _ENDED_WELL
        failpoint("job.ended")
        await asyncio.to_thread(self._premises.queue.release, attended.claim, crashed=crashed)
        if crashed:  # told after it was kept: a database that is away is asked again and again
            logger.error("the process of job %s ended with %s", attended.claim.job, code)
        failpoint("job.released")
        del self._attended[attended.claim.job]
        if attended.process.returncode != ExitCode.OK:
            self._swept_at = -math.inf  # what it left is not left lying

    async def _beat(self, attended: Attended) -> None:
        attended.beat_at = monotonic()
        if not await asyncio.to_thread(self._premises.queue.heartbeat, attended.claim):
            logger.warning("job %s was taken over by another worker", attended.claim.job)
            attended.process.kill()

    async def _stop_if_told(self, attended: Attended) -> None:
        if not await asyncio.to_thread(self._premises.store().stop_requested, attended.claim.job):
            return
        attended.stopping_since = attended.stopping_since or monotonic()
        if monotonic() - attended.stopping_since >= self._rhythm.stop and attended.process.returncode is None:
            logger.warning("job %s did not stop by itself", attended.claim.job)
            attended.process.kill()

    async def _drain(self) -> None:
        """Let each job finish the step it is at, then give all of them back."""
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping}, timeout=self._rhythm.drain)
        for attended in self._attended.values():
            if attended.process.returncode is None:
                attended.process.terminate()
        ending = asyncio.gather(*(attended.process.wait() for attended in self._attended.values()))
        await _either(ending, self._rhythm.drain)
        for attended in list(self._attended.values()):
            if attended.process.returncode is None:
                attended.process.kill()
                await attended.process.wait()
            await asyncio.to_thread(self._premises.queue.release, attended.claim)
        self._attended.clear()


async def _either(work: Awaitable[object], seconds: float) -> None:
    """Until it is done, or the time is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


def start_process(settings: Settings) -> Start:
    """How a job's process is started: isolated from the directory it is started in, with the worker's environment."""

    environment = {**settings.environment, "AGENT_FIX_STATE_DIR": str(settings.state)}

    async def start(claim: Claim) -> Process:
        words = (sys.executable, "-I", "-m", "app.entrypoints.attend", claim.job, str(claim.epoch), claim.owner)
        return await asyncio.create_subprocess_exec(*words, env=environment, cwd="/", stdin=asyncio.subprocess.DEVNULL)

    return start


def run_worker(settings: Settings) -> int:
    """The worker's process, until SIGTERM or SIGINT."""
    premises = Premises(settings)
    premises.prepare()
    return asyncio.run(_run(premises, settings))


async def _run(premises: Premises, settings: Settings) -> int:
    worker = Worker(premises, start_process(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.draining.set)
    logger.info("worker ready, at most %s jobs at once, process %s", settings.jobs, os.getpid())
    await worker.work()
    return ExitCode.OK
