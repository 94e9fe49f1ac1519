"""Builds the answers of the API from what is stored."""

from dataclasses import asdict
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.core.text import plain
from app.jobs.job_page import JobPage
from app.jobs.plan_versions import PlanVersion
from app.jobs.queries import JobSummary
from app.jobs.queue import QueuePlace
from app.jobs.store import ProgressRow
from app.server.web.api_models import (
    EffectJson,
    JobDetails,
    LimitsJson,
    ListedJob,
    LogLine,
    MessageJson,
    PlanAnswer,
    PlanAuthor,
    PlanJson,
    QueuePosition,
    ResultJson,
    UsageJson,
    dollars,
)


def newest_plan(known: tuple[PlanVersion, ...]) -> PlanAnswer:
    """The newest version, unchecked: a model's plan may be longer than an edited one."""
    authors = [PlanAuthor(version=each.version, who=each.who, at=each.at) for each in known]
    plan = PlanJson.model_construct(**known[-1].plan.model_dump(mode="json"))
    return PlanAnswer.model_construct(**authors[-1].model_dump(), plan=plan, versions=authors)


def listed(job: JobSummary) -> ListedJob:
    return ListedJob.model_validate(_listed(job))


def _listed(job: JobSummary) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.state,
        "reason": job.reason,
        "repository": job.repository,
        "number": job.number,
        "title": job.title,
        "is_pull_request": job.is_pull_request,
        "aim": job.aim or "fix",
        "requested_by": job.login,
        "verdict": job.verdict or None,
        "pull_request": job.url or None,
        "model": job.model,
        "runner": job.runner,
        "cost": dollars(job.cost),
        "budget": dollars(job.budget),
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "at_work": job.owner is not None,
        "stop_requested": job.stop_requested,
        "waiting_for": "rest" if job.waiting_for == "rest_ended" else job.waiting_for or None,
    }


def details(page: JobPage, queue: QueuePlace | None = None) -> JobDetails:
    found, totals, budget = page.result, page.totals, page.job.budget
    usage = totals.model_dump(include={"calls", "prompt_tokens", "cached_tokens", "completion_tokens"})
    result = None
    if found is not None:
        same = found.model_dump(include=set(ResultJson.model_fields) - {"verification"})
        kept = {"has_patch": bool(found.diff), "has_trajectory": bool(found.trajectory)}
        result = ResultJson.model_validate({**same, **kept, "verification": found.verification})
    position = None
    if queue is not None:
        seconds = int(queue.waiting.total_seconds())
        waits: Literal["pull_requests", "worker"] = (
            "pull_requests" if queue.waiting_for == "pull_requests" else "worker"
        )
        position = QueuePosition(
            place=queue.place, of=queue.of, waiting_seconds=seconds, urgent=queue.urgent, waiting_for=waits
        )
    return JobDetails(
        **_listed(page.listed),
        base=page.job.task.base,
        branch=page.job.branch,
        models={kind: name for kind, name in page.job.chosen if name},
        fallbacks=list(page.job_context.config.fallbacks) if page.job_context else [],
        limits=LimitsJson(usd=dollars(budget.usd), minutes=budget.minutes, steps=budget.steps),
        usage=UsageJson(**usage, cost=dollars(totals.cost)),
        plan=page.plan,
        result=result,
        messages=[MessageJson(**asdict(each)) for each in page.messages],
        effects=[
            EffectJson.model_validate({**asdict(each), "url": each.url or None}, extra="ignore")
            for each in page.effects
        ],
        attempts=page.attempts,
        crashes=page.crashes,
        queue=position,
    )


def line(row: ProgressRow) -> LogLine:
    return LogLine(seq=row.seq, at=row.at, kind=row.kind, text=plain(row.text))


def download(content: bytes | None, name: str, media_type: str) -> Response:
    if content is None:
        raise HTTPException(404, "There is none.")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)
