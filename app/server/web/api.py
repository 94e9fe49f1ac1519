"""The dashboard's data as JSON, for programs."""

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.core.text import plain
from app.jobs.job_page import JobPage, JobPages
from app.jobs.queries import JobOverview, JobSummary
from app.jobs.queue import JobQueue
from app.jobs.store import ProgressRow
from app.server.web import formatting
from app.server.web.job_filter import ListQuery

STOPPED_BY_API = "Stopped through the API."
MAX_LINES = 1_000


class JsonApi:
    """Answers in JSON. Money is in micro-dollars, times are ISO 8601."""

    def __init__(self, files: JobPages, queue: JobQueue) -> None:
        self._files = files
        self._queue = queue

    @property
    def _overview(self) -> JobOverview:
        return self._files.overview

    async def jobs(self, request: Request) -> Response:
        """`state` (one, or active, waiting, done, ended), `repository` (owner/name), `before` and `limit`."""
        limit = request.query_params.get("limit", "50")
        if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:6]) <= 200):
            return _refused(400, "limit must be a number from 1 to 200")
        return await asyncio.to_thread(self._jobs, request, ListQuery.of(request.query_params), int(limit))

    def _jobs(self, request: Request, job_filter: ListQuery, limit: int) -> Response:
        if request.query_params.get("state", "") != job_filter.state:
            return _refused(400, "unknown state")
        chosen = None
        if job_filter.repository:
            named = (number for number, name in self._overview.repositories().items() if name == job_filter.repository)
            chosen = next(named, -1)
        before = request.query_params.get("before", "")[:40]
        page = self._overview.page(states=job_filter.states, repository=chosen, before=before, limit=limit)
        return JSONResponse({"jobs": [listed_json(job) for job in page.jobs], "before": page.before or None})

    async def job(self, request: Request) -> Response:
        page = await asyncio.to_thread(self._files.job_file, request.path_params["job"], lines=0)
        return JSONResponse(job_json(page)) if page else _missing()

    async def log(self, request: Request) -> Response:
        """At most 1,000 lines after the line of number `after`."""
        job, after = request.path_params["job"], request.query_params.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            return _refused(400, "after must be a line number")
        if await asyncio.to_thread(self._overview.one, job) is None:
            return _missing()
        lines = await asyncio.to_thread(self._overview.log, job, int(after), MAX_LINES)
        return JSONResponse(
            {"lines": [line_json(line) for line in lines], "after": lines[-1].seq if lines else int(after)}
        )

    async def stop(self, request: Request) -> Response:
        """202 and whether that ended the job or its process must end first; 409 if the job is already final."""
        page = await asyncio.to_thread(self._files.job_file, request.path_params["job"], lines=0)
        if page is None:
            return _missing()
        if page.final or page.job_context is None:
            return _refused(409, "it has already ended" if page.final else "it belongs to the command line")
        ended = await asyncio.to_thread(self._queue.stop, page.listed.id, STOPPED_BY_API)
        return JSONResponse({"status": "stopped" if ended else "stopping"}, 202)


def listed_json(job: JobSummary) -> dict[str, Any]:
    shown = asdict(job)
    shown["owner"] = job.owner is not None
    shown |= {"created_at": formatting.iso(job.created_at), "updated_at": formatting.iso(job.updated_at)}
    return {("at_work" if name == "owner" else name): value for name, value in shown.items()}


def job_json(page: JobPage) -> dict[str, Any]:
    job_context = page.job_context
    return {
        **listed_json(page.listed),
        "base": page.job.task.base,
        "branch": page.job.branch,
        "aim": job_context.aim if job_context else "fix",
        "limits": page.job.budget.model_dump(mode="json"),
        "attempts": page.attempts,
        "crashes": page.crashes,
        "plan": page.plan,
        "usage": page.totals.model_dump(mode="json"),
        "result": page.result.model_dump(mode="json", exclude={"trajectory"}) if page.result else None,
        "messages": [{**asdict(message), "at": formatting.iso(message.at)} for message in page.messages],
        "effects": [
            {**asdict(effect), "at": formatting.iso(effect.at) if effect.at else None, "url": effect.url or None}
            for effect in page.effects
        ],
    }


def line_json(line: ProgressRow) -> dict[str, Any]:
    return {"seq": line.seq, "at": formatting.iso(line.at), "kind": line.kind, "text": plain(line.text)}


def _missing() -> Response:
    return _refused(404, "unknown job")


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)
