"""`stop`: end the job, the rest of its suite, and the questions that are being answered beside it."""

import asyncio

from app.jobs.store import JobQueries, JobWithContext
from app.triggers.decisions import EventFacts, Reply
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, newest_job_or_question


def _find_job(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    """The active job, or a published one the rest of whose suite is being run."""
    job = newest_job_or_question(queries, repository, number)
    if job is None or job.row.final:
        return queries.with_rest(repository, number) or job
    return job


def _refuse(facts: EventFacts) -> Reply | None:
    if facts.state.working or facts.state.rest_runs:
        return None
    return Reply(rule="nothing_to_act_on", text="No job is running.", suggestion="/agent status")


async def _run(call: CommandCall) -> Outcome:
    return await asyncio.to_thread(_stop, call)


def _stop(call: CommandCall) -> str:
    job, trigger, queue = call.job.job.id, call.context.trigger, call.stores.queue
    reason = f"Stopped by {trigger.login}."
    call.acknowledge()
    for each in call.stores.job_queries.active_jobs(repository=call.context.repo.repository.id):
        if each.job_context.issue_ref.number == trigger.number and each.job.id != job:
            queue.stop(each.job.id, reason)
    queue.stop(job, reason, trigger=trigger)
    return f"stop {job}"


STOP = CommandHandler(_run, refuse=_refuse, find_job=_find_job, ends_work=True, needs_config=False)
