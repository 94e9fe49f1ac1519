"""Commands that only get an answer: `status`, and what could not be understood, which gets the list of commands."""

import asyncio

from app.config.repository import DIRECTORY, own_prompt_names
from app.core.job import JobResult
from app.jobs.store import JobQueries, JobWithContext
from app.publish import replies
from app.publish.status_text import seen
from app.triggers.commands import COMMAND_HELP
from app.triggers.decisions import TriggerAnswer
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, newest_job_or_question, status_address


def _find_job(queries: JobQueries, repository: int, number: int) -> JobWithContext | None:
    """The newest job here; on a pull request without one, the job that opened it."""
    return newest_job_or_question(queries, repository, number) or queries.opened(repository, number)


async def _run(call: CommandCall) -> Outcome:
    job = call.context.facts.job
    if job is None:
        return TriggerAnswer("reply no_job", replies.no_job())
    address = await asyncio.to_thread(status_address, job.job.id, call.stores)
    condition = seen(job.job, job.row.state, JobResult.read(job.row.result))
    text = replies.status(job.job.id, condition, job.row.reason, address)
    return TriggerAnswer(f"status {job.job.id}", text)


async def _help(call: CommandCall) -> Outcome:
    """What was wrong with the command, the list of commands, and the repository's own prompts."""
    command = call.context.facts.command
    problem, suggestion = (command.problem, command.suggestion) if command else ("", "")
    prompts = own_prompt_names(await call.context.repo.reader.files_in(DIRECTORY))
    text = replies.unclear_command(problem, suggestion, commands=COMMAND_HELP, prompts=prompts)
    return TriggerAnswer("reply unclear_command", text)


STATUS = CommandHandler(_run, find_job=_find_job, only_reads=True, needs_config=False)
HELP = CommandHandler(_help, needs_config=False)
