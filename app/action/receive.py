"""The receive step: turn the workflow's event into a job with its base commit, an answer, or nothing."""

import asyncio
import logging

from app.action.context import (
    ActionContext,
    DrainLimits,
    WorkflowEvent,
    drain,
    job_of_this_run,
    open_workflow,
    write_outputs,
    write_summary,
)
from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.job import FINAL, WAITING
from app.github.auth import ACTIONS_BOT
from app.github.repository_api import find_bot_account
from app.jobs.inbox import Delivery
from app.jobs.status import WORKED_ON
from app.jobs.store import JobWithContext
from app.publish import replies
from app.publish.effects import UpdateStatusComment
from app.publish.outbox import name_without_job
from app.server.issue_sweep import AT_WORK
from app.triggers.events import ChecksFailed, Event, ReviewSubmitted, TriggerEvent
from app.triggers.status_comment_recovery import RecoveredStatus

DECIDING, FETCHING, UPDATING = 180.0, 600.0, 90.0
"""Seconds to wait for GitHub."""
CANCEL_BY_HAND = "Cancel the run on GitHub, or give the workflow's job the permission `actions: write`."
REPEAT_HINT = "Repeat the command when the run has ended."

SAFE_MINUTES = 45
"""Of work, beside which there is setting up, proving and publishing: an App's token lives an hour."""
INSTALLATION_TOKEN = "ghs_"  # noqa: S105  # how such tokens begin
SHORT_LIVED = (
    "The token is {login}'s and ends an hour after it was made, but this job may work for {minutes:g} minutes. "
    "Give the Action `app-id` and `private-key` in place of `token`, or set `budget: {{minutes: 45}}`."
)

logger = logging.getLogger(__name__)


async def receive(workflow: Workflow, trigger: WorkflowEvent) -> int:
    """Sets the outputs `work` (true if there is something to solve) and `job`."""
    async with open_workflow(workflow) as action_context:
        publisher_context = action_context.publisher_context
        server_context = publisher_context.server_context
        if workflow.issue:
            await _by_number(workflow, action_context)
        else:
            event = trigger.event
            before = await action_context.status_recovery.recover(event) if isinstance(event, TriggerEvent) else None
            await _count_rounds(action_context, event)
            server_context.inbox.store([Delivery(id=workflow.run, event=trigger.name, body=trigger.body)])
            await _decide(action_context)
            if before is not None and before.elsewhere:
                await _apply_to_other_run(action_context, workflow, before)
            elif before is not None and before.posted.state in FINAL - WAITING:
                await asyncio.to_thread(_forget_unless_followed, action_context, before.posted.job)
        await asyncio.gather(_fetch_base(action_context), drain(publisher_context, DrainLimits(UPDATING)))
        await drain(publisher_context, DrainLimits(UPDATING))
        found = job_of_this_run(server_context)
    work = found is not None and found.ready and not found.handed_over and found.row.state in WORKED_ON
    if work and found is not None and (text := await _short_lived(workflow, action_context, found)):
        print(text)
        write_summary(workflow, text)
    write_outputs(workflow, {"work": "true" if work else "false", "job": found.job.id if found else ""})
    return ExitCode.OK


async def _short_lived(workflow: Workflow, action_context: ActionContext, found: JobWithContext) -> str:
    """A warning if the token may expire before the job ends; empty otherwise. The workflow's own token lasts as long as
    the workflow."""
    minutes = found.job.budget.minutes
    if workflow.settings.app_id or not workflow.token.startswith(INSTALLATION_TOKEN) or minutes <= SAFE_MINUTES:
        return ""
    login = (await find_bot_account(action_context.reader.api)).login
    if login == ACTIONS_BOT:
        return ""
    return SHORT_LIVED.format(login=login, minutes=minutes)


async def _by_number(workflow: Workflow, action_context: ActionContext) -> None:
    """Start from an issue number instead of an event: replay its label, or report that an earlier run lost its job."""
    number = workflow.issue
    event, at_work = await action_context.labelled(number), await action_context.labelled(number, AT_WORK)
    known = event or at_work
    before = await action_context.status_recovery.recover(known) if known else None
    if before is not None and before.is_lost:
        print(f"#{number}: an earlier run ended without finishing its job; the status comment now says so")
        return
    if before is not None:
        await asyncio.to_thread(action_context.recovered_jobs.forget, before.posted.job)
    if before is not None and before.elsewhere:
        print(f"#{number}: run {before.posted.run} is working on it")
        return
    if event is None:
        message = f"#{number} does not have the label agent-fix."
        raise AgentFixError(message, hint="Someone with write access must add the label.")
    print(f"#{number}: {await action_context.publisher_context.trigger_loops.handler.handle(event)}")


async def _count_rounds(action_context: ActionContext, event: Event | None) -> None:
    """Count earlier follow-ups on the pull request, so that follow-ups nobody watches stay limited."""
    numbers: tuple[int, ...] = ()
    if isinstance(event, ChecksFailed):
        pull = None if event.pull_requests else await action_context.reader.pull_request_of(event.head_ref)
        numbers = event.pull_requests[:1] or ((pull.number,) if pull else ())
    elif isinstance(event, ReviewSubmitted):
        numbers = (event.subject.number,)
    for number in numbers:
        action_context.job_queries.follow_ups[number] = await action_context.status_recovery.repair(
            action_context.reader, number
        )


async def _decide(action_context: ActionContext) -> None:
    inbox, limits = action_context.publisher_context.server_context.inbox, DrainLimits(DECIDING)
    while await asyncio.to_thread(lambda: inbox.health().undone):
        if not await action_context.publisher_context.trigger_loops.next_delivery():
            await limits.wait()
    if inbox.health().dead:
        raise AgentFixError("The event could not be processed; see the step's log.", code=ExitCode.INTERNAL)


def _forget_unless_followed(action_context: ActionContext, recalled: str) -> None:
    """Forget an ended job if the event started no other: this run has none to report. Blocking."""
    if len(action_context.publisher_context.server_context.job_store().newest(2)) == 1:
        action_context.recovered_jobs.forget(recalled)


async def _apply_to_other_run(action_context: ActionContext, workflow: Workflow, before: RecoveredStatus) -> None:
    """Apply a command to a job in another run: `stop` cancels that run; anything else raises AgentFixError."""
    server_context, job = action_context.publisher_context.server_context, before.posted.job
    address = workflow.page.rpartition("/")[0] + f"/{before.posted.run}"
    row = await asyncio.to_thread(server_context.job_store().get, job)
    text = ""
    if row is not None and row.stop_requested:
        if not await action_context.status_recovery.cancel(action_context.reader, before.posted.run):
            text = replies.forge_refusal(
                f"The job runs in {address}, and this token may not cancel it.", CANCEL_BY_HAND
            )
    elif server_context.messages.since(job, 0):
        text = replies.forge_refusal(f"The job runs in {address}, which cannot receive messages.", REPEAT_HINT)
    if text:
        effect = UpdateStatusComment(body=text)
        await asyncio.to_thread(server_context.outbox.add, name_without_job(workflow.run), 0, before.issue_ref, effect)
    await asyncio.to_thread(action_context.recovered_jobs.forget, job)  # that run reports its own end


async def _fetch_base(action_context: ActionContext) -> None:
    """Fetch the base commit. If it can never be fetched, the job ends with the reason."""
    job_queries, limits = action_context.publisher_context.server_context.job_queries, DrainLimits(FETCHING)
    while await asyncio.to_thread(job_queries.without_base_commit):
        if not await action_context.publisher_context.trigger_loops.fetch_base_commits():
            await limits.wait()
