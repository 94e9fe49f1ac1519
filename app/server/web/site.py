"""The dashboard, the API and the metrics as one application behind one password."""

import asyncio
from collections.abc import Callable, Mapping

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.config.settings import Settings
from app.jobs.database import DatabaseError
from app.jobs.health import HealthMetrics
from app.jobs.job_page import JobPages
from app.jobs.queue import JobQueue
from app.server.web import metrics
from app.server.web.api import JsonApi
from app.server.web.log_stream import LogStreams
from app.server.web.pages import HERE, DashboardPages
from app.server.web.password import DashboardPassword, PasswordGuard

ASSETS: Mapping[str, str] = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


def site(
    settings: Settings,
    files: JobPages,
    health: HealthMetrics,
    queue: JobQueue,
    *,
    answers: Mapping[str, int],
    ending: Callable[[], bool] = lambda: False,
) -> PasswordGuard:
    """`answers` are the receiver's counts; `ending` says that the process is about to end, so that streams end too."""
    password = DashboardPassword(settings.web_token, files.overview.clock)
    pages, api = DashboardPages(files, health, queue, password, settings), JsonApi(files, queue)
    following = LogStreams(files.overview, ending=ending)

    async def figures(_: Request) -> Response:
        found = await asyncio.to_thread(health.figures)
        return PlainTextResponse(metrics.render(found, answers), headers={"content-type": metrics.CONTENT_TYPE})

    async def asset(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return FileResponse(HERE / "static" / name, media_type=ASSETS[name])

    routes = [
        Route("/", pages.jobs),
        Route("/jobs/{job}", pages.job),
        Route("/jobs/{job}/log", pages.log),
        Route("/jobs/{job}/change.patch", pages.change),
        Route("/jobs/{job}/events", following.events),
        Route("/jobs/{job}/stop", pages.stop, methods=["POST"]),
        Route("/api/jobs", api.jobs),
        Route("/api/jobs/{job}", api.job),
        Route("/api/jobs/{job}/log", api.log),
        Route("/api/jobs/{job}/stop", api.stop, methods=["POST"]),
        Route("/metrics", figures),
        *(Route(f"/{name}", asset) for name in ASSETS),
    ]
    app = FastAPI(
        routes=[*routes],
        exception_handlers={404: pages.missing, DatabaseError: pages.no_database},
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    return PasswordGuard(app, password, pages.refusal, {f"/{name}" for name in ASSETS})
