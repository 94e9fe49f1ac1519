"""The dashboard, the API and the metrics as one application behind the sign-in."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route

from app import __version__
from app.config.settings import Settings
from app.jobs.accounts import ApiKeys, WebSessions
from app.jobs.audit import AuditLog
from app.jobs.job_actions import JobActions
from app.jobs.operations import HealthMetrics, OperationsOverview
from app.jobs.outcomes import outcome_totals
from app.jobs.queries import JobList, JobPages
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.requests import IdempotencyKeys
from app.jobs.tables import DatabaseError
from app.server.web import metrics
from app.server.web.access import METRICS, AccessGuard, PageRules, is_local
from app.server.web.api import ApiParts
from app.server.web.api import router as api_router
from app.server.web.api_models import Problem, invalid, problem, problem_of_exception
from app.server.web.log_stream import LogStreams
from app.server.web.pages import ACTIONS, HERE, DashboardPages, JobForms, OperatorPages
from app.server.web.password import DashboardPassword, FailureLimit, is_api
from app.server.web.sign_in import OPEN, SignInClient, SignInPages

ASSETS: Mapping[str, str] = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class SiteParts:
    """What the pages work with. `ending` says that the process is about to end, so that streams end too."""

    files: JobPages
    health: HealthMetrics
    queue: JobQueue
    sign_in: SignInClient | None
    """None if people do not sign in with GitHub."""
    answers: Mapping[str, int]
    """The receiver's counts of its answers to webhooks."""
    ending: Callable[[], bool] = lambda: False


def site(settings: Settings, parts: SiteParts) -> AccessGuard:
    files, engine, clock = parts.files, parts.files.overview.engine, parts.files.overview.clock
    password = DashboardPassword(settings.web_token, clock)
    actions = JobActions(engine, clock, parts.queue, settings.defaults)
    audit, listing = AuditLog(engine, clock), JobList(engine, clock)
    limits = QueueLimits(jobs=settings.jobs, per_repository=settings.jobs_per_repository)
    operations = OperationsOverview(engine, clock, limits)
    pages = DashboardPages(files, listing, parts.health, actions, settings, operations=operations)
    signing_in = None
    if parts.sign_in is not None:
        signing_in = SignInPages(
            client=parts.sign_in,
            sessions=WebSessions(engine, clock),
            audit=audit,
            clock=clock,
            operators=settings.operators,
            public_url=settings.public_url,
            secret=settings.client_secret,
            failures=FailureLimit(clock),
            render=pages.render,
        )
    following = LogStreams(files.overview, ending=parts.ending)
    public = {f"/{name}" for name in ASSETS} | set(OPEN if signing_in else ())
    operators = OperatorPages(operations, parts.health, audit, pages.render)
    forms = JobForms(actions, audit, pages.message)
    app = FastAPI(
        routes=_routes(parts, pages, forms=forms, following=following, operators=operators, signing_in=signing_in),
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
    app.state.api = ApiParts(files, listing, actions, audit, IdempotencyKeys(engine, clock), following)
    app.openapi = lambda: _with_problems(app)  # type: ignore[method-assign]  # as FastAPI's documentation says
    keys, local = ApiKeys(engine, clock), is_local(settings.host)
    return AccessGuard(app, password, pages.refusal, public, keys, signing_in, local)


def _routes(
    parts: SiteParts,
    pages: DashboardPages,
    *,
    forms: JobForms,
    following: LogStreams,
    operators: OperatorPages,
    signing_in: SignInPages | None,
) -> list[BaseRoute]:
    """Every page with what it demands of a visitor; the API's routes check the scopes of keys themselves."""
    rules = PageRules(parts.files.job_queries.context, pages.refusal, pages.missing)

    engine = parts.files.overview.engine

    async def figures(_: Request) -> Response:
        totals = asyncio.to_thread(outcome_totals, engine)
        found, ended = await asyncio.gather(asyncio.to_thread(parts.health.figures), totals)
        text = metrics.render(found, parts.answers, ended)
        return PlainTextResponse(text, headers={"content-type": metrics.CONTENT_TYPE})

    async def events(request: Request) -> Response:
        return await following.events(request, partial(rules.still_reads, request))

    async def asset(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return FileResponse(HERE / "static" / name, media_type=ASSETS[name])

    routes: list[BaseRoute] = [
        Route("/", pages.jobs),
        Route("/jobs/{job}", rules.for_readers(pages.job)),
        Route("/jobs/{job}/log", rules.for_readers(pages.log)),
        Route("/jobs/{job}/change.patch", rules.for_readers(pages.change)),
        Route("/jobs/{job}/events", rules.for_readers(events)),
        *(Route(f"/jobs/{{job}}/{action}", rules.for_writers(forms.act), methods=["POST"]) for action in ACTIONS),
        Route("/operators", rules.for_operators(operators.page)),
        Route("/audit", rules.for_operators(operators.audit)),
        Route("/operators/retry", rules.for_operators(operators.retry), methods=["POST"]),
        Route(METRICS, rules.for_operators(figures)),
        *(Route(f"/{name}", asset) for name in ASSETS),
    ]
    if signing_in is not None:
        routes += [
            Route("/sign-in", signing_in.page),
            Route("/sign-in/github", signing_in.start),
            Route("/sign-in/done", signing_in.done),
            Route("/sign-out", signing_in.leave, methods=["POST"]),
        ]
    return routes


def _refused(request: Request, error: Exception) -> Response:
    answer = problem_of_exception(cast("HTTPException", error))
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
