"""Runs a job at the terminal: handles Ctrl-C and `jobs cancel`, and ends with an exit code.

The process ends as in a crash, without cleaning up, because all results are in the database already and every sandboxed
process dies with this one. What survives `kill -9` survives Ctrl-C.
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
from typing import NoReturn, TextIO

from app.cli.approval import ask_at_terminal
from app.cli.event_lines import EventLines
from app.cli.extras import missing_extra
from app.cli.local_context import LocalContext, LocalJob, LocalJobRunner
from app.cli.report import print_begin, print_refusal, report
from app.config.settings import process_environment
from app.core.errors import AgentFixError, ExitCode, OutputError, SandboxError
from app.core.failpoints import failpoint
from app.core.job import JobState, Journal, WaitingForUser, waiting_for
from app.core.result import JobResult
from app.jobs.job_queries import WORKED_ON
from app.server.shutdown import CANCELLED, InterruptHandler, end_process
from app.server.terminal import TerminalProgress, is_screen, may_colour

STOP_POLL_SECONDS = 0.4
MIN_FREE = 256 * 1024
"""Bytes on the disk of the state, below which an unforeseen error is put down to a full disk."""


async def run_local(
    local_context: LocalContext,
    find: Callable[[], LocalJob],
    *,
    as_json: bool,
    events: int | None = None,
    afterwards: Callable[[], None] | None = None,
) -> NoReturn:
    """Find the job, work on it, report, and end the process. Progress goes to the descriptor `events`, if given."""
    terminal = open_terminal(sys.stderr if as_json else sys.stdout) if events is None else EventLines(events)
    interruption = InterruptHandler(terminal)
    interruption.listen()
    try:
        with waiting_for(terminal, "the issue and the repository"):
            order = await asyncio.to_thread(find)
        interruption.job = order.job.id
        code = await LocalRun(local_context, order, terminal, as_json=as_json).run()
        if afterwards is not None:
            await asyncio.to_thread(afterwards)
    except AgentFixError as error:
        terminal.finish()
        print_refusal(error)
        code = error.code
    except Exception as error:  # noqa: BLE001  # one of the two places that catch everything: the boundary of the command line
        terminal.finish()
        refusal = _unforeseen(local_context, error)
        print_refusal(refusal)
        code = refusal.code
    end_process(code)


def open_terminal(stream: TextIO) -> TerminalProgress:
    """A live view where somebody watches on a screen, otherwise plain lines."""
    environment = process_environment()
    if not is_screen(stream, environment):
        return TerminalProgress(stream)
    from app.cli.live_view import LiveView  # noqa: PLC0415  # Rich is imported where somebody watches

    return LiveView(stream, colours=may_colour(environment))


class LocalRun:
    """One process at work on one job."""

    def __init__(
        self, local_context: LocalContext, order: LocalJob, terminal: TerminalProgress, *, as_json: bool
    ) -> None:
        self.local_context = local_context
        self.order = order
        self.terminal = terminal
        self.as_json = as_json

    @cached_property
    def runner(self) -> LocalJobRunner:
        """The job's runner. Raises AgentFixError if a chosen sandbox or recording is unavailable."""
        approve = partial(ask_at_terminal, self.terminal, out=self.order.out, editor=self.local_context.settings.editor)
        return self.local_context.runner(self.order, self.local_context.progress(self.order, self.terminal), approve)

    async def run(self) -> ExitCode:
        job, store = self.order.job, self.local_context.store
        row = store.get(job.id)
        if row is not None and row.final and row.result is not None:
            return await self._report(JobResult.model_validate(row.result))
        epoch = store.acquire(job.id)
        failpoint("acquired")
        with waiting_for(self.terminal, "the check of model and sandbox"):
            await self._make_sure(row.state if row else "queued")
        store.replace(job)
        print_begin(self.order, self.terminal, epoch=epoch)
        self.terminal.watch(job, self.runner.job_models.totals)
        watching = asyncio.ensure_future(self._obey_cancel())
        try:
            result = await self._work(resumed=epoch > 1)
        except AgentFixError as error:
            await self._release(error)
            raise
        finally:
            watching.cancel()
        return await self._report(result)

    async def _make_sure(self, state: JobState) -> None:
        """Check model and sandbox before anything costs money. A new job that is refused is deleted."""
        job, store = self.order.job.id, self.local_context.store
        try:
            self.runner.job_models.warm()
            await self.runner.check_models()
            await self.runner.prove_sandbox()
        except AgentFixError as error:
            if self.order.resumed:
                if state in WORKED_ON:  # it was interrupted, and this is why it cannot continue
                    store.enter(job, "paused", error.message)
                store.release(job)
            else:
                store.forget(job)
                with suppress(OSError):
                    (self.local_context.settings.state / "results" / job).rmdir()
            raise

    async def _work(self, *, resumed: bool) -> JobResult:
        async def work(_job_id: str, journal: Journal) -> JobResult:
            return await self.runner.work(journal)

        engine = await asyncio.to_thread(self.local_context.engine, self.order.job.id, work)
        await asyncio.to_thread(engine.launch)
        return await engine.carry_out(self.order.job.id, resumed=resumed)

    async def _release(self, error: AgentFixError) -> None:
        """Keep the job's state, and write out what is known so far for people to look at."""
        job, store = self.order.job, self.local_context.store
        state = error.state if isinstance(error, WaitingForUser) else "paused"
        store.enter(job.id, state, error.message)
        store.release(job.id)
        limited = error.code == ExitCode.LIMIT_REACHED
        partly = JobResult(
            exit_status="limit_reached" if limited else state,
            reason=error.message,
            hint=error.hint,
            plan=None if state == "awaiting_approval" else self.runner.plan,  # people may have edited that one's file
            error_code=error.code,
            usage=self.runner.job_models.totals(),
            model=job.model,
            trajectory=self.runner.keep_trajectory(),
        )
        await report(self.runner, self.order, partly, self.terminal, as_json=self.as_json)

    async def _report(self, result: JobResult) -> ExitCode:
        failpoint("report.begun")
        await report(self.runner, self.order, result, self.terminal, as_json=self.as_json)
        failpoint("report.done")
        self.local_context.store.mark_reported(self.order.job.id)
        try:
            await asyncio.to_thread(self.local_context.sweep)
        except SandboxError as error:
            self.terminal.report("warning", f"{error.message} {error.hint}")
        return result.exit_code

    async def _obey_cancel(self) -> None:
        """End the process once `jobs cancel` asked for it; a branch that is being created is finished first."""
        job, store = self.order.job.id, self.local_context.store
        stop_requested = partial(store.stop_requested, job)
        # No await between stopping the job and ending the process, so that no branch can be created in between.
        while not (await asyncio.to_thread(stop_requested) and store.stop(job, CANCELLED)):  # noqa: ASYNC110  # others say it
            await asyncio.sleep(STOP_POLL_SECONDS)
        self.terminal.finish()
        self.terminal.report("warning", f"job {job} was cancelled; no branch was made")
        end_process(ExitCode.STOPPED)


def _unforeseen(local_context: LocalContext, error: Exception) -> AgentFixError:
    """A missing library or a full disk as such; anything else is our own bug, with a report for a maintainer."""
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)):
        return missing
    if _full(local_context.settings.state, error):
        return OutputError("The disk is full.", code=ExitCode.DISK_FULL, hint=GO_ON)
    path = local_context.settings.state / "error-report.txt"
    try:
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
        hint = f"{path} says where. {GO_ON}"
    except OSError:
        hint = GO_ON
    return AgentFixError(
        f"agent-fix failed ({type(error).__name__}: {str(error)[:200]}).", code=ExitCode.INTERNAL, hint=hint
    )


def _full(state: Path, error: Exception) -> bool:
    """True for a full disk, which libraries and programs report in different ways."""
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "disk is full" in str(error):
        return True
    try:
        return shutil.disk_usage(state).free < MIN_FREE
    except OSError:
        return False


GO_ON = "Nothing is lost: run the same command to continue."
