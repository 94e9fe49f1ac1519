"""The dashboard, the API and the metrics as one application behind one password."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Match, Route

from app import __version__
from app.config.settings import Settings
from app.jobs.api_keys import ApiKeys
from app.jobs.database import DatabaseError
from app.jobs.health import HealthMetrics
from app.jobs.idempotency import IdempotencyKeys
from app.jobs.job_actions import JobActions
from app.jobs.job_page import JobPages
from app.jobs.queue import JobQueue
from app.server.web import metrics
from app.server.web.api import ApiParts
from app.server.web.api import router as api_router
from app.server.web.api_models import Problem
from app.server.web.job_forms import ACTIONS, JobForms
from app.server.web.log_stream import LogStreams
from app.server.web.pages import HERE, DashboardPages
from app.server.web.password import DashboardPassword, PasswordGuard, is_api
from app.server.web.problems import invalid, problem, refused

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
    engine, clock = files.overview.engine, files.overview.clock
    password = DashboardPassword(settings.web_token, clock)
    actions = JobActions(engine, clock, queue)
    pages = DashboardPages(files, health, actions, password, settings)
    forms = JobForms(actions, password, pages.message)
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
        *(Route(f"/jobs/{{job}}/{action}", forms.act, methods=["POST"]) for action in ACTIONS),
        Route("/metrics", figures),
        *(Route(f"/{name}", asset) for name in ASSETS),
    ]
    app = FastAPI(
        routes=[*routes],
        title="agent-fix",
        version=__version__,
        description="Jobs of agent-fix: start them, follow them, decide on them.",
        exception_handlers={
            404: _for_programs(pages.missing, _refused),
            HTTPException: _for_programs(_plain, _refused),
            DatabaseError: _for_programs(pages.no_database, _no_database),
            RequestValidationError: _for_programs(pages.missing, _invalid),
        },
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.include_router(api_router)
    app.state.api = ApiParts(files, actions, IdempotencyKeys(engine, clock), following)
    app.openapi = lambda: _with_problems(app)  # type: ignore[method-assign]  # as FastAPI's documentation says
    return PasswordGuard(app, password, pages.refusal, {f"/{name}" for name in ASSETS}, ApiKeys(engine, clock))


def _refused(request: Request, error: Exception) -> Response:
    answer = refused(cast("HTTPException", error))
    if answer.status_code == 405:  # the framework names the methods of one route only
        found = [route for route in api_router.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in found for method in getattr(route, "methods", ())}
        answer.headers["allow"] = ", ".join(sorted(methods))
    return answer


def _invalid(_: Request, error: Exception) -> Response:
    return invalid(cast("RequestValidationError", error))


def _no_database(_: Request, __: Exception) -> Response:
    return problem(503, "The database does not answer.")


async def _plain(request: Request, error: Exception) -> Response:
    return await http_exception_handler(request, cast("HTTPException", error))


ErrorHandler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]


def _for_programs(page: ErrorHandler, answer: Callable[[Request, Exception], Response]) -> ErrorHandler:
    """Answers errors of the API as problem+json, and all others as a page."""

    async def either(request: Request, error: Exception) -> Response:
        return answer(request, error) if is_api(request.url.path) else await page(request, error)

    return either


def _with_problems(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description, with the schema of errors, which no route names as its model."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        made["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        app.openapi_schema = made
    return app.openapi_schema
