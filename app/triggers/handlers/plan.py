"""`plan`: make a plan and wait; and `approve`: work by that plan, as people edited it."""

import asyncio
import re
from typing import Final

from app.core.errors import AgentFixError
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.publish import replies
from app.publish.status_text import read_plan
from app.triggers.decisions import Decision, EventFacts, Reply, TriggerAnswer
from app.triggers.handlers.base import (
    CommandCall,
    CommandHandler,
    Outcome,
    refuse_beside_a_job,
    refuse_options,
    refuse_while_paused,
    refused,
    status_address,
    when_idle,
)
from app.triggers.handlers.resume import resume
from app.triggers.job_creator import as_before

_COMMENT: Final = re.compile(r"#issuecomment-([0-9]+)$")


def refuse_while_working(facts: EventFacts) -> Decision | None:
    if facts.state.working:
        return refuse_while_paused(facts) or refused("busy", "A job is already working on it.")
    return None


async def _run(call: CommandCall) -> Outcome:
    return await call.job_creator.start(call.request, call.context, aim="plan")


def _starts_planned_work(facts: EventFacts) -> bool:
    return facts.state.planned and not facts.state.working


def _refuse_approval(facts: EventFacts) -> Decision | None:
    if busy := refuse_beside_a_job(facts):
        return busy
    if facts.state.job_state == "awaiting_approval":
        return refuse_options(facts, "budget")
    if facts.state.planned:
        return None
    return Reply(rule="nothing_to_act_on", text="No plan is waiting for approval.", suggestion="/agent plan")


async def _approve(call: CommandCall) -> Outcome:
    edited, job, request = await edited_plan(call), call.job, call.request
    if isinstance(edited, TriggerAnswer):
        return edited
    plan, editor = edited
    if job.row.state == "awaiting_approval":
        text = await asyncio.to_thread(_newest_plan, call, plan, editor)
        return await asyncio.to_thread(resume, call, "approve", text)
    plan = plan or render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))
    text = "\n\n".join(part for part in (job.job.task.request, request.text) if part)
    return await call.job_creator.start(as_before(request, job.job), call.context, text=text, plan_file=plan)


async def edited_plan(call: CommandCall) -> tuple[str, str] | TriggerAnswer:
    """The plan as edited in the status comment, and by whom: what people see there is what they approve.

    Both are empty if nobody edited it; a TriggerAnswer says why it cannot be approved.
    """
    context, reader = call.context, call.context.repo.reader
    comment = _COMMENT.search(await asyncio.to_thread(status_address, call.job.job.id, call.stores))
    edit = await reader.comment_edit(int(comment[1])) if comment else None
    if edit is None or not edit.editor_name or edit.editor == context.repo.ours.user:
        return "", ""
    text = read_plan(edit.body)
    if text is None:
        return "", ""
    if edit.edited_at is not None and edit.edited_at > context.trigger.at:
        return TriggerAnswer("reply plan", replies.plan_edited_since())
    if not await reader.may_write(edit.editor):
        return TriggerAnswer("reply plan", replies.plan_edited_by_stranger(edit.editor_name))
    try:
        parse_plan_file(text)
    except AgentFixError as error:
        return TriggerAnswer("reply plan", replies.unreadable_plan(error.message))
    return text, edit.editor_name


def _newest_plan(call: CommandCall, edited: str, editor: str) -> str:
    """The plan as edited in the comment, which becomes a version, or as edited through the API."""
    if edited:
        call.stores.plans.record(call.job.job.id, parse_plan_file(edited), editor)
    return edited or call.stores.plans.edited_text(call.job.job.id)


PLAN = CommandHandler(_run, starts=when_idle, refuse=refuse_while_working, asks_for_work=True)
APPROVE = CommandHandler(_approve, starts=_starts_planned_work, refuse=_refuse_approval, asks_for_work=True)
