"""What a person sees before and after a job, and the files it leaves in OUT."""

import asyncio
import json
import sys
from typing import Any

from app.bootstrap.local import LocalDesk, Order
from app.entrypoints.approval import PLAN_FILE
from app.entrypoints.proof_lines import proof_lines
from app.entrypoints.terminal import TerminalProgress
from app.errors import AgentFixError
from app.forge.base import PullRequest
from app.job import Job
from app.model.budget import price, usd
from app.plan_text import render_plan_file
from app.publish.comments import pull_request_body, pull_request_title
from app.publish.facts import facts_of, shown_model
from app.publish.several import tried_in_words
from app.result import Result
from app.task_kind import note_of
from app.text import one_line, plain
from app.verify.facts import Verification

PUBLISHED = ("pr_opened", "pr_updated")
CHANGE = "change.patch"


def say_begin(order: Order, terminal: TerminalProgress, *, epoch: int) -> None:
    """Who works on what, with which model, in which sandbox, for how much."""
    job, task = order.job, order.job.task
    recorded = " (recorded answers, no model is asked)" if job.model.startswith("recorded/") else ""
    goes_on = f", taken up again (attempt {epoch})" if epoch > 1 else ""
    terminal.say("state", f"agent-fix · job {job.id}{goes_on}")
    terminal.say("note", f"{task.repository} at {task.base_ref} ({task.base[:10]})")
    terminal.say("note", f"issue: {task.issue.title}")
    limits = f"{usd(job.budget.usd)}, {job.budget.steps} steps, {job.budget.minutes:g} min"
    plans = f", plans by {shown_model(job.models.plan)}" if job.models.plan else ""
    terminal.say("note", f"model {shown_model(job.model)}{recorded}{plans} · sandbox {job.sandbox} · at most {limits}")
    for note in filter(None, (note_of(task), _attempts(job), *order.told, *order.notes)):
        terminal.say("note", note)
    if job.sandbox == "none":
        terminal.say(
            "warning", "no sandbox: the repository's code and the model's commands run as you, on this machine"
        )


def _attempts(job: Job) -> str:
    return f"at most {job.attempts} attempts, until one is proved" if job.attempts > 1 else ""


def say_refusal(error: AgentFixError) -> None:
    """One line and what to do about it."""
    print(f"agent-fix: {plain(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"           {plain(error.hint)}", file=sys.stderr)


async def report(desk: LocalDesk, order: Order, result: Result, terminal: TerminalProgress, *, as_json: bool) -> None:
    """Write the files into OUT and say what came out. The same twice leaves the same."""
    document = job_document(order, result)
    files: dict[str, str | bytes] = {"job.json": json.dumps(document, indent=2) + "\n"}
    if result.diff:
        files[CHANGE] = desk.blobs.get(result.diff)
    if result.trajectory:
        files["trajectory.jsonl"] = desk.blobs.get(result.trajectory).decode()
    if result.plan is not None:
        files[PLAN_FILE] = render_plan_file(result.plan)
    for name, content in files.items():
        await asyncio.to_thread(desk.folder.write, name, content)
    if result.exit_status in PUBLISHED and result.verification is not None:
        await desk.forge.ensure_pull_request(pull_request(order, result, result.verification))
    _say_end(order, result, terminal)
    if as_json:
        print(json.dumps(document, indent=2))


def _say_end(order: Order, result: Result, terminal: TerminalProgress) -> None:
    if result.verification is not None:
        for line in proof_lines(result.verification):
            terminal.say("verification", line)
    for tried in result.attempts:
        terminal.say("verification", f"attempt {tried.number}     {one_line(tried_in_words(tried))[:160]}")
    if result.exit_status == "answered" and result.plan is not None:
        terminal.say("note", f"nothing was changed; {order.out / PLAN_FILE} can be edited and passed with --plan")
    if result.branch:
        terminal.say("note", f"branch {result.branch} ({result.commit[:10]}) in {order.job.task.repository}")
    elif result.diff:
        terminal.say("note", f"no branch was made; the change is kept in {order.out / CHANGE}, for `git apply`")
    if result.exit_status == "no_change" and result.summary:
        terminal.say("note", f"the agent says, and nobody has checked it: {one_line(result.summary)[:600]}")
    usage = result.usage
    if usage.calls:
        cached = f", {usage.cached_share:.0%} cached" if usage.cached_tokens else ""
        tokens = f"{usage.prompt_tokens:,} prompt tokens{cached}, {usage.completion_tokens:,} completion tokens"
        terminal.say("cost", f"{price(usage)}, {usage.calls} model calls ({tokens})")
    terminal.say("note", f"{order.out}/")
    verdict = result.verification.verdict if result.verification else result.exit_status
    reason = f": {result.reason}" if result.reason and result.exit_status not in PUBLISHED else ""
    terminal.say("state", f"{verdict}{reason}")
    terminal.say("note", result.hint)


def pull_request(order: Order, result: Result, verification: Verification) -> PullRequest:
    """The draft as a reviewer sees it."""
    body = pull_request_body(facts_of(order.job, result, verification))
    title = pull_request_title(order.job.task, order.config)
    return PullRequest(branch=result.branch, base=order.job.task.base_ref, title=title, body=body)


def job_document(order: Order, result: Result) -> dict[str, Any]:
    """`job.json`: what was asked, decided, run and spent. `usage.cost` is in micro-dollars."""
    job = order.job
    return {
        "job": job.id,
        "exit_status": result.exit_status,
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
