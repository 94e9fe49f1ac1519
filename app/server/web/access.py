"""Authentication and authorization: API tokens, signed-in people, cross-site request checks."""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.jobs.accounts import ApiCaller, ApiKeys
from app.jobs.context import JobContext
from app.jobs.tables import DatabaseError
from app.server.web.api_models import problem
from app.server.web.sign_in import (
    BEARER,
    MAX_BYTES,
    OPERATOR,
    SIGN_IN,
    DashboardPassword,
    SignInPages,
    Visitor,
    address,
    by_trusted_proxy,
    client_of,
    from_our_pages,
    is_api,
    is_small,
    with_headers,
)

METRICS: Final = "/metrics"
NO_SIGN_IN: Final = (
    "Password sign-in works only while the server listens on localhost. To let people sign in with GitHub, set "
    "AGENT_FIX_CLIENT_ID and AGENT_FIX_CLIENT_SECRET."
)
READS_ONLY: Final = (
    "Acting on a job requires write access to its repository and, if the repository sets `allowed_actors`, being on "
    "that list."
)
UNTRUSTED_PROXY: Final = (
    "Password sign-in from %s is blocked for a minute, for everybody behind it: it sent X-Forwarded-For, but is not in "
    "AGENT_FIX_TRUSTED_PROXIES. If it is your reverse proxy, add its address there."
)
Endpoint = Callable[[Request], Awaitable[Response]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccessGuard:
    """Puts an application behind the sign-in, and adds headers against framing, reading and caching.

    Sets `state.caller` for the API, and `state.visitor` for pages.
    """

    app: ASGIApp
    password: DashboardPassword
    refuse: Callable[[Headers, int, str, str], Response]
    """Builds an answer from the request's headers, a status, a title and a text."""
    public: Collection[str]
    """Paths that are open to everybody: the assets of the refusal pages, and the sign-in itself."""
    keys: ApiKeys
    """Keys that open the API only."""
    sign_in: SignInPages | None
    """None if people do not sign in with GitHub; then the password opens the pages, with `local`."""
    local: bool
    """Whether the server listens on this machine alone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = None if scope["path"] in self.public else await self._refusal(scope)
        await (refusal or self.app)(scope, receive, with_headers(send))

    async def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        by_program = is_api(path) or (path == METRICS and "authorization" in headers)
        try:
            who = await (self._program(scope) if by_program else self._person(scope))
        except DatabaseError:
            return self._refuse(scope, 503, "The database is not responding", "Try again in a moment.")
        if isinstance(who, Response):
            return who
        if isinstance(who, ApiCaller) and not is_api(path):
            if path != METRICS and not (self.local and is_local(client_of(Request(scope)))):
                return self._refuse(scope, 403, "Sign-in is not set up", NO_SIGN_IN)
            who = Visitor(name="operator", form_key=self.password.form_key, operator=True)
        state = scope.setdefault("state", {})
        state["caller" if isinstance(who, ApiCaller) else "visitor"] = who
        state["authenticate"] = partial(self._authenticate_again, scope)
        return self._request_refusal(scope, headers)

    async def _authenticate_again(self, scope: Scope) -> ApiCaller | Visitor | None:
        """Who has an open stream now; None once their key or session is gone. Counts no failure."""
        state, by_api = scope["state"], is_api(scope["path"])
        known: ApiCaller | Visitor = state["caller" if by_api else "visitor"]
        if by_api and known is not OPERATOR:
            return await self._key_owner(scope)
        return known if by_api or self.sign_in is None else await self.sign_in.visitor(Request(scope))

    def _request_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The refusal of an authenticated request that is cross-site, malformed or too large; None if acceptable."""
        if scope["method"] not in {"GET", "HEAD"} and not from_our_pages(headers):
            return self._refuse(scope, 403, "This request came from another site", "Nothing was changed.")
        if any(ord(letter) < 0x20 for letter in scope["path"]):  # no route has it, and URLs drop it before they compare
            return self._refuse(scope, 404, "Page not found", "Check the address.")
        if not is_small(headers):
            return self._refuse(scope, 413, "The body is too large", f"At most {MAX_BYTES:,} bytes are read.")
        return None

    async def _person(self, scope: Scope) -> Visitor | ApiCaller | Response:
        """The signed-in visitor, a redirect to the sign-in page, or a 401 for requests that are not for HTML."""
        if self.sign_in is None:
            return await self._program(scope)
        request = Request(scope)
        found = await self.sign_in.visitor(request)
        if found is not None:
            return found
        if scope["method"] == "GET" and "text/html" in request.headers.get("accept", ""):
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", 303)
        return self._refuse(scope, 401, "Sign in", "Open the dashboard in your browser and sign in with GitHub.")

    async def _program(self, scope: Scope) -> ApiCaller | Response:
        """Whoever has the password or, for the API, one of the keys."""
        client, headers = address(scope), Headers(scope=scope)
        authorization = headers.get("authorization", "")
        # A key cannot be guessed, so it is accepted even if somebody behind the same proxy tries passwords.
        if found := await self._key_owner(scope):
            return found
        # Nothing is awaited from here on: requests at once must not all pass before the first of them counts.
        left = self.password.refuses(client)
        if left is not None:
            seconds = str(int(left.total_seconds()) + 1)
            refusal = self._refuse(scope, 429, "Too many wrong passwords", f"Try again in {seconds} seconds.")
            refusal.headers["retry-after"] = seconds
            return refusal
        if self.password.admits(client, authorization):
            return OPERATOR
        locked_out = self.password.refuses(client) is not None  # by this failure: said once, however many follow
        if locked_out and "x-forwarded-for" in headers and not by_trusted_proxy(scope):
            log.warning(UNTRUSTED_PROXY, client)
        refusal = self._refuse(scope, 401, "Sign in", SIGN_IN)
        # Two headers: Chromium does not ask for a password if one header names both.
        refusal.headers.append("www-authenticate", 'Basic realm="agent-fix", charset="UTF-8"')
        refusal.headers.append("www-authenticate", "Bearer")
        return refusal

    async def _key_owner(self, scope: Scope) -> ApiCaller | None:
        authorization = Headers(scope=scope).get("authorization", "")
        key = BEARER.fullmatch(authorization.strip()) if is_api(scope["path"]) else None
        return await asyncio.to_thread(self.keys.caller, key[1]) if key else None

    def _refuse(self, scope: Scope, status: int, title: str, text: str) -> Response:
        if is_api(scope["path"]):
            return problem(status, f"{title}. {text}")
        return self.refuse(Headers(scope=scope), status, title, text)


@dataclass(frozen=True, slots=True)
class PageRules:
    """Wraps the handlers of pages with what they demand of a visitor."""

    context_of: Callable[[str], JobContext | None]
    """Reads a job's context."""
    refuse: Callable[[Headers, int, str, str], Response]
    missing: Endpoint

    def for_operators(self, handler: Endpoint) -> Endpoint:
        async def checked(request: Request) -> Response:
            if not visitor_of(request).operator:
                return self.refuse(request.headers, 403, "This page is for operators", "Ask whoever runs this server.")
            return await handler(request)

        return checked

    def for_readers(self, handler: Endpoint) -> Endpoint:
        """For the pages of one job."""

        async def checked(request: Request) -> Response:
            if not await self._sees(request):
                return await self.missing(request)
            return await handler(request)

        return checked

    def for_writers(self, handler: Endpoint) -> Endpoint:
        """For what changes one job."""

        async def checked(request: Request) -> Response:
            if not await self._sees(request):
                return await self.missing(request)
            visitor = visitor_of(request)
            if visitor.refusal(await self._context(request)):
                return self.refuse(request.headers, 403, "You may only look at this job", READS_ONLY)
            return await handler(request)

        return checked

    async def still_reads(self, request: Request) -> bool:
        """Whether whoever follows a job may still see it."""
        who = await request.state.authenticate()
        return isinstance(who, Visitor) and who.sees(await self._context(request))

    async def _sees(self, request: Request) -> bool:
        visitor = visitor_of(request)
        return visitor.sees(await self._context(request))

    async def _context(self, request: Request) -> JobContext | None:
        return await asyncio.to_thread(self.context_of, request.path_params["job"])


def visitor_of(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


def is_local(host: str) -> bool:
    """Whether a host name or address is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
