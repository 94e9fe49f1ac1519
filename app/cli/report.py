"""Prints what a person sees before and after a job, and writes the files in OUT."""

import asyncio
import json
import sys
from typing import Any

from app.cli.approval import PLAN_FILE
from app.cli.local_context import LocalJob, LocalJobRunner
from app.cli.result_screen import CHANGE, local_state, result_screen
from app.core.errors import AgentFixError
from app.core.job import PUBLISHED, Job
from app.core.plan_text import render_plan_file
from app.core.result import JobResult
from app.core.task_kind import note_of
from app.core.text import plain
from app.core.verification import Verification
from app.github.base import NewPullRequest
from app.llm.ledger import usd
from app.publish.pull_request_content import pull_request_content, shown_model
from app.publish.pull_request_text import pull_request_body, pull_request_title
from app.server.terminal import TerminalProgress


def print_begin(order: LocalJob, terminal: TerminalProgress, *, epoch: int) -> None:
    """Print who works on what, with which model, in which sandbox, for how much."""
    job, task = order.job, order.job.task
    recorded = " (recorded answers, no model is called)" if job.model.startswith("recorded/") else ""
    goes_on = f", resumed (attempt {epoch})" if epoch > 1 else ""
    terminal.report("state", f"agent-fix · job {job.id}{goes_on}")
    terminal.report("note", f"{task.repository} at {task.base_ref} ({task.base[:10]})")
    terminal.report("note", f"issue: {task.issue.title}")
    limits = f"{usd(job.budget.usd)}, {job.budget.steps} steps, {job.budget.minutes:g} min"
    plans = f", plans by {shown_model(job.models.plan)}" if job.models.plan else ""
    terminal.report(
        "note", f"model {shown_model(job.model)}{recorded}{plans} · sandbox {job.sandbox} · at most {limits}"
    )
    for note in filter(None, (note_of(task), _attempts(job), *order.local_notes, *order.notes)):
        terminal.report("note", note)
    if job.sandbox == "none":
        terminal.report(
            "warning",
            "no sandbox: the repository's code and the model's commands run on this machine with your permissions",
        )


def _attempts(job: Job) -> str:
    return f"at most {job.attempts} attempts, until one is proved" if job.attempts > 1 else ""


def print_refusal(error: AgentFixError) -> None:
    """One line and what to do about it."""
    print(f"agent-fix: {plain(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"           {plain(error.hint)}", file=sys.stderr)


async def report(
    runner: LocalJobRunner, order: LocalJob, result: JobResult, terminal: TerminalProgress, *, as_json: bool
) -> None:
    """Write the files into OUT and print the outcome. Idempotent."""
    document = job_document(order, result)
    files: dict[str, str | bytes] = {"job.json": json.dumps(document, indent=2) + "\n"}
    if result.diff:
        files[CHANGE] = runner.blobs.get(result.diff)
    if result.trajectory:
        files["trajectory.jsonl"] = runner.blobs.get(result.trajectory).decode()
    if result.plan is not None:
        files[PLAN_FILE] = render_plan_file(result.plan)
    for name, content in files.items():
        await asyncio.to_thread(runner.folder.write, name, content)
    if result.exit_status in PUBLISHED and result.verification is not None:
        await runner.forge.ensure_pull_request(pull_request(order, result, result.verification))
    _print_end(order, result, terminal)
    if as_json:
        print(json.dumps(document, indent=2))


def _print_end(order: LocalJob, result: JobResult, terminal: TerminalProgress) -> None:
    for line in result_screen(order, result):
        terminal.show(line.text, line.style)


def pull_request(order: LocalJob, result: JobResult, verification: Verification) -> NewPullRequest:
    """The draft as a reviewer sees it."""
    body = pull_request_body(pull_request_content(order.job, result, verification))
    title = pull_request_title(order.job.task, order.config)
    return NewPullRequest(branch=result.branch, base=order.job.task.base_ref, title=title, body=body)


def job_document(order: LocalJob, result: JobResult) -> dict[str, Any]:
    """`job.json`: what was requested, decided, run and spent. `usage.cost` is in micro-dollars."""
    job = order.job
    return {
        "job": job.id,
        "exit_status": local_state(result.exit_status),
        "reason": result.reason,
        "hint": result.hint,
        "task": job.task.model_dump(mode="json"),
        "model": job.model,
        "runner": job.runner,
        "sandbox": job.sandbox,
        "budget": job.budget.model_dump(mode="json"),
        "created_at": job.created_at.isoformat(),
        "plan": result.plan.model_dump(mode="json") if result.plan else None,
        "verification": result.verification.model_dump(mode="json") if result.verification else None,
        "summary": result.summary,
        "branch": result.branch,
        "commit": result.commit,
        "changes": [change.model_dump(mode="json") for change in result.changes],
        "patch": CHANGE if result.diff else "",
        "usage": result.usage.model_dump(mode="json"),
        "turns": result.turns,
        "attempts": [attempt.model_dump(mode="json") for attempt in result.attempts],
        "seconds": result.seconds,
        "notes": list(result.notes),
        "warnings": list(result.warnings),
    }
