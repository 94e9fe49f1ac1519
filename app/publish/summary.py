"""A workflow run's summary of a job: the verdict, the plan and the verification, as in the other texts."""

from collections.abc import Iterator
from typing import Final

from app.core.job import Job, JobState
from app.core.result import JobResult
from app.core.text import clip, count
from app.llm.ledger import price
from app.publish.evidence import Caps
from app.publish.markdown import code_span, inline
from app.publish.pull_request_text import shown_model
from app.publish.status_text import HEADLINES, KEPT_IN_RECORD, unpublished_work
from app.publish.verification_text import bullets, meaning, verification_section

MOST: Final = 500_000
"""Characters; GitHub allows a megabyte for each step."""
_LEVELS: Final = (Caps(8_000, 100, 4_000), Caps(1_000, 20, 500), Caps(100, 3, 120))


def step_summary(
    job: Job,
    state: JobState,
    reason: str,
    result: JobResult | None,
    *,
    repository: str = "",
    kept: str = KEPT_IN_RECORD,
) -> str:
    """Markdown, with all text of people and models escaped. `repository` is the address for issue links, because a
    workflow's page does not link numbers. `kept`: where an unpublished change is."""
    issue = linked(job.task.issue.number, repository) if job.task.issue.number else ""
    subject = f"{issue} {inline(clip(job.task.issue.title, 200))}".strip()
    left = "\n\n".join(unpublished_work(job.id, state, result, kept)) if result else ""
    texts = ("\n\n".join((subject, *_parts(job, reason, result, caps, left))) + "\n" for caps in _LEVELS)
    texts = (f"## {HEADLINES[state]}\n\n{text}" for text in texts)
    return next((text for text in texts if len(text) <= MOST), f"## {HEADLINES[state]}\n")


def linked(number: int, repository: str) -> str:
    """A link to an issue or pull request; either address redirects to the other."""
    return f"[#{number}]({repository}/issues/{number})" if repository else f"#{number}"


def _parts(job: Job, reason: str, result: JobResult | None, caps: Caps, left: str) -> Iterator[str]:
    if reason:
        yield inline(clip(reason, caps.text))
    if result is None:
        return
    if result.hint:
        yield inline(clip(result.hint, caps.text))
    if left:
        yield left
    if result.url:
        yield f"<{result.url}>"
    if result.plan is not None and result.plan.steps:
        yield f"### Plan\n\n{inline(clip(result.plan.summary, caps.text))}"
        yield bullets(result.plan.steps, caps, numbered=True)
    if result.verification is not None:
        verdict = result.verification.verdict
        yield f"### Verification\n\n**{verdict.capitalize()}.** {meaning(result.verification)}"
        yield verification_section(result.verification, job.task.base, result.commit, caps)
    elif result.summary and not left:
        yield inline(clip(result.summary, caps.text))
    model = code_span(clip(shown_model(job.main_model), 60))
    yield f"<sub>{model} · {count(result.turns, 'turn')} · {price(result.usage)}</sub>"
