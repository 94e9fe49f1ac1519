"""Who may do what: every role against every route of the application, which are read from the application itself."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from app.jobs.accounts import ApiKeys
from app.server.context import ServerContext
from app.server.receiver import application
from app.server.web.access import AccessGuard
from tests.support.signed_in import ROLES, GitHubPeople, github_people
from tests.support.web_client import HOST, TOKEN, WebClient, settings, web_client

JOB = "seed12"
"""In the first repository, and final, so that a stream of it ends."""
COLUMNS = ("nobody", *ROLES, "web token", "key to read", "key to write", "key of an admin")
"""Nobody is signed in; a stranger is, and may open no repository."""
EVERYBODY = "y y y y y y y y y y y y"
PEOPLE = "- y y y y y y y - - - -"
READERS = "- h y y y y y y - - - -"
WRITERS = "- h x x y y y y - - - -"
OPERATORS = "- x x x x x x y - - - -"
API_READS = "- - - - - - - - y y y x"
API_WRITES = "- - - - - - - - y x y x"
MATRIX = {
    # y: may; x: refused; h: hidden, as if it were not there; -: has to sign in
    "POST /webhook": EVERYBODY,  # with its own signature
    "GET /livez": EVERYBODY,
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /style.css": EVERYBODY,
    "GET /live.js": EVERYBODY,
    "GET /icon.svg": EVERYBODY,
    "GET /sign-in": EVERYBODY,
    "GET /sign-in/github": EVERYBODY,
    "GET /sign-in/done": EVERYBODY,
    "POST /sign-out": PEOPLE,
    "GET /": PEOPLE,
    "GET /jobs/{job}": READERS,
    "GET /jobs/{job}/log": READERS,
    "GET /jobs/{job}/change.patch": READERS,
    "GET /jobs/{job}/events": READERS,
    "POST /jobs/{job}/stop": WRITERS,
    "POST /jobs/{job}/retry": WRITERS,
    "POST /jobs/{job}/plan": WRITERS,
    "POST /jobs/{job}/approve": WRITERS,
    "POST /jobs/{job}/answer": WRITERS,
    "POST /jobs/{job}/continue": WRITERS,
    "GET /operators": OPERATORS,
    "POST /operators/retry": OPERATORS,
    "GET /audit": OPERATORS,
    "GET /metrics": "- x x x x x x y y - - -",
    "GET /api/openapi.json": "- - - - - - - - y y y y",
    "GET /api/audit": "- - - - - - - - y x x y",
    "GET /api/jobs": API_READS,
    "POST /api/jobs": API_WRITES,
    "GET /api/jobs/{job}": API_READS,
    "GET /api/jobs/{job}/log": API_READS,
    "GET /api/jobs/{job}/events": API_READS,
    "GET /api/jobs/{job}/plan": API_READS,
    "PUT /api/jobs/{job}/plan": API_WRITES,
    "POST /api/jobs/{job}/approve": API_WRITES,
    "POST /api/jobs/{job}/answer": API_WRITES,
    "POST /api/jobs/{job}/continue": API_WRITES,
    "POST /api/jobs/{job}/retry": API_WRITES,
    "POST /api/jobs/{job}/cancel": API_WRITES,
    "GET /api/jobs/{job}/patch": API_READS,
    "GET /api/jobs/{job}/trajectory": API_READS,
}
NOT_STORED = {"GET /jobs/{job}/change.patch", "GET /api/jobs/{job}/patch", "GET /api/jobs/{job}/trajectory"}
NOT_STORED |= {"GET /api/jobs/{job}/plan"}
"""What the job has none of: 404 for everybody who may see it too."""


def routes_of(routes: list[BaseRoute]) -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            guard = route.app
            assert isinstance(guard, AccessGuard)
            assert isinstance(guard.app, FastAPI)
            yield from routes_of(guard.app.routes)
        elif (router := getattr(route, "original_router", None)) is not None:  # how FastAPI keeps a router
            yield from routes_of(router.routes)
        else:
            assert isinstance(route, Route) or hasattr(route, "methods"), f"{route} is of a kind that is not listed"
            for method in getattr(route, "methods", None) or ():
                if method != "HEAD":
                    yield f"{method} {getattr(route, 'path', '')}"


def outcome(answer: httpx.Response) -> str:
    to_sign_in = answer.headers.get("location", "").startswith("/sign-in?")
    if (answer.status_code == 401 and "webhook" not in str(answer.url)) or to_sign_in:
        return "-"
    if answer.status_code == 404:
        return "h"
    # An expired form is what is told to those who might send it.
    return "x" if answer.status_code == 403 and "This form has expired" not in answer.text else "y"


@pytest.fixture(scope="module")
def github(tmp_path_factory: pytest.TempPathFactory) -> GitHubPeople:
    return github_people(tmp_path_factory.mktemp("github"))


@pytest.fixture
async def browsers(tmp_path: Path, github: GitHubPeople) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """One for each column, which holds what that role has."""
    async with web_client(tmp_path, sign_in=github.client(), OPERATORS="operator") as here:
        made = {name: httpx.AsyncClient(transport=here.client._transport, base_url=HOST) for name in COLUMNS}
        for role in ROLES:
            made[role].headers["accept"] = "text/html"
            await github.sign_in(made[role], role)
        made["nobody"].headers["accept"] = "text/html"
        for name, token in _tokens(here).items():
            made[name].headers["authorization"] = f"Bearer {token}"
        yield made


def _tokens(here: WebClient) -> dict[str, str]:
    keys = ApiKeys(here.engine, here.clock)
    reads, writes = keys.create("reads", ["read"]), keys.create("writes", ["read", "write"])
    admin = keys.create("admin", ["admin"])
    return {"web token": TOKEN, "key to read": reads, "key to write": writes, "key of an admin": admin}


def test_every_route_has_a_row(tmp_path: Path, github: GitHubPeople) -> None:
    chosen = settings(tmp_path)
    receiving = ServerContext(chosen)
    receiving.prepare()
    try:
        app = application(receiving, sign_in=github.client())
        assert sorted(routes_of(app.routes)) == sorted(MATRIX)
    finally:
        receiving.engine.dispose()


async def test_each_role_may_do_what_its_row_says(browsers: dict[str, httpx.AsyncClient]) -> None:
    found = {}
    for route, row in MATRIX.items():
        method, path = route.split(" ")
        answers = [await browser.request(method, path.format(job=JOB)) for browser in browsers.values()]
        wanted, got = row.split(), [outcome(answer) for answer in answers]
        if route in NOT_STORED:
            got = ["y" if (may, each) == ("y", "h") else each for may, each in zip(wanted, got, strict=True)]
        found[route] = " ".join(got)
    assert found == MATRIX
