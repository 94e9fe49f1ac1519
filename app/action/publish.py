"""The steps that show and publish what the solve step does, and hold the token.

The progress step edits the status comment in a process of its own beside the solve step. The publish step publishes
what was requested, reports how the job ended, and sets the outputs.
"""

import asyncio
import json
import os
import select
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app.action.context import (
    CANCELLED,
    ActionContext,
    DrainLimits,
    drain,
    fail,
    job_of_this_run,
    open_workflow,
    unpublished_change_note,
    write_outputs,
    write_summary,
)
from app.config.settings import Settings
from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.job import FINAL, WAITING, JobResult, JobState
from app.core.model_usage import dollars
from app.core.plan import render_plan_file
from app.core.redaction import Redactor
from app.core.text import plain
from app.github.base import NoAccess
from app.jobs.store import JobBlobs, JobWithContext
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import OpenDraftPullRequest
from app.publish.publisher import Publisher
from app.publish.status_text import step_summary
from app.publish.status_updater import StatusUpdater
from app.server.context import ServerContext
from app.server.publisher import PublisherContext

EVERY: Final = 30.0
"""Seconds between two edits, at least: all workflows of a repository share 1,000 requests an hour."""
LOOK: Final = 1.0
AT_MOST: Final = 6 * 3_600.0
"""Seconds; no job of a workflow lives longer."""
SHOWN: Final = ("status_comment", "label", "reaction")
"""The kinds of effects that show a job's progress."""
RUNNER: Final = "Runner.Worker"
"""The program that executes one job of a workflow and then ends."""


async def show_progress(workflow: Workflow) -> int:
    """Ends when the job is no longer worked on, the publish step has begun, or the runner is done with the workflow's
    job: it may have been cancelled before the publish step."""
    if workflow.settings.sandbox == "none":  # nothing would keep the project's code from this process
        return ExitCode.OK
    mark, gone = publishing_mark(workflow.settings), replaced(workflow.settings.state)
    left = runner_ended(workflow.runner)
    server_context = ServerContext(workflow.settings)

    async def post() -> None:
        async with open_workflow(workflow) as action_context:  # with a new token, because an App's ends after an hour
            publisher_context = action_context.publisher_context
            await post_once(publisher_context.status_updater, publisher_context.publisher)

    await follow(post, lambda: mark.exists() or gone() or left() or is_over(job_of_this_run(server_context)))
    return ExitCode.OK


async def follow(
    post: Callable[[], Awaitable[None]], ended: Callable[[], bool], *, every: float = EVERY, look: float = LOOK
) -> None:
    started = last = time.monotonic()
    while time.monotonic() < started + AT_MOST and not await asyncio.to_thread(ended):
        if time.monotonic() >= last + every:
            with suppress(AgentFixError):  # GitHub does not answer: the next edit, or the publish step, shows it
                await post()
            last = time.monotonic()
        await asyncio.sleep(look)


async def post_once(status_updater: StatusUpdater, publisher: Publisher[Any]) -> None:
    """Edit the comment if there is news. The change is left to the publish step, also if it is handed over just now."""
    if await status_updater.post_due():
        while await publisher.publish_next(SHOWN) is not None:
            pass


def is_over(found: JobWithContext | None) -> bool:
    """True if the job waits, or the publish step does the rest."""
    return found is None or found.row.final or found.handed_over or found.row.state in WAITING


def publishing_mark(settings: Settings) -> Path:
    """The file that the publish step leaves, so that only one process publishes from then on."""
    return settings.state / "publishing"


def replaced(directory: Path) -> Callable[[], bool]:
    """Returns a function that is true once the directory was deleted or replaced, for example by the runner's next
    job."""
    descriptor = os.open(directory, os.O_RDONLY)  # while it is open, no other directory gets its number

    def differs() -> bool:
        try:
            return not os.path.samestat(os.fstat(descriptor), directory.stat())
        except FileNotFoundError:
            return True

    return differs


def runner_ended(process: int) -> Callable[[], bool]:
    """Whether this process has ended, if it is the runner's; in containers it is not seen, and ends them with the job.

    The runner ends processes that were left behind by a variable in their environment, but it cannot read ours.
    """
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        descriptor = os.pidfd_open(process) if name == RUNNER else None
    except OSError:
        descriptor = None
    return lambda: descriptor is not None and bool(select.select([descriptor], [], [], 0)[0])


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
    {
        "pr_opened",
        "pr_updated",
        "answered",
        "already_works",
        "reproduced",
        "not_reproduced",
        "verified",
        "no_change",
        "stopped",
        "needs_input",
        "awaiting_approval",
        "paused",
    }
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
        limits = DrainLimits(PUBLISHING, at_most=RATE_LIMIT_RESET)
        if refused or workflow.solved == "cancelled":
            limits = DrainLimits(BRIEFLY if refused else AFTER_CANCEL)
        try:
            await drain(publisher_context, limits, everything=True)
        except AgentFixError:
            reason = refused.message if refused else TOO_LATE
            if found is None or not publisher_context.server_context.queue.end(found.job.id, "error", reason):
                raise
            with suppress(AgentFixError):  # the record and the workflow's page still tell it
                await drain(publisher_context, DrainLimits(BRIEFLY if refused else LAST_WORDS), everything=True)
        found = job_of_this_run(publisher_context.server_context)
        return _report(workflow, publisher_context, found) if found else ExitCode.OK


async def _refused(action_context: ActionContext) -> NoAccess | None:
    """The error if GitHub no longer accepts the token, for example because it expired; None otherwise.

    Waiting would not help.
    """
    try:
        await action_context.reader.repository()
    except NoAccess as error:
        print(f"{error.message} {error.hint}")
        return error
    return None


def _end_what_was_left(publisher_context: PublisherContext, found: JobWithContext, solved: str) -> None:
    """Give every job a final or resumable state, because nothing continues it after this step."""
    if found.waiting_for == "rest":
        publisher_context.server_context.queue.give_up_rest(found.job.id)
    if found.row.final or found.handed_over or found.row.state in WAITING:
        return
    queue = publisher_context.server_context.queue
    if solved == "cancelled":
        queue.end(found.job.id, "stopped", CANCELLED)
    else:
        queue.end(found.job.id, "error", found.row.reason or ENDED_EARLY)


def _report(workflow: Workflow, publisher_context: PublisherContext, found: JobWithContext) -> int:
    server_context, row = publisher_context.server_context, found.row
    result = JobResult.model_validate(row.result) if row.result else None
    totals = SqlLedger(server_context.engine, found.job.id, 0).totals()
    verdict = result.verification.verdict if result and result.verification else ""
    outputs = {
        "job": found.job.id,
        "exit-status": row.state,
        "verdict": verdict,
        "pull-request": result.url if result and row.state in FINAL else "",
        "rest": "true" if found.waiting_for == "rest" else "false",
        "cost": dollars(totals.cost) if totals.cost or not totals.calls else "",
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
