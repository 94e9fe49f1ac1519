"""Describes earlier failed attempts at an issue to the next job."""

from collections.abc import Iterable, Iterator
from typing import Final

from app.core.errors import ExitCode
from app.core.job import PUBLISHED, JobResult, JobState
from app.core.task import TaskSection
from app.core.text import head_and_tail, listed, one_line, visible
from app.jobs.store import JobRow
from app.verify.feedback import feedback

TITLE: Final = "Earlier failed attempts at this task; do not repeat them"
MAX_ATTEMPTS: Final = 3
MAX_OF_ONE: Final = 3_500
"""Characters of one attempt."""
MAX_FILES: Final = 20
_ENDED: Final[dict[JobState, str]] = {
    "verification_failed": "its change did not pass verification",
    "limit_reached": "it reached a limit before it was done",
    "paused": "it reached a limit before it was done",
    "no_change": "it found nothing to change",
}


def failed_attempts(rows: Iterable[JobRow]) -> TaskSection | None:
    """The section for a new job. `rows` are the issue's jobs, newest first; none before a published one counts."""
    texts: list[str] = []
    for row in rows:
        if row.state in PUBLISHED or len(texts) == MAX_ATTEMPTS:
            break
        result = JobResult.read(row.result) if row.final else None
        if result is not None and result.exit_status in _ENDED and not _paused_otherwise(result):
            texts.append(head_and_tail("\n".join(_attempt_lines(row, result)), MAX_OF_ONE))
    return TaskSection(title=TITLE, text="\n\n".join(texts)) if texts else None


def _paused_otherwise(result: JobResult) -> bool:
    """True if the job was paused before it was stopped, and not at a limit: no key, no sandbox, a full disk.

    A change so far is stored at a limit only, whatever paused the job later.
    """
    at_limit = bool(result.diff) or result.error_code in {None, ExitCode.LIMIT_REACHED}
    return result.exit_status == "paused" and not at_limit


def _attempt_lines(row: JobRow, result: JobResult) -> Iterator[str]:
    turns = f" after {result.turns} turns" if result.turns else ""
    yield f"Attempt of {row.job.created_at:%Y-%m-%d %H:%M}{turns}: {_ENDED[result.exit_status]}."
    if result.reason:
        yield f"Reason: {_seen(result.reason)[:500]}"
    if result.plan is not None:
        steps = "; ".join(map(_seen, result.plan.steps))
        yield f"It planned: {_seen(result.plan.summary)[:400]} Steps: {steps[:600]}"
    if result.summary:
        yield f"It said: {_seen(result.summary)[:600]}"
    if result.changes:
        yield f"It changed: {listed([one_line(each.path) for each in result.changes], MAX_FILES)}"
    if result.verification is not None and result.exit_status == "verification_failed":
        yield f"What the harness found:\n{visible(feedback(result.verification)).text}"


def _seen(text: str) -> str:
    """What a rendered page would show of a model's text: nothing hidden reaches the next model."""
    return one_line(visible(text).text)
