"""One process at work on one job of a server: started by the worker for it, gone with it.

It ends whenever the job cannot go on here: done, parked for people, put off, drained for a deploy. Everything worth
keeping is in the database by then, so ending is the same as being killed, only with a word about it.
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

from app import failpoints, log
from app.bootstrap.attending import LostBaseError, Office, ServerDesk
from app.bootstrap.premises import Premises
from app.entrypoints.leaving import end_process
from app.errors import AgentFixError, ExitCode, LostSandboxError
from app.job import Journal, N, Parked, ProgressKind
from app.jobs.owner import this_process
from app.jobs.queue import Claim
from app.jobs.store import Wants
from app.model.errors import BudgetError, DayBudgetError, ModelError
from app.redact import Redactor
from app.result import Result
from app.settings import Settings, read_settings

LOOK_SECONDS = 0.5
PUT_OFF = timedelta(seconds=90)
"""Between two attempts at what may mend itself: a provider that is down, a full disk, a base that is under way."""
BASE_SECONDS = 60.0
"""How long a base that the publisher brings is waited for here: mostly it comes sooner than a new process would."""
FOR_MONEY = timedelta(minutes=10)
"""The same, where a day's money has to come back."""
FOR_PEOPLE: frozenset[ExitCode] = frozenset({ExitCode.LIMIT_REACHED, ExitCode.SANDBOX, ExitCode.CONFIG})
_PR_SET_PDEATHSIG = 1
Leave = Callable[[int], NoReturn]

logger = logging.getLogger("app.entrypoints.attend")  # which is `__main__` here


class Drained(AgentFixError):  # noqa: N818  # a wish, not a fault
    """The worker is about to end; the next one goes on with this job."""

    @property
    def final(self) -> bool:
        return False


class Quiet:
    """Nobody watches this process; what is said is kept in the job's log."""

    def say(self, kind: ProgressKind, text: str) -> None:
        """Nothing."""


class AttendedJournal:
    """The job's journal, which begins no new step once the process is to end, and tells of each that was finished."""

    def __init__(self, journal: Journal, draining: asyncio.Event, finished: Callable[[], None]) -> None:
        self._journal = journal
        self._draining = draining
        self._finished = finished

    @property
    def recovering(self) -> bool:
        return self._journal.recovering

    def first(self, restore: Callable[[], Awaitable[None]]) -> None:
        self._journal.first(restore)

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        executed = False

        async def begin() -> N:
            nonlocal executed
            if self._draining.is_set():
                raise Drained("The worker ends; another one goes on.")
            executed = True
            return await work()

        result = await self._journal.step(name, kind, begin)
        if executed:
            self._finished()
        return result


class Attendance:
    """One claimed job in this process."""

    def __init__(self, office: Office, leave: Leave = end_process) -> None:
        self.office = office
        self.claim = office.claim
        self._leave = leave
        self._draining = asyncio.Event()

    async def attend(self) -> ExitCode:
        """Work until the job is done or cannot go on here; afterwards its state says which."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._draining.set)
        watching = asyncio.create_task(self._obey())
        try:
            desk = await self._desk()
            desk.meters.warm()
            await desk.prove_sandbox()
            await desk.check_models()
            result = await self._work(desk)
        except Drained:
            return ExitCode.INTERRUPTED
        except AgentFixError as error:
            await asyncio.to_thread(self.put_down, error)
            return error.code
        finally:
            watching.cancel()
        logger.info("job %s: %s", self.claim.job, result.exit_status)
        return ExitCode.OK

    async def _desk(self) -> ServerDesk:
        clock = asyncio.get_running_loop().time
        end = clock() + BASE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.office.desk, Quiet())
            except LostBaseError:
                if self._draining.is_set() or clock() >= end:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _work(self, desk: ServerDesk) -> Result:
        progressed = partial(self.office.premises.queue.made_progress, self.claim.job)

        async def work(_job: str, journal: Journal) -> Result:
            return await desk.work(AttendedJournal(journal, self._draining, progressed))

        engine = await asyncio.to_thread(self.office.engine, work)
        await asyncio.to_thread(engine.launch)
        return await engine.carry_out(self.claim.job, resumed=self.claim.resumed)

    def put_down(self, error: AgentFixError) -> None:
        """The job as people will find it: waiting for them, or for better times."""
        job, store = self.claim.job, self.office.store
        if isinstance(error, Parked):
            store.enter(job, error.state, error.message)
        elif isinstance(error, DayBudgetError):
            self.office.premises.queue.postpone(self.claim, f"{error.message} {error.hint}", FOR_MONEY)
        elif is_for_people(error):
            wants: Wants = "money" if isinstance(error, BudgetError) else ""
            store.enter(job, "paused", f"{error.message} {error.hint}".strip(), wants=wants)
        elif isinstance(error, LostSandboxError):  # some code may be what ends its sandboxes: that is counted
            self.office.premises.queue.postpone(self.claim, f"{error.message} It goes on in another one.", PUT_OFF)
            self.office.premises.queue.release(self.claim, crashed=True)
        elif error.final:
            store.enter(job, "error", f"{error.message} {error.hint}".strip())
        else:
            self.office.premises.queue.postpone(self.claim, f"{error.message} It is tried again.", PUT_OFF)
        logger.warning("job %s put down: %s", job, error.message)

    async def _obey(self) -> None:
        """End the process once the job is to be stopped, or is another's."""
        job, store, queue = self.claim.job, self.office.store, self.office.premises.queue
        while True:
            row = await asyncio.to_thread(store.get, job)
            if row is None or row.epoch != self.claim.epoch:
                self._leave(ExitCode.BUSY)
            # Nothing is awaited between the job's stop and the process's end: nothing can be wished for after it.
            if row.stop_requested and store.stop(job, queue.stop_reason(job)):
                self._leave(ExitCode.STOPPED)
            await asyncio.sleep(LOOK_SECONDS)


def is_for_people(error: AgentFixError) -> bool:
    """Whether only a person can mend it: money, a key, the sandbox of this machine. One that was lost is had again."""
    if isinstance(error, LostSandboxError):
        return False
    return error.code in FOR_PEOPLE or (isinstance(error, ModelError) and error.kind == "give_up")


def main() -> NoReturn:
    """`python -I -m app.entrypoints.attend JOB EPOCH`, as the worker starts it. It dies with the worker."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job, epoch, owner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    settings = read_settings()
    log.configure(form=settings.log, redactor=Redactor(settings.secrets))
    failpoints.arm(settings.failpoint)
    if not owner.startswith(f"{this_process().split(':')[0]}:{os.getppid()}:"):
        end_process(ExitCode.BUSY)  # whoever started us has died already
    attend_claim(settings, Claim(job, epoch, owner, resumed=epoch > 1))


def attend_claim(settings: Settings, claim: Claim, leave: Leave = end_process) -> NoReturn:
    """Work on a claimed job to this process's end."""
    try:
        code = asyncio.run(Attendance(Office(Premises(settings), claim), leave).attend())
    except Exception:
        logger.exception("job %s failed", claim.job)
        code = ExitCode.INTERNAL
    leave(code)


if __name__ == "__main__":
    main()
