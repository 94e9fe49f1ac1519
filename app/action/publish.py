"""The publish step: publish what was requested, report how the job ended, and set the step's outputs."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.action.context import (
    ActionContext,
    DrainLimits,
    drain,
    job_of_this_run,
    open_workflow,
    unpublished_change_note,
)
from app.action.outputs import CANCELLED, fail, write_outputs, write_summary
from app.action.progress import publishing_mark
from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.job import FINAL, WAITING, JobState
from app.core.money import dollars
from app.core.plan_text import render_plan_file
from app.core.redaction import Redactor
from app.core.result import JobResult
from app.core.text import plain
from app.github.errors import NoAccess
from app.jobs.job_queries import JobWithContext
from app.jobs.store import JobBlobs
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import OpenDraftPullRequest
from app.publish.summary import step_summary
from app.server.wiring.context import ServerContext
from app.server.wiring.publisher import PublisherContext


def write_record(workflow: Workflow, server_context: ServerContext, each: JobWithContext) -> Path:
    """Write log, result, plan, trajectory, patch and pull request text of a job, redacted; returns the directory."""
    job, store = each.job, server_context.job_store()
    place = workflow.temp / f"agent-fix-{job.id}"
    place.mkdir(parents=True, exist_ok=True)
    redactor = Redactor(workflow.settings.secrets)

    def write(name: str, text: str, *, errors: str = "replace") -> None:
        (place / name).write_text("\n".join(map(redactor.redact, text.split("\n"))), "utf-8", errors=errors)

    log = (f"{line.at:%H:%M:%S} {line.kind:<12} {plain(line.text)}" for line in store.progress_since(job.id))
    write("log.txt", "\n".join(log) + "\n")
    result = JobResult.model_validate(each.row.result) if each.row.result else None
    summary = {"job": job.id, "state": each.row.state, "reason": each.row.reason}
    write("job.json", json.dumps({**summary, "result": each.row.result}, indent=2) + "\n")
    if result is not None and result.plan is not None:
        write("plan.md", render_plan_file(result.plan))
    blobs = JobBlobs(server_context.engine, job.id)
    if result is not None and result.trajectory:
        write("trajectory.jsonl", blobs.get(result.trajectory).decode(errors="replace"))
    if result is not None and result.diff:
        write("change.patch", blobs.get(result.diff).decode(errors="surrogateescape"), errors="surrogateescape")
    for effect in (requested.effect for requested in server_context.outbox.of(job.id)):
        if isinstance(effect, OpenDraftPullRequest):
            write("pull-request.md", f"# {effect.title}\n\n{effect.body}")
    return place


PUBLISHING, LAST_WORDS, BRIEFLY = 900.0, 120.0, 10.0
"""Seconds to wait for GitHub."""
RATE_LIMIT_RESET = 3_700.0
"""All workflows of a repository share 1,000 requests an hour; then GitHub names the time to wait for."""
AFTER_CANCEL = 150.0
"""GitHub kills processes five minutes after a cancel; the last update is made after these seconds."""
ENDED_EARLY: Final = "The workflow run ended before the job did; see its log."
TOO_LATE: Final = "GitHub did not accept the change in time."
CALM: Final[frozenset[JobState]] = frozenset(
    {"pr_opened", "pr_updated", "answered", "no_change", "stopped", "needs_input", "awaiting_approval", "paused"}
)
"""States that do not fail the workflow: a comment told people what to do next."""


async def publish(workflow: Workflow) -> int:
    publishing_mark(workflow.settings).touch()
    async with open_workflow(workflow) as action_context:
        publisher_context = action_context.publisher_context
        found = job_of_this_run(publisher_context.server_context)
        if found is not None:
            _end_what_was_left(publisher_context, found, workflow.solved)
        refused = await _refused(action_context)
        if refused is not None:
            fail(workflow, refused)
        try:
            await drain(publisher_context, DrainLimits(BRIEFLY) if refused else _limits(workflow), everything=True)
        except AgentFixError:
            reason = refused.message if refused else TOO_LATE
            if found is None or not publisher_context.server_context.queue.end(found.job.id, "error", reason):
                raise
            with suppress(AgentFixError):  # the record and the workflow's page still tell it
                await drain(publisher_context, DrainLimits(BRIEFLY if refused else LAST_WORDS), everything=True)
        found = job_of_this_run(publisher_context.server_context)
        return _report(workflow, publisher_context, found) if found else ExitCode.OK


async def _refused(action_context: ActionContext) -> NoAccess | None:
    """Why GitHub lets us in no more, as with a token that has ended meanwhile: waiting would change nothing."""
    try:
        await action_context.readers.facts.repository()
    except NoAccess as error:
        print(f"{error.message} {error.hint}")
        return error
    return None


def _limits(workflow: Workflow) -> DrainLimits:
    if workflow.solved == "cancelled":
        return DrainLimits(AFTER_CANCEL)
    return DrainLimits(PUBLISHING, at_most=RATE_LIMIT_RESET)


def _end_what_was_left(publisher_context: PublisherContext, found: JobWithContext, solved: str) -> None:
    """Give every job a final or resumable state, because nothing continues it after this step."""
    if found.waiting_for == "rest":
        publisher_context.server_context.queue.give_up_rest(found.job.id)
    if found.row.final or found.handed_over or found.row.state in WAITING:
        return
    state, reason = ("stopped", CANCELLED) if solved == "cancelled" else ("error", found.row.reason or ENDED_EARLY)
    publisher_context.server_context.queue.end(found.job.id, "stopped" if state == "stopped" else "error", reason)


def _report(workflow: Workflow, publisher_context: PublisherContext, found: JobWithContext) -> int:
    server_context, row = publisher_context.server_context, found.row
    result = JobResult.model_validate(row.result) if row.result else None
    cost = SqlLedger(server_context.engine, found.job.id, 0).totals().cost
    verdict = result.verification.verdict if result and result.verification else ""
    outputs = {
        "job": found.job.id,
        "exit-status": row.state,
        "verdict": verdict,
        "pull-request": result.url if result and row.state in FINAL else "",
        "rest": "true" if found.waiting_for == "rest" else "false",
        "cost": dollars(cost),
        "record": str(write_record(workflow, server_context, found)),
    }
    write_outputs(workflow, outputs)
    at = f"{workflow.settings.github_url}/{workflow.owner}/{workflow.name}"
    summary = step_summary(
        found.job, row.state, row.reason, result, repository=at, kept=unpublished_change_note(workflow)
    )
    write_summary(workflow, summary)
    print(f"{row.state}{f': {row.reason}' if row.reason else ''}")
    if row.state in CALM:
        return ExitCode.OK
    code = result.exit_code if result else ExitCode.INTERNAL
    return code if code != ExitCode.OK else ExitCode.INTERNAL
