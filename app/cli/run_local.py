"""Runs a job at the terminal: handles Ctrl-C and `jobs cancel`, and ends with an exit code.

The process ends as in a crash, without cleaning up, because all results are in the database already and every sandboxed
process dies with this one. What survives `kill -9` survives Ctrl-C.
"""

import asyncio
import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TextIO

from app.cli import missing_extra
from app.cli.local_context import LocalContext, LocalJob
from app.cli.result_screen import CHANGE, PLAN_FILE, local_state, rest_lines, result_screen
from app.config.settings import process_environment
from app.core.errors import AgentFixError, ExitCode, OutputError, SandboxError
from app.core.failpoints import failpoint
from app.core.job import PUBLISHED, JobResult, JobState, Journal, ProgressKind, WaitingForUser, waiting_for
from app.core.model_usage import usd
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.core.task import note_of
from app.core.verification import Verification
from app.github.base import NewPullRequest
from app.jobs.status import WORKED_ON
from app.jobs.store import StoredProgress
from app.llm.sql_ledger import SqlLedger
from app.pipeline.wiring.job_runner import STARTS_OVER, JobRunner
from app.publish.change_verdict_text import change_verdict
from app.publish.pull_request_text import PullRequestContent, pull_request_body, pull_request_title, shown_model
from app.publish.verification_text import Caps
from app.server.terminal import (
    CANCELLED,
    InterruptHandler,
    TerminalProgress,
    end_process,
    is_screen,
    may_colour,
    print_error,
)

if TYPE_CHECKING:
    from app.jobs.engine import DurableEngine

VERDICT_FILE = "verdict.md"
OF_VERDICT = Caps(1_200, 20, 600)


async def ask_at_terminal(terminal: TerminalProgress, plan: Plan, *, out: Path, editor: str) -> Plan:
    """The accepted plan.

    Raises WaitingForUser if nobody can be asked or the answer is no; OUT keeps the plan.
    """
    path = out / PLAN_FILE
    path.write_text(render_plan_file(plan), "utf-8")
    if sys.stdin is None or not sys.stdin.isatty():
        hint = f"Edit {path} and pass it with --plan, or use --approve in a terminal."
        raise WaitingForUser(
            "awaiting_approval", "The plan is waiting for approval.", code=ExitCode.AWAITING_APPROVAL, hint=hint
        )
    with terminal.paused():
        return await _ask_until_decided(plan, path, editor)


async def _ask_until_decided(plan: Plan, path: Path, editor: str) -> Plan:
    while True:
        answer = await asyncio.to_thread(_ask)
        if answer in {"y", "yes"}:
            return plan
        if answer in {"e", "edit"}:
            plan = await asyncio.to_thread(_edit, path, editor, plan)
        elif answer in {"n", "no"}:
            hint = f"The plan is in {path}. Run the same command to be asked again, or edit it and pass --plan."
            raise WaitingForUser(
                "awaiting_approval", "The plan was not approved.", code=ExitCode.AWAITING_APPROVAL, hint=hint
            )


def _ask() -> str:
    """Ask once; end of input means no. The question is not part of the `--json` output."""
    print("Continue with this plan? [y]es, [e]dit, [n]o: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip().lower() if line else "no"


def _edit(path: Path, editor: str, plan: Plan) -> Plan:
    """The plan after editing. A plan or an editor that cannot be used is reported, and the last good plan is kept."""
    try:
        subprocess.run([*shlex.split(editor), str(path)], check=False)
        return parse_plan_file(path.read_text("utf-8"))
    except AgentFixError as error:
        reason = error.message
    except (OSError, ValueError) as error:  # no such editor, a quote without its end, another encoding
        reason = f"Editing with {editor!r} failed: {error}."
    print(f"{reason} The plan was not changed.", file=sys.stderr)
    return plan


def print_begin(order: LocalJob, terminal: TerminalProgress, *, epoch: int) -> None:
    """Print who works on what, with which model, in which sandbox, for how much."""
    job, task = order.job, order.job.task
    recorded = " (recorded answers, no model is called)" if job.model.startswith("recorded/") else ""
    goes_on = f", resumed (attempt {epoch})" if epoch > 1 else ""
    terminal.report("state", f"agent-fix · job {job.id}{goes_on}")
    terminal.report("note", f"{task.repository} at {task.base_ref} ({task.base[:10]})")
    if job.change:
        terminal.report("note", f"change {job.change[:10]}: nothing in the repository is changed")
    terminal.report("note", f"issue: {task.issue.title}")
    limits = f"{usd(job.budget.usd)}, {job.budget.steps} turns, {job.budget.minutes:g} min"
    plans = f", plans by {shown_model(job.models.plan)}" if job.models.plan else ""
    terminal.report(
        "note", f"model {shown_model(job.model)}{recorded}{plans} · sandbox {job.sandbox} · at most {limits}"
    )
    attempts = f"at most {job.attempts} attempts, until one is proved" if job.attempts > 1 else ""
    for note in filter(None, (note_of(task), attempts, *order.local_notes, *order.notes)):
        terminal.report("note", note)
    if job.sandbox == "none":
        terminal.report(
            "warning",
            "no sandbox: the repository's code and the model's commands run on this machine with your permissions",
        )


def pull_request(order: LocalJob, result: JobResult, verification: Verification) -> NewPullRequest:
    """The draft as a reviewer sees it."""
    body = pull_request_body(PullRequestContent(order.job, result, verification))
    title = pull_request_title(order.job.task, order.config)
    return NewPullRequest(branch=result.branch, base=order.job.task.base_ref, title=title, body=body)


def job_document(order: LocalJob, result: JobResult) -> dict[str, Any]:
    """`job.json`: what was requested, decided, run and spent. `usage.cost` is in micro-dollars."""
    job = order.job
    return {
        "job": job.id,
        "exit_status": local_state(result.exit_status),
        **job.model_dump(mode="json", include={"task", "model", "runner", "sandbox", "budget"}),
        "created_at": job.created_at.isoformat(),
        **result.model_dump(mode="json", include=_RESULT),
        "patch": CHANGE if result.diff else "",
    }


_RESULT = {
    *("reason", "hint", "plan", "examples", "verification", "summary", "branch", "commit", "changes"),
    *("usage", "turns", "attempts", "seconds", "notes", "warnings"),
}
"""What `job.json` says of a result."""


Loudness = Literal["", "quiet", "verbose"]
"""How much of a job's progress is printed; empty for what suits the terminal."""


class EventLines(TerminalProgress):
    """Reports to a file descriptor instead of the terminal. A reader that has gone is not an error."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(sys.stderr, colours=False)
        self._events = os.fdopen(descriptor, "w", encoding="utf-8")

    def report(self, kind: ProgressKind, text: str) -> None:
        with self._lock:
            try:
                self._events.write(json.dumps({"kind": kind, "text": text}) + "\n")
                self._events.flush()
            except BrokenPipeError:
                self.closed = True


STOP_POLL_SECONDS = 0.4
MIN_FREE = 256 * 1024
"""Bytes on the disk of the state, below which an unforeseen error is put down to a full disk."""


async def run_local(
    local_context: LocalContext,
    find: Callable[[], LocalJob],
    *,
    as_json: bool,
    events: int | None = None,
    loudness: Loudness = "",
    afterwards: Callable[[], None] | None = None,
) -> NoReturn:
    """Find the job, work on it, report, and end the process. Progress goes to the descriptor `events`, if given."""
    stream = sys.stderr if as_json else sys.stdout
    terminal = EventLines(events) if events is not None else open_terminal(stream, loudness)
    interruption = InterruptHandler(terminal)
    interruption.listen()
    run: LocalRun | None = None
    try:
        with waiting_for(terminal, "the issue and the repository"):
            order = await asyncio.to_thread(find)
        interruption.job = order.job.id
        run = LocalRun(local_context, order, terminal, interruption, as_json=as_json)
        code = await run.run()
        if afterwards is not None:
            await asyncio.to_thread(afterwards)
    except AgentFixError as error:
        terminal.finish()
        code = print_error(error)
    except Exception as error:  # noqa: BLE001  # one of the two places that catch everything: the boundary of the command line
        terminal.finish()
        code = print_error(await _ended(run, _unforeseen(local_context, error)))
    end_process(code)


async def _ended(run: "LocalRun | None", error: AgentFixError) -> AgentFixError:
    """The error as people are told it; what the job has is kept and written out if that can still be done."""
    (ended,) = await asyncio.gather(run.end(error), return_exceptions=True) if run is not None else (error,)
    return ended if isinstance(ended, AgentFixError) else error


class QuietTerminal(TerminalProgress):
    """Shows the result only."""

    def report(self, kind: ProgressKind, text: str) -> None:
        """Print nothing but warnings."""
        if kind == "warning":
            super().report(kind, text)


def open_terminal(stream: TextIO, loudness: Loudness = "") -> TerminalProgress:
    """A live view on a terminal, otherwise plain lines; only the result if it is to be quiet."""
    environment = process_environment()
    if loudness == "quiet":
        return QuietTerminal(stream)
    if loudness == "verbose" or not is_screen(stream, environment):
        return TerminalProgress(stream)
    from app.cli.live_view import LiveView  # noqa: PLC0415  # Rich is imported only for a terminal

    return LiveView(stream, colours=may_colour(environment))


class LocalRun:
    """One process at work on one job."""

    def __init__(
        self,
        local_context: LocalContext,
        order: LocalJob,
        terminal: TerminalProgress,
        interruption: InterruptHandler,
        *,
        as_json: bool,
    ) -> None:
        self.local_context = local_context
        self.order = order
        self.terminal = terminal
        self.interruption = interruption
        self.as_json = as_json
        self._engine: DurableEngine[JobResult] | None = None
        self._so_far: JobResult | None = None

    @cached_property
    def runner(self) -> JobRunner:
        """The job's runner. Raises AgentFixError if a chosen sandbox or recording is unavailable."""
        approve = partial(ask_at_terminal, self.terminal, out=self.order.out, editor=self.local_context.settings.editor)
        progress = StoredProgress(self.local_context.store, self.order.job.id, self.terminal)
        return self.local_context.runner(self.order, progress, approve)

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
        self.terminal.watch(job, self.runner.job_models.ledger.totals)
        watching = asyncio.ensure_future(self._watch_for_cancel())
        try:
            result = await self._work(resumed=epoch > 1)
        except AgentFixError as error:
            raise await self.end(error) from error
        finally:
            watching.cancel()
        return await self._report(result)

    async def end(self, error: AgentFixError) -> AgentFixError:
        """Keep the job's state, and write out what is known so far; returns the error as people are told it."""
        row = await asyncio.to_thread(self.local_context.store.get, self.order.job.id)
        known = JobResult.read(row.result if row else None)
        if row is None:
            return error
        if known is not None and known.unpublished:
            error = AgentFixError(
                f"The change passed verification, but could not be published: {error.message}",
                code=error.code,
                hint=f"{error.hint} {KEPT}".strip(),
            )
        if not row.final:
            await self._release(error, known if known and known.unpublished else None)
        return error

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
                    self._enter("paused", error, error.message)
                store.release(job)
            else:
                store.forget(job)
                with suppress(OSError):
                    (self.local_context.settings.state / "results" / job).rmdir()
            raise

    async def _work(self, *, resumed: bool) -> JobResult:
        engine, job = await self._launched(), self.order.job.id
        if await engine.starts_over(job):
            await asyncio.to_thread(SqlLedger(self.local_context.store.engine, job, 0).set_aside)
            self.terminal.report("warning", STARTS_OVER)
        return await engine.carry_out(job, resumed=resumed)

    async def _launched(self) -> "DurableEngine[JobResult]":
        async def work(name: str, journal: Journal) -> JobResult:
            if name == self.order.job.id or self._so_far is None:
                return await self.runner.work(journal)
            return await self.runner.finish_rest(self._so_far, journal, self._keep)

        if self._engine is None:
            self._engine = await asyncio.to_thread(self.local_context.engine, self.order.job.id, work)
            await asyncio.to_thread(self._engine.launch)
        return self._engine

    def _keep(self, result: JobResult) -> None:
        self._so_far = result

    async def _with_rest(self, result: JobResult) -> JobResult:
        """Write out what is known already, then run the rest of the suite, until Ctrl-C at most."""
        job, store = self.order.job, self.local_context.store
        await self._write_files(result)
        failpoint("rest.begun")
        self._so_far, self.interruption.instead = result, asyncio.Event()
        store.acquire(job.id)
        for line in rest_lines(result):
            self.terminal.show(line.text, line.style)
        rest = asyncio.ensure_future((await self._launched()).carry_out(f"{job.id}.rest", resumed=True))
        ends = [asyncio.ensure_future(self.interruption.instead.wait()), asyncio.ensure_future(self._cancelled())]
        await asyncio.wait({rest, *ends}, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if rest.done() and (error := rest.exception()) is not None:
            reason = error.message if isinstance(error, AgentFixError) else f"It ended with {type(error).__name__}."
            ended = self._so_far.with_rest_state("given_up", reason)
        elif rest.done():
            ended = rest.result()
        else:
            ended = self._so_far.with_rest_state("stopped", "They were interrupted.")
        self.interruption.instead = None
        store.finish(job.id, ended.exit_status, ended.reason, ended.model_dump(mode="json"))
        return ended

    async def _cancelled(self) -> None:
        while not await asyncio.to_thread(self.local_context.store.stop_requested, self.order.job.id):  # noqa: ASYNC110  # others say it
            await asyncio.sleep(STOP_POLL_SECONDS)

    async def _release(self, error: AgentFixError, verified: JobResult | None) -> None:
        """Keep the job's state, and write out what is known so far for people to look at."""
        job, store = self.order.job, self.local_context.store
        state = error.state if isinstance(error, WaitingForUser) else "paused"
        limited = error.code == ExitCode.LIMIT_REACHED
        so_far = partial(self.runner.so_far, error.message, state, at_limit=limited)
        found = verified if verified is not None else await asyncio.to_thread(so_far)
        reason = error.message if verified else found.reason
        if verified is None and (found.diff or found.verification):
            store.store_result(job.id, found.model_copy(update={"error_code": error.code}).model_dump(mode="json"))
        update = {
            "exit_status": "limit_reached" if limited else state,
            "reason": reason,
            "hint": error.hint,
            "plan": None if state == "awaiting_approval" else self.runner.plan,  # people may have edited its file
            "error_code": error.code,
            "usage": self.runner.job_models.ledger.totals(),
            "trajectory": self.runner.keep_trajectory(),
        }
        partly = found.model_copy(update=update)
        self._enter(state, error, reason)
        store.release(job.id)
        try:
            await self._show(partly)
        except OutputError as unwritable:
            self.terminal.report("warning", f"{unwritable.message} {unwritable.hint}")

    def _enter(self, state: JobState, error: AgentFixError, reason: str) -> None:
        """Set the job's state. A paused job's result gets the error's exit code and reason.

        A change that a limit cut short keeps that limit's reason, whatever pauses the job later.
        """
        job, store = self.order.job.id, self.local_context.store
        if state == "paused":
            row = store.get(job)
            known = JobResult.read(row.result if row else None) or JobResult(exit_status=state)
            keeps = (known.diff or known.verification) and not known.unpublished
            update = {"error_code": error.code, "reason": known.reason if keeps else reason}
            store.store_result(job, known.model_copy(update=update).model_dump(mode="json"))
        store.enter(job, state, reason)

    async def _report(self, result: JobResult) -> ExitCode:
        failpoint("report.begun")
        if result.rest_pending:
            result = await self._with_rest(result)
        await self._show(result)
        failpoint("report.done")
        self.local_context.store.mark_reported(self.order.job.id)
        try:
            await asyncio.to_thread(self.local_context.sweep)
        except SandboxError as error:
            self.terminal.report("warning", f"{error.message} {error.hint}")
        return result.exit_code

    async def _show(self, result: JobResult) -> None:
        """Write the files into OUT and print the outcome. Idempotent."""
        document = await self._write_files(result)
        for line in result_screen(self.order, result):
            self.terminal.show(line.text, line.style)
        if self.as_json:
            print(json.dumps(document, indent=2))

    async def _write_files(self, result: JobResult) -> dict[str, Any]:
        """Write the files into OUT; returns the contents of `job.json`."""
        order, blobs = self.order, self.runner.blobs
        document: dict[str, Any] = self.local_context.store.redactor.redact_all(job_document(order, result))
        files: dict[str, str | bytes] = {"job.json": json.dumps(document, indent=2) + "\n"}
        if result.diff:
            files[CHANGE] = blobs.get(result.diff)
        if result.trajectory:
            files["trajectory.jsonl"] = blobs.get(result.trajectory).decode()
        if result.plan is not None:
            files[PLAN_FILE] = render_plan_file(result.plan)
        folder = self.local_context.folder(order.out)
        for name, content in files.items():
            await asyncio.to_thread(folder.write, name, content)
        if result.exit_status == "verified" and result.verification is not None:
            text = change_verdict(PullRequestContent(order.job, result, result.verification), OF_VERDICT)
            await asyncio.to_thread(folder.write, VERDICT_FILE, f"{text}\n")
        if result.exit_status in PUBLISHED and result.verification is not None:
            draft = pull_request(order, result, result.verification)
            await self.local_context.forge(order).ensure_pull_request(draft)
        return document

    async def _watch_for_cancel(self) -> None:
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


KEPT = "The change is kept, and publishing it again costs no model call."
GO_ON = "Nothing was lost: run the same command again to continue."
