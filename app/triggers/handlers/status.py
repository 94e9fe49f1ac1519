"""Commands that only get an answer: `status`, and what could not be understood, which gets the list of commands."""

import asyncio

from app.jobs.store import JobQueries, JobWithContext
from app.publish import replies
from app.triggers.decisions import EventFacts, Reply, TriggerAnswer
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, newest_job_or_question, status_address


def _find_job(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    """The newest job here; on a pull request without one, the job that opened it."""
    return newest_job_or_question(queries, repository, number) or queries.opened(repository, number)


async def _run(call: CommandCall) -> Outcome:
    job = call.context.facts.job
    if job is None:
        return TriggerAnswer("reply no_job", replies.no_job())
    address = await asyncio.to_thread(status_address, job.job.id, call.stores)
    text = replies.status(job.job.id, job.row.state, job.row.reason, address)
    return TriggerAnswer(f"status {job.job.id}", text)


def _explain(facts: EventFacts) -> Reply | None:
    command = facts.command
    return Reply(rule="unclear_command", text=command.problem, suggestion=command.suggestion) if command else None


async def _run_nothing(call: CommandCall) -> Outcome:
    raise ValueError(f"{call.request.aim} only gets an answer")


STATUS = CommandHandler(_run, find_job=_find_job, only_reads=True, needs_config=False)
HELP = CommandHandler(_run_nothing, refuse=_explain, needs_config=False)
