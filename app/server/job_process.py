"""The process that works on one server job; the worker starts it for that job only.

It ends when the job cannot continue here: done, waiting for people, postponed, or drained for a deployment. All results
are in the database by then, so ending is the same as being killed, only with a message.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import NoReturn

from sqlalchemy.exc import SQLAlchemyError

from app.config.settings import Settings, read_settings
from app.core import failpoints, log
from app.core.errors import AgentFixError, ExitCode, LostSandboxError
from app.core.job import STREAMED, Journal, N, Progress, ProgressKind, WaitingForUser
from app.core.redaction import Redactor
from app.core.result import JobResult
from app.core.text import clip
from app.jobs.process_owner import this_process
from app.jobs.queue import LEASE, JobClaim
from app.jobs.store import WaitingFor
from app.jobs.tables import is_unreachable
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.publish.outbox import StaleEpoch
from app.server.terminal import end_process
from app.server.wiring.context import ServerContext
from app.server.wiring.job_process import JobProcess, LostBaseError, PreemptedError, ServerJobRunner

LOOK_SECONDS = 0.5
"""Between two checks whether the job must stop."""
REMOTE_LOOK_SECONDS = 2.0
"""The same in a cluster, where thousands of jobs may read the database."""
HEARTBEAT_SECONDS = 15.0
DRAIN_SECONDS = 25.0
"""What a job in a cluster has for its current step when its machine is taken away."""
RETRY_AFTER_FAULT = timedelta(seconds=90)
"""Before a job is tried again after a failure that may pass: the provider is down, the disk full, a commit not here."""
BASE_SECONDS = 60.0
"""How long a process waits for its base commit from the publisher; a new process would usually take longer."""
RETRY_AFTER_EMPTY_BUDGET = timedelta(minutes=10)
"""Before a job is tried again after a daily budget was used up."""
FOR_PEOPLE: frozenset[ExitCode] = frozenset({ExitCode.LIMIT_REACHED, ExitCode.SANDBOX, ExitCode.CONFIG})
MAX_REASON = 300
"""Characters of an error that ended the remaining tests."""
_PR_SET_PDEATHSIG = 1

logger = logging.getLogger("app.server.job_process")  # which is `__main__` here


class WorkerDraining(AgentFixError):  # noqa: N818  # a request, not a fault
    """The worker is shutting down; another one will continue this job."""

    repeatable = True


class NoProgress:
    """Discards progress: nobody watches this process, and the job's log stores it anyway."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """Do nothing."""


class LoggedProgress:
    """Writes progress to this process's log, which a cluster collects; fragments of text are left out."""

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind not in STREAMED:
            logger.info("%s: %s", kind, text)


class InterruptibleJournal:
    """The job's journal; it starts no new step once the process must end, and reports each finished step."""

    def __init__(self, journal: Journal, draining: asyncio.Event, finished: Callable[[], None]) -> None:
        self._journal = journal
        self._draining = draining
        self._finished = finished

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        self._journal.on_resume(restore)

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        executed = False

        async def begin() -> N:
            nonlocal executed
            if self._draining.is_set():
                raise WorkerDraining("The worker is shutting down; another worker continues.")
            executed = True
            return await work()

        result = await self._journal.step(name, kind, begin)
        if executed:
            self._finished()
        return result


class JobWorker:
    """Works on one claimed job in this process.

    `alone`: no supervising worker runs beside it, so it keeps its own lease and gives the job back itself.
    """

    def __init__(self, job_process: JobProcess, *, alone: bool = False) -> None:
        self.job_process = job_process
        self.claim = job_process.claim
        self._alone = alone
        self._progress: Progress = LoggedProgress() if alone else NoProgress()
        self._draining = asyncio.Event()

    async def run(self) -> ExitCode:
        """Work until the job is done or cannot continue here; its state then says which."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._drain)
        watching = [asyncio.create_task(self._watch_for_stop())]
        if self._alone:
            watching.append(asyncio.create_task(self._keep_lease()))
        try:
            runner = await self._runner()
            rest = await asyncio.to_thread(self._is_rest)
            if not rest:
                runner.job_models.warm()
            await runner.prove_sandbox()
            if not rest:
                await runner.check_models()
            result = await self._work(runner, rest=rest)
        except (WorkerDraining, PreemptedError):
            return ExitCode.INTERRUPTED
        except StaleEpoch as error:
            return error.code
        except AgentFixError as error:
            await asyncio.to_thread(self.release, error)
            return error.code
        finally:
            for task in watching:
                task.cancel()
        logger.info("job %s: %s", self.claim.job, result.exit_status)
        return ExitCode.OK

    async def _runner(self) -> ServerJobRunner:
        clock = asyncio.get_running_loop().time
        end = clock() + BASE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.job_process.runner, self._progress)
            except LostBaseError:
                if self._draining.is_set() or clock() >= end:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    def _is_rest(self) -> bool:
        """Whether the job is published, and only the rest of its suite is to be run. Blocking."""
        row = self.job_process.store.get(self.claim.job)
        return row is not None and row.final

    async def _work(self, runner: ServerJobRunner, *, rest: bool) -> JobResult:
        progressed = partial(self.job_process.server_context.queue.made_progress, self.claim.job)

        async def work(_job: str, journal: Journal) -> JobResult:
            interruptible = InterruptibleJournal(journal, self._draining, progressed)
            return await (runner.run_rest(interruptible) if rest else runner.work(interruptible))

        engine = await asyncio.to_thread(self.job_process.engine, work)
        await asyncio.to_thread(engine.launch)
        name = f"{self.claim.job}.rest" if rest else self.claim.job
        result = await engine.carry_out(name, resumed=self.claim.resumed)
        if rest:  # after the workflow, which may have succeeded in a process that died or lost its claim here
            await asyncio.to_thread(self.job_process.end_rest, result)
        return result

    def release(self, error: AgentFixError) -> None:
        """Set the job's state for its next owner: waiting for people, or postponed."""
        job, store = self.claim.job, self.job_process.store
        if self._is_rest():
            self._release_rest(error)
        elif isinstance(error, WaitingForUser):
            store.enter(job, error.state, error.message)
        elif isinstance(error, DayBudgetError):
            self.job_process.server_context.queue.postpone(
                self.claim, f"{error.message} {error.hint}", RETRY_AFTER_EMPTY_BUDGET
            )
        elif is_for_people(error):
            waiting_for: WaitingFor = "money" if isinstance(error, BudgetError) else ""
            store.enter(job, "paused", f"{error.message} {error.hint}".strip(), waiting_for=waiting_for)
        elif isinstance(error, LostSandboxError):  # some code may kill its sandboxes: that is counted
            self.job_process.server_context.queue.postpone(
                self.claim, f"{error.message} The job continues in a new sandbox.", RETRY_AFTER_FAULT
            )
            self.job_process.server_context.queue.release(self.claim, crashed=True)
        elif error.final:
            store.enter(job, "error", f"{error.message} {error.hint}".strip())
        else:
            self.job_process.server_context.queue.postpone(
                self.claim, f"{error.message} It is tried again.", RETRY_AFTER_FAULT
            )
        logger.warning("job %s released: %s", job, error.message)

    def _release_rest(self, error: AgentFixError) -> None:
        """End the remaining tests, or postpone them; after some failures at the same step they are given up."""
        queue, row = self.job_process.server_context.queue, self.job_process.store.get(self.claim.job)
        if row is None or not row.rest_pending:  # others have ended the job meanwhile
            return
        result = JobResult.model_validate(row.result)
        reason = clip(error.message, MAX_REASON)
        stored = result.with_rest_state("given_up" if error.final else "pending", reason).model_dump(mode="json")
        if error.final:
            queue.end_rest(self.claim, stored)
            return
        queue.store_rest(self.claim, stored)
        queue.postpone(self.claim, "", RETRY_AFTER_FAULT)
        queue.release(self.claim, crashed=True)

    def _drain(self) -> None:
        """Start no new step. Without a worker that would kill it, the process ends after a while, whatever it does."""
        self._draining.set()
        if self._alone:
            timer = threading.Timer(DRAIN_SECONDS, self._give_back)
            timer.daemon = True
            timer.start()

    def _give_back(self) -> None:
        self.job_process.server_context.queue.release(self.claim)
        end_process(ExitCode.INTERRUPTED)

    async def _watch_for_stop(self) -> None:
        """End the process if the job must stop or has another owner."""
        while True:
            try:
                await self._check_for_stop()
            except SQLAlchemyError as error:  # the database is down: the lease decides
                logger.warning("the database did not answer: %s", type(error).__name__)
            await asyncio.sleep(REMOTE_LOOK_SECONDS if self._alone else LOOK_SECONDS)

    async def _check_for_stop(self) -> None:
        job, store, queue = self.claim.job, self.job_process.store, self.job_process.server_context.queue
        row = await asyncio.to_thread(store.get, job)
        if row is None or row.epoch != self.claim.epoch:
            end_process(ExitCode.BUSY)
        # No await between stopping the job and ending the process, so that no effect can be requested in between.
        if row.stop_requested and (row.rest_pending or store.stop(job, queue.stop_reason(job))):
            end_process(ExitCode.STOPPED)

    async def _keep_lease(self) -> None:
        """Extend the lease. Ends the process when that failed for as long as a lease lasts: others have the job now."""
        clock, queue = asyncio.get_running_loop().time, self.job_process.server_context.queue
        kept_at = clock()
        while True:
            try:
                if not await asyncio.to_thread(queue.heartbeat, self.claim):
                    end_process(ExitCode.BUSY)
                kept_at = clock()
            except SQLAlchemyError:
                if clock() - kept_at >= LEASE.total_seconds():
                    end_process(ExitCode.BUSY)
            await asyncio.sleep(HEARTBEAT_SECONDS)


def is_for_people(error: AgentFixError) -> bool:
    """True if only a person can fix it: money, a key, this machine's sandbox. A lost sandbox can be replaced."""
    if isinstance(error, LostSandboxError):
        return False
    return error.code in FOR_PEOPLE or (isinstance(error, ModelError) and error.kind == "give_up")


def main() -> NoReturn:
    """Run `python -I -m app.server.job_process JOB EPOCH`, as the worker starts it. It dies with the worker."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job, epoch, owner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    settings = read_settings()
    log.configure(form=settings.log, redactor=Redactor(settings.secrets))
    failpoints.arm(settings.failpoint)
    if not owner.startswith(f"{this_process().split(':')[0]}:{os.getppid()}:"):
        end_process(ExitCode.BUSY)  # the parent has died already
    end_process(_work(ServerContext(settings), JobClaim(job, epoch, owner, resumed=epoch > 1)))


def run_job(settings: Settings, job: str, epoch: int, owner: str) -> NoReturn:
    """Work on a claimed job without a worker beside it, as a cluster starts it: `serve --role worker --job …`."""
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    server_context, claim = ServerContext(settings), JobClaim(job, epoch, owner, resumed=epoch > 1)
    if not server_context.queue.heartbeat(claim):
        logger.warning("job %s has another owner by now", job)
        end_process(ExitCode.BUSY)
    code = _work(server_context, claim, alone=True)
    server_context.queue.release(claim, crashed=code == ExitCode.INTERNAL)
    end_process(code)


def _work(server_context: ServerContext, claim: JobClaim, *, alone: bool = False) -> ExitCode:
    try:
        return asyncio.run(JobWorker(JobProcess(server_context, claim), alone=alone).run())
    except Exception as error:
        logger.exception("job %s failed", claim.job)
        return ExitCode.INTERRUPTED if is_unreachable(error) else ExitCode.INTERNAL


if __name__ == "__main__":
    main()
