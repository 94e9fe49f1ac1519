"""The dashboard, the API and the metrics as one application behind the sign-in."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from app import __version__
from app.jobs.accounts import ApiKeys, WebSessions
from app.jobs.job_actions import IdempotencyKeys, JobActions
from app.jobs.tables import DatabaseError
from app.jobs.trigger_log import AuditLog
from app.server.context import ServerContext
from app.server.web.access import METRICS, AccessGuard, PageRules, is_local
from app.server.web.api import ApiParts, LogStreams
from app.server.web.api import router as api_router
from app.server.web.api_models import Problem, invalid, problem, problem_of_exception
from app.server.web.pages import ACTIONS, ASSETS, DashboardPages, JobForms, OperatorPages, asset
from app.server.web.sign_in import OPEN, DashboardPassword, FailureLimit, SignInPages, is_api

if TYPE_CHECKING:  # its library is imported only if people sign in with GitHub
    from app.github.user_sign_in import GitHubSignIn


def site(
    server_context: ServerContext,
    sign_in: "GitHubSignIn | None",
    *,
    answers: Mapping[str, int],
    ending: Callable[[], bool],
) -> AccessGuard:
    """`sign_in` is None if people do not sign in with GitHub; `answers` counts the receiver's answers to webhooks."""
    settings, engine, clock = server_context.settings, server_context.engine, server_context.clock
    password = DashboardPassword(settings.web_token, clock)
    actions, audit = JobActions(engine, clock, server_context.queue, settings.defaults), AuditLog(engine, clock)
    pages = DashboardPages(server_context, actions)
    signing_in = None
    if sign_in is not None:
        signing_in = SignInPages(
            client=sign_in,
            sessions=WebSessions(engine, clock),
            audit=audit,
            clock=clock,
            operators=settings.operators,
            public_url=settings.public_url,
            secret=settings.client_secret,
            failures=FailureLimit(clock),
            render=pages.render,
        )
    following = LogStreams(server_context.overview, ending=ending)
    public = {f"/{name}" for name in ASSETS} | set(OPEN if signing_in else ())
    forms, operators = (
        JobForms(actions, audit, pages.message),
        OperatorPages(server_context, audit, pages.render, answers),
    )
    rules = PageRules(server_context.job_queries.context, pages.refusal, pages.missing)
    app = FastAPI(
        routes=_routes(pages, forms, operators, following, rules, signing_in=signing_in),
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
    app.state.api = ApiParts(server_context.overview, actions, audit, IdempotencyKeys(engine, clock), following)
    app.openapi = lambda: _with_problems(app)  # type: ignore[method-assign]  # as FastAPI's documentation says
    keys, local = ApiKeys(engine, clock), is_local(settings.host)
    return AccessGuard(app, password, pages.refusal, public, keys, signing_in, local)


def _routes(
    pages: DashboardPages,
    forms: JobForms,
    operators: OperatorPages,
    following: LogStreams,
    rules: PageRules,
    *,
    signing_in: SignInPages | None,
) -> list[BaseRoute]:
    """Every page with what it demands of a visitor; the API's routes check the scopes of keys themselves."""

    async def events(request: Request) -> Response:
        return await following.events(request, partial(rules.still_reads, request))

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
        Route(METRICS, rules.for_operators(operators.metrics)),
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
