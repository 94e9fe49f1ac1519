"""The short story of a question: look, execute, answer. Nothing here could publish a change or verify one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from app.errors import ExitCode
from app.job import Job, Journal, Parked, Progress
from app.model.budget import Totals
from app.result import Result
from app.runners.base import Assignment, Ending, Review, Runner, Submission
from app.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class AskBench:
    """The rooms of a job that asks. There is no way out of the sandbox but the answer's text, by type."""

    progress: Progress
    brief: Callable[[], str]
    open_work: Callable[[], Awaitable[Sandbox]]
    runner: Callable[[Sandbox, Journal], Runner]
    totals: Callable[[], Totals]
    notes: Sequence[str] = ()
    warnings: Callable[[], tuple[str, ...]] = tuple


async def answer(job: Job, bench: AskBench, journal: Journal) -> Result:
    """The answer is the result's summary. Raises Parked at a limit. The tree that was tried things in is destroyed."""
    begun = monotonic()
    bench.progress.say("state", "working")
    sandbox = await bench.open_work()
    try:
        assignment = Assignment(brief=bench.brief(), aim="answer")
        ending = await bench.runner(sandbox, journal).work(assignment, _take)
    finally:
        await sandbox.close()
    if ending.exit_status == "limit_reached":
        raise Parked("paused", ending.reason, code=ExitCode.LIMIT_REACHED)
    await sandbox.destroy()
    result = Result(
        exit_status="answered",
        summary=ending.submission.summary if ending.submission else "",
        model=job.main_model,
        turns=ending.turns,
        notes=tuple(bench.notes),
        warnings=bench.warnings(),
        usage=bench.totals(),
        seconds=round(monotonic() - begun, 3),
    )
    return result if ending.exit_status == "submitted" else _failed(result, ending)


async def _take(submission: Submission) -> Review:
    """An answer is taken as it is: people judge it."""
    return Review(accepted=True, text="This is the answer.")


def _failed(result: Result, ending: Ending) -> Result:
    silent = ending.exit_status == "no_change"
    reason = "The model stopped without submitting an answer." if silent else ending.reason
    return result.model_copy(
        update={"exit_status": "error", "summary": "", "reason": reason, "error_code": ExitCode.MODEL}
    )
