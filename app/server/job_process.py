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
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import NoReturn

from app.config.settings import read_settings
from app.core import failpoints, log
from app.core.errors import AgentFixError, ExitCode, LostSandboxError
from app.core.job import Journal, N, ProgressKind, WaitingForUser
from app.core.redaction import Redactor
from app.core.result import JobResult
from app.jobs.process_owner import this_process
from app.jobs.queue import JobClaim
from app.jobs.store import WaitingFor
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.server.shutdown import end_process
from app.server.wiring.context import ServerContext
from app.server.wiring.job_process import JobProcess, LostBaseError, ServerJobRunner

LOOK_SECONDS = 0.5
PUT_OFF = timedelta(seconds=90)
"""Between two attempts at what may mend itself: a provider that is down, a full disk, a base that is under way."""
BASE_SECONDS = 60.0
"""How long a base that the publisher brings is waited for here: mostly it comes sooner than a new process would."""
FOR_MONEY = timedelta(minutes=10)
"""The same, where a day's money has to come back."""
FOR_PEOPLE: frozenset[ExitCode] = frozenset({ExitCode.LIMIT_REACHED, ExitCode.SANDBOX, ExitCode.CONFIG})
_PR_SET_PDEATHSIG = 1

logger = logging.getLogger("app.server.job_process")  # which is `__main__` here


class WorkerDraining(AgentFixError):  # noqa: N818  # a wish, not a fault
    """The worker is shutting down; another one will continue this job."""

    @property
    def final(self) -> bool:
        return False


class NoProgress:
    """Discards progress: nobody watches this process, and the job's log stores it anyway."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """Do nothing."""


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


class JobAttendance:
    """Works on one claimed job in this process."""

    def __init__(self, office: JobProcess) -> None:
        self.office = office
        self.claim = office.claim
        self._draining = asyncio.Event()

    async def run(self) -> ExitCode:
        """Work until the job is done or cannot continue here; its state then says which."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._draining.set)
        watching = asyncio.create_task(self._obey())
        try:
            runner = await self._runner()
            runner.job_models.warm()
            await runner.prove_sandbox()
            await runner.check_models()
            result = await self._work(runner)
        except WorkerDraining:
            return ExitCode.INTERRUPTED
        except AgentFixError as error:
            await asyncio.to_thread(self.release, error)
            return error.code
        finally:
            watching.cancel()
        logger.info("job %s: %s", self.claim.job, result.exit_status)
        return ExitCode.OK

    async def _runner(self) -> ServerJobRunner:
        clock = asyncio.get_running_loop().time
        end = clock() + BASE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.office.runner, NoProgress())
            except LostBaseError:
                if self._draining.is_set() or clock() >= end:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _work(self, runner: ServerJobRunner) -> JobResult:
        progressed = partial(self.office.server_context.queue.made_progress, self.claim.job)

        async def work(_job: str, journal: Journal) -> JobResult:
            return await runner.work(InterruptibleJournal(journal, self._draining, progressed))

        engine = await asyncio.to_thread(self.office.engine, work)
        await asyncio.to_thread(engine.launch)
        return await engine.carry_out(self.claim.job, resumed=self.claim.resumed)

    def release(self, error: AgentFixError) -> None:
        """Set the job's state for its next owner: waiting for people, or postponed."""
        job, store = self.claim.job, self.office.store
        if isinstance(error, WaitingForUser):
            store.enter(job, error.state, error.message)
        elif isinstance(error, DayBudgetError):
            self.office.server_context.queue.postpone(self.claim, f"{error.message} {error.hint}", FOR_MONEY)
        elif is_for_people(error):
            waiting_for: WaitingFor = "money" if isinstance(error, BudgetError) else ""
            store.enter(job, "paused", f"{error.message} {error.hint}".strip(), waiting_for=waiting_for)
        elif isinstance(error, LostSandboxError):  # some code may kill its sandboxes: that is counted
            self.office.server_context.queue.postpone(
                self.claim, f"{error.message} The job continues in a new sandbox.", PUT_OFF
            )
            self.office.server_context.queue.release(self.claim, crashed=True)
        elif error.final:
            store.enter(job, "error", f"{error.message} {error.hint}".strip())
        else:
            self.office.server_context.queue.postpone(self.claim, f"{error.message} It is tried again.", PUT_OFF)
        logger.warning("job %s released: %s", job, error.message)

    async def _obey(self) -> None:
        """End the process if the job must stop or has another owner."""
        job, store, queue = self.claim.job, self.office.store, self.office.server_context.queue
        while True:
            row = await asyncio.to_thread(store.get, job)
            if row is None or row.epoch != self.claim.epoch:
                end_process(ExitCode.BUSY)
            # No await between stopping the job and ending the process, so that no effect can be requested in between.
            if row.stop_requested and store.stop(job, queue.stop_reason(job)):
                end_process(ExitCode.STOPPED)
            await asyncio.sleep(LOOK_SECONDS)


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
    try:
        claim = JobClaim(job, epoch, owner, resumed=epoch > 1)
        code = asyncio.run(JobAttendance(JobProcess(ServerContext(settings), claim)).run())
    except Exception:
        logger.exception("job %s failed", job)
        code = ExitCode.INTERNAL
    end_process(code)


if __name__ == "__main__":
    main()
