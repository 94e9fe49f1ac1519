"""`continue`: a paused job resumes where it stopped, with more budget if the command says so.

`approve` and answers resume a job too, and may set its budget.
"""

import asyncio

from app.jobs.job_actions import raised_budget
from app.jobs.trigger_log import JobMessage, MessageKind
from app.publish import replies
from app.triggers.decisions import EventFacts, Reply, TriggerAnswer
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, newest_job_or_question, refuse_options


def _refuse(facts: EventFacts) -> Reply | None:
    if facts.state.job_state == "paused":
        return refuse_options(facts, "budget", "extra")
    return Reply(rule="nothing_to_act_on", text="No job is paused.", suggestion="/agent status")


async def _run(call: CommandCall) -> Outcome:
    options = call.request.options
    if options.budget is None and options.extra is None and call.job.waiting_for == "money":
        problem = "Its budget is spent; say how much more it may cost."
        return TriggerAnswer("reply budget", replies.reply(problem, "/agent continue --budget +3"))
    return await asyncio.to_thread(resume, call, "continue", call.request.text)


def resume(call: CommandCall, kind: MessageKind, text: str) -> Outcome:
    """Resume the job, and store the messages and the trigger with it. Blocking.

    The text of an approval is its plan, so what else was written with it becomes a message of its own.
    """
    job, trigger, options, budget = call.job, call.context.trigger, call.request.options, call.job.job.budget
    outcome = f"{kind} {job.job.id}"
    call.acknowledge()
    if kind == "continue":
        budget = raised_budget(job, options.budget, options.extra)
    elif options.budget is not None:
        budget = budget.model_copy(update={"usd": options.budget})
    messages = [JobMessage(kind, trigger.key, trigger.login, text)]
    if kind == "approve" and call.request.text:
        messages.insert(0, JobMessage("steer", f"{trigger.key}/text", trigger.login, call.request.text))
    changed = job.job.model_copy(update={"budget": budget})
    if call.stores.queue.resume(job.job.id, changed, messages=messages, trigger=trigger, outcome=outcome):
        return outcome
    if call.stores.triggers.decided(trigger.key):
        return "decided before"
    text = replies.reply("The job has continued or ended in the meantime.", "/agent status")
    return TriggerAnswer("reply too_late", text)


CONTINUE = CommandHandler(_run, refuse=_refuse, find_job=newest_job_or_question, asks_for_work=True)
