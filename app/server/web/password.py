"""The password of the API and of a dashboard on this machine alone, and the security headers of every answer."""

import hashlib
import hmac
import ipaddress
import re
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Scope, Send

from app.jobs.accounts import SCOPES, ApiCaller

MAX_FAILURES: Final = 10
FORGET_AFTER: Final = timedelta(minutes=1)
MAX_REMEMBERED: Final = 4_096
"""Addresses; the one that failed longest ago is forgotten first."""
SIGN_IN: Final = (
    "Reload this page and enter the password, which is the value of AGENT_FIX_WEB_TOKEN. Any user name works."
)
OPERATOR: Final = ApiCaller("web token", frozenset(SCOPES))
"""The caller with the password."""
MAX_BYTES: Final = 512 * 1024
"""The largest body of a request."""
_LENGTH = re.compile(r"[0-9]{1,20}")
_BASIC = re.compile(r"[Bb]asic +([A-Za-z0-9+/=_-]{1,1000})")
BEARER = re.compile(r"[Bb]earer +([!-~]{1,1000})")

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


class FailureLimit:
    """Locks out an address that fails too often, for a while."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
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

    def count(self, client: str) -> None:
        count, since = self._failures.pop(client, (0, self._clock()))
        self._failures[client] = (count + 1, since)
        while len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def forget(self, client: str) -> None:
        self._failures.pop(client, None)


class DashboardPassword(FailureLimit):
    """One password, compared in constant time."""

    def __init__(self, token: str, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self._known = bool(token)
        self._digest = _digest(token)

    def admits(self, client: str, authorization: str) -> bool:
        given = _given(authorization)
        if given is not None and self._known and hmac.compare_digest(_digest(given), self._digest):
            return True
        if given is not None:  # a browser that was not asked yet has not failed
            self.count(client)
        return False

    @property
    def form_key(self) -> bytes:
        """Seals the forms of whoever has the password."""
        return self._digest


def is_api(path: str) -> bool:
    return path.startswith("/api/")


def is_small(headers: Headers) -> bool:
    """True for a body of a known, small length, or none."""
    length = headers.get("content-length", "0")
    return "transfer-encoding" not in headers and bool(_LENGTH.fullmatch(length)) and int(length) <= MAX_BYTES


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
    subdomain may be somebody else's. Browsers leave the header out if a page came by plain http from another
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


def by_trusted_proxy(scope: Scope) -> bool:
    """Whether the address is what a trusted proxy said; uvicorn then gives it the port 0."""
    return (scope.get("client") or ("", 0))[1] == 0


def client_of(request: Request) -> str:
    """The address that a request came from, for the audit log."""
    return request.client.host if request.client else ""


def _given(authorization: str) -> str | None:
    """The password in the header, with any user name; None if there is none."""
    if bearer := BEARER.fullmatch(authorization.strip()):
        return bearer[1]
    if basic := _BASIC.fullmatch(authorization.strip()):
        try:
            return b64decode(basic[1], validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


async def form_fields(request: Request) -> dict[str, list[str]]:
    """All values of each field, empty ones too. Whoever lets requests in has checked the body's length."""
    return parse_qs((await request.body()).decode("ascii", "replace"), keep_blank_values=True)


async def single_fields(request: Request) -> dict[str, str]:
    """The first value of each field."""
    return {name: values[0] for name, values in (await form_fields(request)).items()}
