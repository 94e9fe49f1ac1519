"""Signing in to the dashboard: with GitHub as a user of the App, or with the password; how wrong ones lock out."""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypedDict
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Message, Scope, Send

from app.core.errors import AgentFixError
from app.github.base import ForgeError, NoAccess
from app.github.models import Account, ActorPermission
from app.github.permission import refusal
from app.jobs.accounts import SCOPES, SESSION_LASTS, ApiCaller, WebSession, WebSessions
from app.jobs.context import JobContext
from app.jobs.trigger_log import AuditLog

if TYPE_CHECKING:  # its library is imported only if people sign in with GitHub
    from app.github.user_sign_in import GitHubSignIn

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
    try:
        return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    except ValueError:  # such as `http://[`
        return False


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


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in person, or the holder of the web token, who counts as an operator and has user 0.

    `rights` has a person's permission (admin, write or read) by repository. Operators see and do everything.
    """

    name: str
    form_key: bytes = field(repr=False)
    operator: bool = False
    user: int = 0
    rights: Mapping[int, str] = field(default_factory=dict)

    @property
    def visible(self) -> frozenset[int] | None:
        """The repositories whose jobs they may see; None for all."""
        return None if self.operator else frozenset(self.rights)

    @property
    def asks_as(self) -> int:
        """The numeric id of the person whose rights count for what they start; 0 for operators."""
        return 0 if self.operator else self.user

    def sees(self, job_context: JobContext | None) -> bool:
        """Whether they may see a job; only operators see one without a context, which has not begun."""
        return self.operator or (job_context is not None and job_context.issue_ref.repository in self.rights)

    def refusal(self, job_context: JobContext | None) -> str:
        """Why they may not act on a job, in the words of the rule for commands on GitHub; empty if they may."""
        if self.operator:
            return ""
        if job_context is None:
            return "the job has not begun"
        permission = self.rights.get(job_context.issue_ref.repository, "none")
        actor = Account(id=self.user, login=self.name)
        status = ActorPermission(id=self.user, login=self.name, permission=permission)
        return refusal(actor, status, allowed_actors=job_context.config.allowed_actors) or ""

    def seal(self, what: str) -> str:
        """A CSRF token for a form shown to this visitor."""
        return hmac.new(self.form_key, f"form:{what}".encode(), hashlib.sha256).hexdigest()

    def sealed(self, what: str, seal: str) -> bool:
        return hmac.compare_digest(self.seal(what), seal if seal.isascii() else "")


RIGHTS_LAST: Final = timedelta(minutes=5)
"""How long permissions are cached before GitHub is asked again."""
RIGHTS_LAST_AT_MOST: Final = timedelta(minutes=30)
"""The same while GitHub does not answer."""
MINUTES_TO_SIGN_IN: Final = 10
OPEN: Final = ("/sign-in", "/sign-in/github", "/sign-in/done")
"""Pages that everybody may open."""
_NEXT = re.compile(r"/(?![/\\])[!-\[\]-~]{0,600}")
_CODE = re.compile(r"[A-Za-z0-9_-]{1,200}")
log = logging.getLogger(__name__)


class CookieAttributes(TypedDict):
    """What all our cookies have in common."""

    path: str
    httponly: bool
    samesite: Literal["lax"]
    secure: bool


@dataclass(frozen=True, slots=True)
class SignInPages:
    """Makes and ends sessions. `render` makes a page of a template's name, a status and values."""

    client: "GitHubSignIn"
    sessions: WebSessions
    audit: AuditLog
    clock: Callable[[], datetime]
    operators: frozenset[str]
    """Numeric ids, and logins in lower case."""
    public_url: str
    secret: str = field(repr=False)
    """The App's client secret: nobody without it makes a state of their own."""
    failures: FailureLimit
    """Sign-ins that GitHub did not confirm."""
    render: Callable[..., Response]

    async def visitor(self, request: Request) -> Visitor | None:
        """Whose session the request's cookie opens; None without one, or if GitHub no longer knows them."""
        cookie = request.cookies.get(self._cookie(request, "session"), "")
        session = await asyncio.to_thread(self.sessions.get, cookie) if cookie else None
        if session is None:
            return None
        rights = await self._rights(cookie, session)
        if rights is None:
            return None
        key = hashlib.sha256(f"form:{cookie}".encode()).digest()
        operator = await asyncio.to_thread(self._is_operator, session)
        return Visitor(session.login, key, operator=operator, user=session.user, rights=rights)

    def _is_operator(self, session: WebSession) -> bool:
        """By id; by login only the account that signed in with it first, because GitHub gives freed logins away."""
        login = session.login.lower()
        by_login = login in self.operators and not login.isdigit()
        return str(session.user) in self.operators or (by_login and self.sessions.holder(login) == session.user)

    async def _rights(self, cookie: str, session: WebSession) -> Mapping[int, str] | None:
        age = self.clock() - session.rights_at
        if age < RIGHTS_LAST:
            return session.rights
        try:
            rights = await self.client.rights(session.token)
        except NoAccess:  # they withdrew their consent, or the token has expired
            await asyncio.to_thread(self.sessions.delete, cookie)
            return None
        except ForgeError as error:
            log.warning("rights could not be read again: %s", error.message)
            return session.rights if age < RIGHTS_LAST_AT_MOST else None
        await asyncio.to_thread(self.sessions.update_rights, cookie, rights)
        return rights

    async def page(self, request: Request) -> Response:
        return self.render("sign_in.html", 200, next=_next(request), problem="")

    async def start(self, request: Request) -> Response:
        """Send the browser to GitHub. A cookie holds the secret from which state and verifier are made."""
        secret = secrets.token_urlsafe(32)
        redirect = self._redirect(request)
        state, verifier = self._derived("state", secret), self._derived("verifier", secret)
        answer = RedirectResponse(self.client.address(state=state, verifier=verifier, redirect=redirect), 303)
        self._set(request, answer, "sign-in", f"{secret}.{quote(_next(request))}", 60 * MINUTES_TO_SIGN_IN)
        return answer

    async def done(self, request: Request) -> Response:
        """GitHub sends the browser back here. The state proves that this browser began."""
        secret, _, quoted = request.cookies.get(self._cookie(request, "sign-in"), "").partition(".")
        query, client = request.query_params, address(request.scope)
        code, state = query.get("code", ""), query.get("state", "")
        answer: Response
        if not secret or not hmac.compare_digest(self._derived("state", secret), state if state.isascii() else ""):
            answer = self._failed("This sign-in expired or was started in another browser. Please try again.")
        elif not _CODE.fullmatch(code):
            answer = self._failed("You did not authorize agent-fix on GitHub.")
        elif self.failures.refuses(client):
            answer = self._failed("Too many sign-ins failed. Try again in a minute.", 429)
        else:
            self.failures.count(client)  # before anything is awaited, so that requests at once count too
            try:
                answer = await self._signed_in(request, code, secret, unquote(quoted))
                self.failures.forget(client)
            except AgentFixError as error:
                log.warning("sign-in failed: %s", error.message)
                answer = self._failed(error.message)
        answer.delete_cookie(self._cookie(request, "sign-in"), **self._attributes(request))
        return answer

    async def _signed_in(self, request: Request, code: str, secret: str, wanted: str) -> Response:
        verifier = self._derived("verifier", secret)
        token = await self.client.token(code, verifier=verifier, redirect=self._redirect(request))
        person = await self.client.person(token)
        old = request.cookies.get(self._cookie(request, "session"), "")
        if old:
            await asyncio.to_thread(self.sessions.delete, old)
        made = await asyncio.to_thread(self.sessions.create, person.user, person.login, token, person.rights)
        await asyncio.to_thread(self._record, request, person.login, "sign in")
        answer = RedirectResponse(wanted if _NEXT.fullmatch(wanted) else "/", 303)
        self._set(request, answer, "session", made, int(SESSION_LASTS.total_seconds()))
        return answer

    async def leave(self, request: Request) -> Response:
        """End the session, and revoke the person's token."""
        visitor: Visitor = request.state.visitor
        if not visitor.sealed("sign-out", (await single_fields(request)).get("seal", "")):
            return self.render("message.html", 403, title="This form has expired", text="Reload the page.")
        cookie = request.cookies.get(self._cookie(request, "session"), "")
        session = await asyncio.to_thread(self.sessions.get, cookie)
        await asyncio.to_thread(self.sessions.delete, cookie)
        await asyncio.to_thread(self._record, request, visitor.name, "sign out")
        if session is not None:
            await self.client.revoke(session.token)
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(self._cookie(request, "session"), **self._attributes(request))
        return answer

    def _derived(self, use: str, secret: str) -> str:
        digest = hmac.digest(self.secret.encode(), f"{use}:{secret}".encode("utf-8", "replace"), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def _record(self, request: Request, who: str, action: str) -> None:
        self.audit.record(who, "dashboard", action, address=client_of(request))

    def _failed(self, problem: str, status: int = 400) -> Response:
        return self.render("sign_in.html", status, next="/", problem=problem)

    def _redirect(self, request: Request) -> str:
        """Where GitHub sends the browser back to; it has to be among the App's callback URLs."""
        base = self.public_url or f"{request.url.scheme}://{request.url.netloc}"
        return f"{base.rstrip('/')}/sign-in/done"

    def _secure(self, request: Request) -> bool:
        return request.url.scheme == "https" or self.public_url.startswith("https://")

    def _cookie(self, request: Request, name: str) -> str:
        """The cookie's name; over HTTPS with the `__Host-` prefix, so that sibling hosts cannot set it."""
        return f"__Host-agent-fix-{name}" if self._secure(request) else f"agent-fix-{name}"

    def _attributes(self, request: Request) -> CookieAttributes:
        return {"path": "/", "httponly": True, "samesite": "lax", "secure": self._secure(request)}

    def _set(self, request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
        answer.set_cookie(self._cookie(request, name), value, max_age=seconds, **self._attributes(request))


def _next(request: Request) -> str:
    """The page that was wanted, of ours only."""
    wanted = request.query_params.get("next", "/")
    return wanted if _NEXT.fullmatch(wanted) else "/"
