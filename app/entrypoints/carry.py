"""Carries a job out at the terminal: takes it, watches for Ctrl-C and `jobs cancel`, and ends with an exit code.

A process that ends is a process that crashed, politely: nothing is wound down, because everything worth keeping is
in the database already and every sandboxed process dies with this one. What survives `kill -9` survives Ctrl-C.
"""

import asyncio
import errno
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import NoReturn

from app.bootstrap.local import House, LocalDesk, Order
from app.entrypoints.approval import ask_at_terminal
from app.entrypoints.leaving import CANCELLED, Interruption, end_process
from app.entrypoints.report import report, say_begin, say_refusal
from app.entrypoints.terminal import TerminalProgress
from app.errors import AgentFixError, ExitCode, OutputError, SandboxError
from app.failpoints import failpoint
from app.job import JobState, Journal, Parked
from app.jobs.roster import WORKED_ON
from app.result import Result

STOP_POLL_SECONDS = 0.4
LEAST_FREE = 256 * 1024
"""Bytes on the disk of the state, below which an unforeseen error is put down to a full disk."""


async def carry_out(
    house: House, find: Callable[[], Order], *, as_json: bool, afterwards: Callable[[], None] | None = None
) -> NoReturn:
    """Find the job, work on it, report, and end the process."""
    terminal = TerminalProgress(sys.stderr if as_json else sys.stdout)
    interruption = Interruption(terminal)
    interruption.listen()
    try:
        order = await asyncio.to_thread(find)
        interruption.job = order.job.id
        code = await Attendance(house, order, terminal, as_json=as_json).attend()
        if afterwards is not None:
            await asyncio.to_thread(afterwards)
    except AgentFixError as error:
        say_refusal(error)
        code = error.code
    except Exception as error:  # noqa: BLE001  # the boundary of the command line: one of the two in the house
        refusal = _unforeseen(house, error)
        say_refusal(refusal)
        code = refusal.code
    end_process(code)


class Attendance:
    """One process at work on one job."""

    def __init__(self, house: House, order: Order, terminal: TerminalProgress, *, as_json: bool) -> None:
        self.house = house
        self.order = order
        self.terminal = terminal
        self.as_json = as_json

    @cached_property
    def desk(self) -> LocalDesk:
        """Raises AgentFixError where what was chosen cannot be had: a sandbox, a recording."""
        approve = partial(ask_at_terminal, out=self.order.out, editor=self.house.settings.editor)
        return self.house.desk(self.order, self.house.progress(self.order, self.terminal), approve)

    async def attend(self) -> ExitCode:
        job, store = self.order.job, self.house.store
        row = store.get(job.id)
        if row is not None and row.final and row.result is not None:
            return await self._report(Result.model_validate(row.result))
        epoch = store.acquire(job.id)
        failpoint("acquired")
        await self._make_sure(row.state if row else "queued")
        store.replace(job)
        say_begin(self.order, self.terminal, epoch=epoch)
        watching = asyncio.ensure_future(self._obey_cancel())
        try:
            result = await self._work(resumed=epoch > 1)
        except AgentFixError as error:
            await self._put_down(error)
            raise
        finally:
            watching.cancel()
        return await self._report(result)

    async def _make_sure(self, state: JobState) -> None:
        """Model and sandbox can be used: found out before anything costs. A new job that is refused was never there."""
        job, store = self.order.job.id, self.house.store
        try:
            self.desk.meters.warm()
            await self.desk.check_models()
            await self.desk.prove_sandbox()
        except AgentFixError as error:
            if self.order.resumed:
                if state in WORKED_ON:  # it broke off, and this is why it does not go on
                    store.enter(job, "paused", error.message)
                store.release(job)
            else:
                store.forget(job)
                with suppress(OSError):
                    (self.house.settings.state / "results" / job).rmdir()
            raise

    async def _work(self, *, resumed: bool) -> Result:
        async def work(_job_id: str, journal: Journal) -> Result:
            return await self.desk.work(journal)

        engine = await asyncio.to_thread(self.house.engine, self.order.job.id, work)
        await asyncio.to_thread(engine.launch)
        return await engine.carry_out(self.order.job.id, resumed=resumed)

    async def _put_down(self, error: AgentFixError) -> None:
        """The job stays as it stands; what is known so far is written out, so that people can look at it."""
        job, store = self.order.job, self.house.store
        state = error.state if isinstance(error, Parked) else "paused"
        store.enter(job.id, state, error.message)
        store.release(job.id)
        limited = error.code == ExitCode.LIMIT_REACHED
        partly = Result(
            exit_status="limit_reached" if limited else state,
            reason=error.message,
            hint=error.hint,
            plan=None if state == "awaiting_approval" else self.desk.plan,  # people may have edited that one's file
            error_code=error.code,
            usage=self.desk.meters.totals(),
            model=job.model,
            trajectory=self.desk.keep_trajectory(),
        )
        await report(self.desk, self.order, partly, self.terminal, as_json=self.as_json)

    async def _report(self, result: Result) -> ExitCode:
        failpoint("report.begun")
        await report(self.desk, self.order, result, self.terminal, as_json=self.as_json)
        failpoint("report.done")
        self.house.store.mark_reported(self.order.job.id)
        try:
            await asyncio.to_thread(self.house.sweep)
        except SandboxError as error:
            self.terminal.say("warning", f"{error.message} {error.hint}")
        return result.exit_code

    async def _obey_cancel(self) -> None:
        """End the process once `jobs cancel` asked for it; a branch that is being made is finished first."""
        job, store = self.order.job.id, self.house.store
        asked = partial(store.stop_requested, job)
        # Nothing is awaited between the job's stop and the process's end: no branch can come to be after it.
        while not (await asyncio.to_thread(asked) and store.stop(job, CANCELLED)):  # noqa: ASYNC110  # others say it
            await asyncio.sleep(STOP_POLL_SECONDS)
        self.terminal.say("warning", f"job {job} was cancelled; no branch was made")
        end_process(ExitCode.STOPPED)


def _unforeseen(house: House, error: Exception) -> AgentFixError:
    """A full disk by its name; anything else is our own fault, with a report that a maintainer can use."""
    if _full(house.settings.state, error):
        return OutputError("The disk is full.", code=ExitCode.DISK_FULL, hint=GO_ON)
    path = house.settings.state / "error-report.txt"
    try:
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
        hint = f"{path} says where. {GO_ON}"
    except OSError:
        hint = GO_ON
    return AgentFixError(
        f"agent-fix failed ({type(error).__name__}: {str(error)[:200]}).", code=ExitCode.INTERNAL, hint=hint
    )


def _full(state: Path, error: Exception) -> bool:
    """Libraries and programs tell of a full disk in their own words, or only that something could not be written."""
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "disk is full" in str(error):
        return True
    try:
        return shutil.disk_usage(state).free < LEAST_FREE
    except OSError:
        return False


GO_ON = "Nothing is lost: the same command goes on where the job stood."
