"""The facts of a pull request's text (`app.publish.pull_request_text`)."""

from pathlib import PurePath

from app.core.job import Job
from app.core.money import Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.record import Record
from app.core.result import AttemptSummary, JobResult
from app.core.task import Task
from app.core.verification import Verification
from app.llm.fallback import fallback_notes


class PullRequestContent(Record):
    """What was requested, done, run and spent. `summary` and `plan` are the model's text; the rest is the harness's."""

    task: Task
    job: str
    branch: str
    commit: str
    """The head commit's full id."""
    verification: Verification
    plan: Plan | None = None
    summary: str = ""
    changes: tuple[FileStat, ...] = ()
    usage: Totals = Totals()
    model: str = ""
    recorded: bool = False
    """True if the model's answers came from a recording: tokens and cost are then those of the recording."""
    runner: str = "native"
    turns: int = 0
    seconds: float = 0.0
    attempts: tuple[AttemptSummary, ...] = ()
    attempts_asked: int = 1
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def pull_request_content(job: Job, result: JobResult, verification: Verification) -> PullRequestContent:
    """The facts of a job's pull request; a recorded model is named without the path of its file."""
    return PullRequestContent(
        task=job.task,
        job=job.id,
        branch=result.branch,
        commit=result.commit,
        verification=verification,
        plan=result.plan,
        summary=result.summary,
        changes=result.changes,
        usage=result.usage,
        model=shown_model(job.model),
        recorded=job.model.startswith("recorded/"),
        runner=job.runner,
        turns=result.turns,
        seconds=result.seconds,
        attempts=result.attempts,
        attempts_asked=job.attempts,
        notes=(*result.notes, *fallback_notes(result.usage)),
        warnings=result.warnings,
    )


def shown_model(model: str) -> str:
    """The model's name; for a recording without the path of its file."""
    return f"recorded/{PurePath(model).name}" if model.startswith("recorded/") else model
