"""The receiving step: the workflow's event becomes a job with its base commit at hand, or an answer, or nothing."""

import asyncio
import logging

from app.bootstrap.action import Workplace, open_workflow
from app.entrypoints.carrying import Patience, carry_out_due, the_job
from app.entrypoints.papers import write_outputs
from app.entrypoints.spare import dismiss_spare, spare_is_ready
from app.entrypoints.told import Told
from app.errors import AgentFixError, ExitCode
from app.events import ChecksFailed, Event, Reviewed, Trigger
from app.jobs.inbox import Delivery
from app.jobs.roster import WORKED_ON
from app.publish import replies
from app.publish.intent import StatusComment
from app.publish.intents import name_without_job
from app.reception.recollecting import Recollection
from app.settings.workflow import Workflow
from app.sweep import AT_WORK

DECIDING, STOCKING, TELLING = 180.0, 600.0, 90.0
"""Seconds of patience with GitHub."""
CANCEL_BY_HAND = "Cancel it there, or give the workflow's job the permission `actions: write`."
SAY_IT_AGAIN = "Say it again once it has ended."

logger = logging.getLogger(__name__)


async def receive(workflow: Workflow, told: Told) -> int:
    """Outputs `work` (whether there is something to solve) and `job`."""
    async with open_workflow(workflow) as workplace:
        if workflow.issue:
            await _by_number(workflow, workplace)
        else:
            event = told.event
            before = await workplace.recollecting.recollect(event) if isinstance(event, Trigger) else None
            await _count_rounds(workplace, event)
            workplace.publishing.premises.inbox.store([Delivery(id=workflow.run, event=told.name, body=told.body)])
            await _decide(workplace)
            if before is not None and before.elsewhere:
                await _reach(workplace, workflow, before)
        await asyncio.gather(_stock(workplace), carry_out_due(workplace.publishing, Patience(TELLING)))
        await carry_out_due(workplace.publishing, Patience(TELLING))
        found = the_job(workplace.publishing)
    work = found is not None and found.ready and not found.handed_over and found.row.state in WORKED_ON
    if work and workflow.keeping:
        await spare_is_ready(workflow.settings.state)
    if not work:
        dismiss_spare(workflow.settings.state)
    write_outputs(workflow, {"work": "true" if work else "false", "job": found.job.id if found else ""})
    return ExitCode.OK


async def _by_number(workflow: Workflow, workplace: Workplace) -> None:
    """An issue without an event that names it: its label is heard again, or what was lost of its work is told."""
    number = workflow.issue
    event, at_work = await workplace.labelled(number), await workplace.labelled(number, AT_WORK)
    known = event or at_work
    before = await workplace.recollecting.recollect(known) if known else None
    if before is not None and before.lost:
        print(f"#{number}: its work was lost with the run that did it, which is now told")
        return
    if before is not None:
        await asyncio.to_thread(workplace.recalled.forget, before.told.job)
    if before is not None and before.elsewhere:
        print(f"#{number}: it is worked on in run {before.told.run}")
        return
    if event is None:
        message = f"#{number} is not labelled agent-fix."
        raise AgentFixError(message, hint="Somebody with write access has to put the label on it.")
    print(f"#{number}: {await workplace.publishing.reception.desk.handle(event)}")


async def _count_rounds(workplace: Workplace, event: Event | None) -> None:
    """How often its pull request was followed up already, so that nobody's absence costs without end."""
    numbers: tuple[int, ...] = ()
    if isinstance(event, ChecksFailed):
        pull = None if event.pull_requests else await workplace.readers.facts.pull_request_of(event.head_ref)
        numbers = event.pull_requests[:1] or ((pull.number,) if pull else ())
    elif isinstance(event, Reviewed):
        numbers = (event.subject.number,)
    for number in numbers:
        workplace.roster.mended[number] = await workplace.recollecting.mended(workplace.readers, number)


async def _decide(workplace: Workplace) -> None:
    inbox, patience = workplace.publishing.premises.inbox, Patience(DECIDING)
    while await asyncio.to_thread(lambda: inbox.health().undone):
        if not await workplace.publishing.reception.next():
            await patience.wait()
    if inbox.health().dead:
        raise AgentFixError("The event could not be dealt with; the log says why.", code=ExitCode.INTERNAL)


async def _reach(workplace: Workplace, workflow: Workflow, before: Recollection) -> None:
    """What was said to work that goes on in another run: a stop cancels that run, anything else has to wait."""
    premises, job = workplace.publishing.premises, before.told.job
    address = workflow.page.rpartition("/")[0] + f"/{before.told.run}"
    row = await asyncio.to_thread(premises.store().get, job)
    stopped = row is not None and row.stop_requested
    if stopped and await workplace.recollecting.cancel(workplace.readers, before.told.run):
        words = ""
    elif stopped:
        words = replies.in_the_way(f"It is worked on in {address}, which this token may not cancel.", CANCEL_BY_HAND)
    elif premises.messages.since(job, 0):
        words = replies.in_the_way(f"It is worked on in {address}, which hears nothing.", SAY_IT_AGAIN)
    else:
        words = ""
    if words:
        intent = StatusComment(body=words)
        await asyncio.to_thread(premises.intents.want, name_without_job(workflow.run), 0, before.spot, intent)
    await asyncio.to_thread(workplace.recalled.forget, job)  # that run tells how it ends


async def _stock(workplace: Workplace) -> None:
    """Bring the base commit; what can never be had ends the job with the reason."""
    roster, patience = workplace.publishing.premises.roster, Patience(STOCKING)
    while await asyncio.to_thread(roster.unstocked):
        if not await workplace.publishing.reception.stock():
            await patience.wait()
