"""`agent-fix serve --setup`: a process with no other role, in which a person makes the GitHub App with a browser."""

import asyncio
import hmac
import ipaddress
import json
import re
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.config.settings import Settings, write_app_file
from app.core.errors import AgentFixError, ExitCode
from app.github.auth import MAX_NAME, NewAppResponse, exchange, manifest, page_to_make_it
from app.github.connection import GitHubHost
from app.server.http_limits import bounded_server
from app.server.supervisor import address_of, listen, only_supervisor
from app.server.web.pages import asset, environment
from app.server.web.sign_in import HEADERS, from_our_pages, is_small, single_fields, with_headers

COOKIE = "agent_fix_setup"
MAX_STATES = 20
_ORGANISATION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})")
_HOST = re.compile(r"[A-Za-z0-9.\[\]:-]{1,255}")

Exchange = Callable[[str], Awaitable[NewAppResponse]]
Keep = Callable[[NewAppResponse, str], str]
"""Stores a new App that was created with this public address, or with none; returns the file."""


class SetupPage:
    """Serves the person who has the terminal's token, until an App was created."""

    def __init__(self, *, github_url: str, public_url: str, token: str, exchange: Exchange, keep: Keep) -> None:
        self._github = github_url
        self._public = public_url
        self._token = token
        self._exchange = exchange
        self._keep = keep
        self._states: dict[str, dict[str, str]] = {}
        """Forms that were filled in, by the state that GitHub hands back."""
        self._template = environment().get_template("setup.html")
        self.made: NewAppResponse | None = None
        self.ended = asyncio.Event()

    def app(self) -> ASGIApp:
        routes = [
            Route("/setup", self.form),
            Route("/setup", self.begin, methods=["POST"]),
            Route("/setup/confirm", self.confirm),
            Route("/setup/done", self.done),
            Route("/style.css", asset),
            Route("/icon.svg", asset),
        ]
        app = FastAPI(routes=[*routes], docs_url=None, redoc_url=None, openapi_url=None)

        async def with_our_headers(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await app(scope, receive, with_headers(send))

        return with_our_headers

    async def form(self, request: Request) -> Response:
        if given := request.query_params.get("token", ""):
            if not _same(given, self._token):
                return self._stranger()
            answer = RedirectResponse("/setup", 303)  # removes the token from the address bar
            secure = request.url.scheme == "https"
            answer.set_cookie(COOKIE, self._token, path="/setup", httponly=True, samesite="lax", secure=secure)
            return answer
        if not self._knows(request):
            return self._stranger()
        empty = {"name": "", "organisation": "", "address": self._public}
        form = self._states.get(request.query_params.get("state", ""), empty)
        return self._render("form", status=200, problem="", **form)

    async def begin(self, request: Request) -> Response:
        if not self._knows(request) or not from_our_pages(request.headers) or not is_small(request.headers):
            return self._stranger()
        fields = await single_fields(request)
        form = {name: fields.get(name, "").strip() for name in ("name", "organisation", "address")}
        if problem := _problem(form):
            return self._render("form", status=400, problem=problem, **form)
        # A separate page, so that people can return to it from GitHub; a form's answer would be gone.
        return RedirectResponse(f"/setup/confirm?state={self._new_state(form)}", 303)

    async def confirm(self, request: Request) -> Response:
        """The manifest as a form that the person sends to GitHub."""
        state, host = request.query_params.get("state", ""), request.headers.get("host", "")
        form = self._states.get(state)
        if not self._knows(request) or form is None or not _HOST.fullmatch(host):
            return self._stranger()
        address = form["address"].rstrip("/")
        forwarded = bool(urlsplit(address).path)  # a forwarder's channel, which must stay secret
        here = f"{request.url.scheme}://{host}"
        wanted = manifest(
            name=form["name"],
            home=self._github if forwarded or not address else address,
            hook=address if forwarded or not address else f"{address}/webhook",
            redirect=f"{here}/setup/done",
            callback=f"{here if forwarded or not address else address}/sign-in/done",
        )
        access = wanted["default_permissions"].items()
        page = self._render(
            "confirm",
            action=page_to_make_it(self._github, form["organisation"], state),
            state=state,
            manifest=json.dumps(wanted),
            wanted=wanted,
            can={
                level: [name.replace("_", " ") for name, given in access if given == level]
                for level in ("read", "write")
            },
            owner=form["organisation"] or "your own account",
            github=self._github,
        )
        github = "{0.scheme}://{0.netloc}".format(urlsplit(self._github))
        policy = HEADERS["content-security-policy"].replace("form-action 'self'", f"form-action 'self' {github}")
        page.headers["content-security-policy"] = policy
        page.headers["referrer-policy"] = "strict-origin"  # so that GitHub does not get the form with `Origin: null`
        return page

    async def done(self, request: Request) -> Response:
        """GitHub redirects the person here; the state proves that it was our form."""
        form = self._states.pop(request.query_params.get("state", ""), None)
        if not self._knows(request) or form is None or self.made is not None:
            return self._stranger()
        try:
            app = await self._exchange(request.query_params.get("code", ""))
            place = self._keep(app, form["address"].rstrip("/"))
        except AgentFixError as error:
            return self._render("failed", status=502, message=error.message, hint=error.hint)
        self.made = app
        self.ended.set()
        return self._render("done", app=app, place=place, github=self._github)

    def _knows(self, request: Request) -> bool:
        return _same(request.cookies.get(COOKIE, ""), self._token)

    def _new_state(self, form: dict[str, str]) -> str:
        while len(self._states) >= MAX_STATES:
            self._states.pop(next(iter(self._states)))
        state = secrets.token_urlsafe(24)
        self._states[state] = form
        return state

    def _stranger(self) -> Response:
        return self._render("stranger", status=403)

    def _render(self, step: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._template.render(step=step, most_name=MAX_NAME, visitor=None, **values), status)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _problem(form: dict[str, str]) -> str:
    if not form["name"] or len(form["name"]) > MAX_NAME or not form["name"].isprintable():
        return f"Enter a name of at most {MAX_NAME} characters."
    if form["organisation"] and not _ORGANISATION.fullmatch(form["organisation"]):
        return "This is not the name of an organization."
    return _problem_of_address(form["address"]) if form["address"] else ""


def _problem_of_address(address: str) -> str:
    try:
        found = urlsplit(address)
    except ValueError:  # such as `http://[`
        found = urlsplit("")
    if found.scheme not in {"http", "https"} or not found.hostname or found.query or found.fragment or found.username:
        return "The address must look like https://agent-fix.example.org."
    try:
        loopback = ipaddress.ip_address(found.hostname).is_loopback
    except ValueError:
        loopback = found.hostname == "localhost" or found.hostname.endswith(".localhost")
    return (
        "GitHub cannot reach an address of this machine only. Leave it empty to work without webhooks."
        if loopback
        else ""
    )


SECONDS = 3_600.0
LINGER_SECONDS = 2.0
"""So that the last page arrives with its style."""


def run_setup(settings: Settings) -> int:
    """Serve the set-up page until an App was created, an hour has passed, or Ctrl-C."""
    if settings.app_id or settings.app_key:
        raise AgentFixError(
            f"The GitHub App {settings.app_id} is already configured.",
            hint=f"To create another, first remove it from {settings.state}/app.env or the environment.",
        )
    token = secrets.token_urlsafe(24)
    host = GitHubHost.of(settings)
    page = SetupPage(
        github_url=settings.github_url,
        public_url=settings.public_url,
        token=token,
        exchange=partial(exchange, host),
        keep=partial(keep, settings),
    )
    with only_supervisor(settings), listen(settings.host, settings.port) as listener:
        _invite(f"{address_of(listener)}/setup?token={token}", listener.getsockname()[1])
        asyncio.run(_serve(page, listener.dup()))
    if page.made is None:
        print("No App was created.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    _print_done(settings, page.made)
    return ExitCode.OK


def keep(settings: Settings, app: NewAppResponse, address: str) -> str:
    """Write the App's settings for `agent-fix serve`; returns the file."""
    values = {
        "AGENT_FIX_APP_ID": str(app.id),
        "AGENT_FIX_WEBHOOK_SECRET": app.webhook_secret or secrets.token_hex(32),
        "AGENT_FIX_PRIVATE_KEY": app.pem,
        "AGENT_FIX_CLIENT_ID": app.client_id,
        "AGENT_FIX_CLIENT_SECRET": app.client_secret,
        "AGENT_FIX_GITHUB_URL": settings.github_url,
        "AGENT_FIX_GITHUB_API_URL": settings.github_api_url,
    }
    if address and not urlsplit(address).path.strip("/"):
        values["AGENT_FIX_PUBLIC_URL"] = address
    return str(write_app_file(settings.state, values))


async def _serve(page: SetupPage, listener: socket.socket) -> None:
    server = bounded_server(page.app())
    serving, made = asyncio.create_task(server.serve([listener])), asyncio.create_task(page.ended.wait())
    done, _ = await asyncio.wait([serving, made], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if made in done:
        await asyncio.sleep(LINGER_SECONDS)
    made.cancel()
    server.should_exit = True
    await serving


def _invite(address: str, port: int) -> None:
    print("Open this address in your browser to create the GitHub App. It works for one hour:\n")
    print(f"  {address}\n")
    print(
        f"If your browser is on another machine, first run: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE\n", flush=True
    )


def _print_done(settings: Settings, app: NewAppResponse) -> None:
    print(
        f"The App {app.slug} ({app.id}) was created. Its key is in {settings.state}/app.env, which only you can read.\n"
    )
    print("Next steps:")
    print(f"  1. Install it in your repositories: {app.html_url}/installations/new")
    print("  2. Set AGENT_FIX_MODEL and the model's key, for example ANTHROPIC_API_KEY.")
    print("  3. agent-fix serve")
