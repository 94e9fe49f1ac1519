"""`reproduce`: show an issue as a program, and change nothing; and a fix that goes on from those examples."""

from app.core.examples import PlanExamples
from app.core.issue_file import issue_of
from app.core.job import JobResult
from app.core.plan import render_plan_file
from app.jobs.store import JobWithContext
from app.triggers.decisions import Decision, EventFacts, Reply, TriggerAnswer
from app.triggers.events import TriggerEvent
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome
from app.triggers.handlers.plan import edited_plan, refuse_while_working


def _refuse(facts: EventFacts) -> Decision | None:
    if facts.pull is not None:
        return Reply(rule="only_issues", text="Only an issue can be reproduced.", suggestion="/agent ask …")
    return refuse_while_working(facts)


async def _run(call: CommandCall) -> Outcome:
    return await call.job_creator.start(call.request, call.context, aim="reproduce")


async def fix_reproduced(call: CommandCall, former: JobWithContext) -> Outcome:
    """Start the job that fixes what the former one reproduced, with its examples as people left them."""
    edited, result = await edited_plan(call), JobResult.read(former.row.result)
    if isinstance(edited, TriggerAnswer):
        return edited
    if result is None or result.plan is None:
        return await call.job_creator.start(call.request, call.context)
    plan_file = edited[0] or render_plan_file(result.plan)
    text = "\n\n".join(part for part in (former.job.task.request, call.request.text) if part)
    return await call.job_creator.start(
        call.request, call.context, text=text, plan_file=plan_file, reproduced=result.examples or PlanExamples()
    )


def reproduction_of(facts: EventFacts) -> JobWithContext | None:
    """The issue's newest job if it has reproduced what the issue still says."""
    job = facts.job
    if job is None or job.row.state != "reproduced" or not isinstance(facts.event, TriggerEvent):
        return None
    subject = facts.event.subject
    then, now = job.job.task.issue, issue_of(subject.title, subject.body, number=subject.number, labels=())
    return job if (then.title, then.body) == (now.title, now.body) else None


REPRODUCE = CommandHandler(_run, refuse=_refuse, asks_for_work=True)
