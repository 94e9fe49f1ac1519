"""The pipeline of a question: explore, run commands, answer. It cannot publish or verify a change."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from app.agent.base import Assignment, ReviewResult, Runner, RunnerEnding, Submission
from app.core.errors import ExitCode
from app.core.job import Job, JobResult, Journal, Progress, WaitingForUser
from app.core.model_usage import Totals
from app.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class AnswerServices:
    """The services of a job that answers a question. By type, only the answer's text leaves the sandbox."""

    progress: Progress
    brief: Callable[[], str]
    open_work: Callable[[], Awaitable[Sandbox]]
    runner: Callable[[Sandbox, Journal], Runner]
    totals: Callable[[], Totals]
    notes: Sequence[str] = ()
    warnings: Callable[[], tuple[str, ...]] = tuple


async def answer(job: Job, services: AnswerServices, journal: Journal) -> JobResult:
    """The answer is the result's summary. Raises WaitingForUser at a limit. The work tree is deleted."""
    started = monotonic()
    services.progress.report("state", "working")
    sandbox = await services.open_work()
    try:
        assignment = Assignment(brief=services.brief(), aim="answer")
        ending = await services.runner(sandbox, journal).work(assignment, _accept_any)
    finally:
        await sandbox.close()
    if ending.exit_status == "limit_reached":
        raise WaitingForUser("paused", ending.reason, code=ExitCode.LIMIT_REACHED)
    await sandbox.destroy()
    result = JobResult(
        exit_status="answered",
        summary=ending.submission.summary if ending.submission else "",
        model=job.main_model,
        turns=ending.turns,
        notes=tuple(services.notes),
        warnings=services.warnings(),
        usage=services.totals(),
        seconds=round(monotonic() - started, 3),
    )
    return result if ending.exit_status == "submitted" else _failed(result, ending)


async def _accept_any(submission: Submission) -> ReviewResult:
    """Accept any answer: people judge it."""
    return ReviewResult(accepted=True, text="This is the answer.")


def _failed(result: JobResult, ending: RunnerEnding) -> JobResult:
    silent = ending.exit_status == "no_change"
    reason = "The model stopped without submitting an answer." if silent else ending.reason
    return result.model_copy(
        update={"exit_status": "error", "summary": "", "reason": reason, "error_code": ExitCode.MODEL}
    )
