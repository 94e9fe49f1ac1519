"""Protects the pages with a password, and sets the security headers of every answer."""

import asyncio
import hashlib
import hmac
import ipaddress
import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.jobs.api_keys import SCOPES, ApiCaller, ApiKeys
from app.jobs.database import DatabaseError
from app.server.web.problems import problem

MAX_FAILURES: Final = 10
FORGET_AFTER: Final = timedelta(minutes=1)
MAX_REMEMBERED: Final = 4_096
"""Addresses; the one that failed longest ago is forgotten first."""
SIGN_IN: Final = (
    "Reload this page and enter the password, which is the value of AGENT_FIX_WEB_TOKEN. Any user name works."
)
OPERATOR: Final = ApiCaller("web token", frozenset(SCOPES))
"""Whoever has the password."""
MAX_BYTES: Final = 512 * 1024
"""Of the body of a request to the API."""
_BASIC = re.compile(r"[Bb]asic +([A-Za-z0-9+/=_-]{1,1000})")
_BEARER = re.compile(r"[Bb]earer +([!-~]{1,1000})")

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers send `Origin: null` even to ourselves
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "interest-cohort=()",
    "cache-control": "no-store",
}


class DashboardPassword:
    """The pages' one password, compared in constant time; a client that fails too often is locked out for a while."""

    def __init__(self, token: str, clock: Callable[[], datetime]) -> None:
        self._digest = _digest(token)
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, datetime]] = OrderedDict()

    def refuses(self, client: str) -> timedelta | None:
        """How much longer this address is locked out; None if it is not."""
        count, since = self._failures.get(client, (0, self._clock()))
        left = since + FORGET_AFTER - self._clock()
        if left <= timedelta():
            self._failures.pop(client, None)
            return None
        return left if count >= MAX_FAILURES else None

    def admits(self, client: str, authorization: str) -> bool:
        given = _given(authorization)
        if given is not None and hmac.compare_digest(_digest(given), self._digest):
            return True
        if given is not None:  # a browser that was not asked yet has not failed
            count, since = self._failures.pop(client, (0, self._clock()))
            self._failures[client] = (count + 1, since)
            while len(self._failures) > MAX_REMEMBERED:
                self._failures.popitem(last=False)
        return False

    def seal(self, what: str) -> str:
        """A token that proves that a form came from our pages, which only password holders can see."""
        return hmac.new(self._digest, f"form:{what}".encode(), hashlib.sha256).hexdigest()

    def sealed(self, what: str, seal: str) -> bool:
        return hmac.compare_digest(self.seal(what), seal if seal.isascii() else "")


@dataclass(frozen=True, slots=True)
class PasswordGuard:
    """Puts an application behind the password and adds headers against framing, reading and caching."""

    app: ASGIApp
    password: DashboardPassword
    refuse: Callable[[Headers, int, str, str], Response]
    """Builds an answer from the request's headers, a status, a title and a text."""
    public: Collection[str]
    """Paths that need no password: the assets of the refusal pages."""
    keys: ApiKeys
    """Keys that open the API only."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = None if scope["path"] in self.public else await self._refusal(scope)
        await (refusal or self.app)(scope, receive, with_headers(send))

    async def _refusal(self, scope: Scope) -> Response | None:
        client, headers = address(scope), Headers(scope=scope)
        left = self.password.refuses(client)
        if left is not None:
            seconds = str(int(left.total_seconds()) + 1)
            refusal = self._refuse(scope, 429, "Too many wrong passwords", f"Try again in {seconds} seconds.")
            refusal.headers["retry-after"] = seconds
            return refusal
        try:
            caller = await self._caller(scope, client, headers.get("authorization", ""))
        except DatabaseError:
            return self._refuse(scope, 503, "The database is not responding", "Try again in a moment.")
        if caller is None:
            refusal = self._refuse(scope, 401, "Sign in", SIGN_IN)
            # Two headers: Chromium does not ask for a password if one header names both.
            refusal.headers.append("www-authenticate", 'Basic realm="agent-fix", charset="UTF-8"')
            refusal.headers.append("www-authenticate", "Bearer")
            return refusal
        scope.setdefault("state", {})["caller"] = caller
        if scope["method"] not in {"GET", "HEAD"} and not from_our_pages(headers):
            return self._refuse(scope, 403, "This request came from another site", "Nothing was changed.")
        if is_api(scope["path"]) and not _is_small(headers):
            return self._refuse(scope, 413, "The body is too large", f"At most {MAX_BYTES:,} bytes are read.")
        return None

    async def _caller(self, scope: Scope, client: str, authorization: str) -> ApiCaller | None:
        """Whoever has the password or, for the API, one of the keys; None if it is neither."""
        key = _BEARER.fullmatch(authorization.strip()) if is_api(scope["path"]) else None
        if key and (found := await asyncio.to_thread(self.keys.caller, key[1])):
            return found
        return OPERATOR if self.password.admits(client, authorization) else None

    def _refuse(self, scope: Scope, status: int, title: str, text: str) -> Response:
        if is_api(scope["path"]):
            return problem(status, f"{title}. {text}")
        return self.refuse(Headers(scope=scope), status, title, text)


def is_api(path: str) -> bool:
    return path.startswith("/api/")


def _is_small(headers: Headers) -> bool:
    """True for a body of a known, small length, or none."""
    length = headers.get("content-length", "0")
    return "transfer-encoding" not in headers and length.isdecimal() and int(length[:20]) <= MAX_BYTES


def with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def from_our_pages(headers: Headers) -> bool:
    """Whether a request that changes something was made by one of our pages, by a person, or by a program.

    A browser tells in `Sec-Fetch-Site` who made it, and no page can change that: `same-origin` is one of our pages,
    `none` is the person (the address bar, a bookmark). `same-site` is refused like `cross-site`: another port or
    subdomain may be somebody else's. Browsers leave the header out where a page came by plain http from another
    machine; then `Origin` decides, which they send with every POST. Programs send neither. They hold the password
    themselves, so nobody can have tricked them. Go's `http.CrossOriginProtection` has the same rules.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


def address(scope: Scope) -> str:
    """The key for counting failures: an IPv4 address, or an IPv6 customer's network."""
    host = (scope.get("client") or ("", 0))[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(found) if found.version == 4 else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def _given(authorization: str) -> str | None:
    """The password in the header, with any user name; None if there is none."""
    if bearer := _BEARER.fullmatch(authorization.strip()):
        return bearer[1]
    if basic := _BASIC.fullmatch(authorization.strip()):
        try:
            return b64decode(basic[1], validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
