"""`agent-fix jobs`: lists jobs, follows their logs, and stops them."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from app.cli.local_context import LocalContext
from app.cli.remote_jobs import age, print_patch, remote_jobs_command
from app.cli.result_screen import local_state
from app.config.settings import read_settings
from app.core.errors import AgentFixError, ExitCode
from app.core.money import MicroUSD
from app.core.text import count, plain
from app.jobs.store import JobRow
from app.llm.ledger import price, usd
from app.server.terminal import CANCELLED, TerminalProgress, end_process

if TYPE_CHECKING:
    from collections.abc import Callable

REMOTE_ONLY = ("start", "plan", "approve", "answer", "continue", "retry")
"""Actions on jobs that wait for people, or that only a server can start."""
POLL_SECONDS = 0.3
CANCEL_SECONDS = 15.0
"""How long `cancel` waits for the process that works on the job."""
BEGINNING_SECONDS = 60.0
"""How long a new job may be without a process before `logs -f` takes that for dead."""


def jobs_command(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "server", None):
        return remote_jobs_command(arguments)
    if arguments.action in REMOTE_ONLY:
        hint = "Pass it the address of the server: `agent-fix jobs --server URL …`."
        raise AgentFixError(f"`jobs {arguments.action}` works with a server.", code=ExitCode.USAGE, hint=hint)
    actions: dict[str, Callable[[LocalContext, argparse.Namespace], int]] = {
        "show": _show,
        "logs": _logs,
        "cancel": _cancel,
    }
    try:
        code = actions.get(arguments.action, _list)(LocalContext(read_settings(arguments.state)), arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        end_process(ExitCode.OK)  # the reader (`| head`) has seen enough
    return code


def _list(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    rows = local_context.store.newest(getattr(arguments, "n", 20))
    if getattr(arguments, "json", False):
        print(json.dumps([_summary(local_context, row) for row in rows], indent=2))
        return ExitCode.OK
    if not rows:
        print("No jobs yet. `agent-fix fix --repo PATH --issue FILE` starts one.")
        return ExitCode.OK
    print(f"{'JOB':<14}{'STATE':<26}{'AGE':<8}{'VERDICT':<10}{'COST':<15}TITLE")
    now = datetime.now(UTC)
    for row in rows:
        summary = _summary(local_context, row)
        title = row.job.task.issue.title[:60]
        state, verdict = summary["state"], summary["verdict"] or "-"
        cost = price(local_context.totals(row.job.id))
        print(f"{row.job.id:<14}{state:<26}{age(row.job.created_at, now):<8}{verdict:<10}{cost:<15}{title}")
    return ExitCode.OK


def _show(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    if arguments.patch:
        return _print_patch(local_context, row)
    log = list(local_context.store.progress_since(row.job.id))
    plan = next((line.text for line in reversed(log) if line.kind == "plan"), None)
    steps = list(dict.fromkeys(line.text.splitlines()[0] for line in log if line.kind == "step"))
    if arguments.json:
        details = {"task": row.job.task.model_dump(mode="json"), "budget": row.job.budget.model_dump(mode="json")}
        progress = {"model": row.job.model, "attempts": row.epoch, "plan": plan, "steps": steps, "result": row.result}
        print(json.dumps({**_summary(local_context, row), **details, **progress}, indent=2))
        return ExitCode.OK
    for name, value in _facts(local_context, row).items():
        print(f"{name:<11}{value}")
    if plan:
        print(f"\nplan\n{plan}")
    print(f"\nsteps ({len(steps)})")
    for text in steps:
        print(f"  {text}")
    return ExitCode.OK


def _print_patch(local_context: LocalContext, row: JobRow) -> int:
    """Print the job's change as a diff for `git apply`, published or not."""
    digest = (row.result or {}).get("diff")
    if not digest:
        print(f"Job {row.job.id} has no change.", file=sys.stderr)
        return ExitCode.NO_CHANGE
    print_patch(local_context.blob(row.job.id, digest))
    return ExitCode.OK


def _facts(local_context: LocalContext, row: JobRow) -> dict[str, str]:
    job, summary, totals = row.job, _summary(local_context, row), local_context.totals(row.job.id)
    return {
        "job": job.id,
        "issue": job.task.issue.title,
        "repository": job.task.repository,
        "base": f"{job.task.base_ref} ({job.task.base[:10]})",
        "branch": summary["branch"] or "-",
        "model": job.model_text,
        "runner": job.runner,
        "state": summary["state"] + (f": {row.reason}" if row.reason else ""),
        "verdict": summary["verdict"] or "-",
        "cost": f"{price(totals)} of {usd(job.budget.usd)} in {count(totals.calls, 'model call')}",
        "begun": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, started {count(row.epoch, 'time')}",
    }


def _logs(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    terminal = TerminalProgress(sys.stdout)
    last_seq = 0
    while True:
        # The state is read before the log, so that no line written before the job's end is missed.
        row = local_context.store.find(row.job.id)
        for line in local_context.store.progress_since(row.job.id, after=last_seq):
            at = line.at.replace(tzinfo=UTC)
            if arguments.json:
                print(json.dumps({"at": at.isoformat(), "kind": line.kind, "text": line.text}), flush=True)
            else:
                terminal.stamp = f"{at.astimezone():%H:%M:%S} "
                terminal.report(line.kind, line.text)
            last_seq = line.seq
        if not arguments.follow or terminal.closed or _is_over(row):
            _print_state(local_context, row, as_json=arguments.json)
            return ExitCode.OK
        time.sleep(POLL_SECONDS)


def _print_state(local_context: LocalContext, row: JobRow, *, as_json: bool) -> None:
    """The state in which the log was read, and the reason for it."""
    summary = _summary(local_context, row)
    if as_json:
        print(json.dumps({"state": summary["state"], "reason": row.reason, "verdict": summary["verdict"]}))
        return
    verdict = f", {summary['verdict']}" if summary["verdict"] else ""
    print(plain(f"{summary['state']}{verdict}{f': {row.reason}' if row.reason else ''}"))


def _is_over(row: JobRow) -> bool:
    """True if the log is complete, unless the command is given again."""
    beginning = row.state == "queued" and (datetime.now(UTC) - row.job.created_at).total_seconds() < BEGINNING_SECONDS
    return row.final or (row.live_owner is None and not beginning)


def _cancel(local_context: LocalContext, arguments: argparse.Namespace) -> int:
    row = local_context.store.find(arguments.job)
    resting = row.rest_pending and row.live_owner is not None
    if row.final and not resting:
        _answer(arguments, row, f"Job {row.job.id} has already ended: {local_state(row.state)}.")
        return ExitCode.OK
    local_context.store.request_stop(row.job.id)
    row = _when_left(local_context, row)
    if row.live_owner is not None:
        _answer(arguments, row, f"Job {row.job.id} was asked to stop; its process has not responded yet.")
        return ExitCode.OK
    if resting:
        _answer(arguments, row, f"The remaining tests of job {row.job.id} are stopped; branch and verdict stay.")
        return ExitCode.OK
    perhaps = f" Its branch {row.job.branch} may already exist." if row.state == "publishing" else ""
    if perhaps:
        local_context.store.enter(row.job.id, "stopped", CANCELLED)
    local_context.store.stop(row.job.id, CANCELLED)
    local_context.sweep()
    row = local_context.store.find(row.job.id)
    ended = "is stopped" if row.state == "stopped" else f"had already ended: {local_state(row.state)}"
    _answer(arguments, row, f"Job {row.job.id} {ended}.{perhaps}")
    return ExitCode.OK


def _answer(arguments: argparse.Namespace, row: JobRow, sentence: str) -> None:
    """What became of a request, as a sentence or as JSON."""
    document = {"job": row.job.id, "state": local_state(row.state), "reason": row.reason, "message": sentence}
    print(json.dumps(document, indent=2) if arguments.json else sentence)


def _when_left(local_context: LocalContext, row: JobRow) -> JobRow:
    """The job once no process works on it, or its current state after a while."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while row.live_owner is not None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        row = local_context.store.find(row.job.id)
    return row


class JobSummaryJson(TypedDict):
    """A job in a list. `cost` is in micro-dollars."""

    job: str
    title: str
    state: str
    reason: str
    verdict: str | None
    branch: str | None
    cost: MicroUSD
    created_at: str


def _summary(local_context: LocalContext, row: JobRow) -> JobSummaryJson:
    """Marks jobs whose process died, as opposed to those in progress."""
    result = row.result or {}
    interrupted = not row.final and row.live_owner is None and row.state not in {"paused", "awaiting_approval"}
    state = local_state(row.state)
    return {
        "job": row.job.id,
        "title": row.job.task.issue.title,
        "state": f"{state} (interrupted)" if interrupted else state,
        "reason": row.reason,
        "verdict": (result.get("verification") or {}).get("verdict"),
        "branch": result.get("branch") or None,
        "cost": local_context.totals(row.job.id).cost,
        "created_at": row.job.created_at.isoformat(),
    }
