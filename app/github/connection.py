"""Connections to one GitHub, as an App or with a given token, with the pace of requests that GitHub requires."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import httpx
import jwt
from githubkit import AppAuthStrategy, GitHub, UnauthAuthStrategy
from githubkit.auth import BaseAuthStrategy
from githubkit.auth.app import AppAuth
from githubkit.cache import MemCacheStrategy
from githubkit.config import Config, get_config
from githubkit.core import GitHubCore
from githubkit.utils import UNSET

from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.proxies import bypasses_proxy
from app.github.base import RateLimited
from app.github.models import BotAccount

BETWEEN_MUTATIONS = timedelta(seconds=1)
MAX_WAIT_LENGTH = timedelta(seconds=3)
"""Longer waits raise RateLimited, so that the caller can do other work."""
BY_APP = "app"
BY_INSTALLATION = ""
Access = Literal["read", "write"]
Grant = Mapping[str, Access]
"""Permissions of one token, by GitHub's names."""
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
MIN_SKEW = timedelta(seconds=30)
_LIFETIME = timedelta(minutes=9)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What an answer said of one of GitHub's limits."""

    resource: str
    remaining: int
    limit: int
    resets_at: datetime
    at: datetime


class MutationPacer:
    """The pacer of one installation. Reads run in parallel, mutations one after the other.

    The first `at_once` mutations do not wait; later ones keep a second between them.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        at_once: int = 1,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._ahead = (at_once - 1) * BETWEEN_MUTATIONS
        self._mutating = asyncio.Lock()
        self._next_mutation = datetime(1, 1, 2, tzinfo=UTC)
        self._silent_until = datetime.min.replace(tzinfo=UTC)
        self.limits: dict[str, RateLimit] = {}
        """What the newest answers said, by resource."""

    @asynccontextmanager
    async def turn(self, *, mutation: bool) -> AsyncIterator[None]:
        """Enter when the request may be sent. Raises RateLimited if that is too far away."""
        if not mutation:
            await self._wait(self._silent_until)
            yield
            return
        async with self._mutating:
            await self._wait(max(self._silent_until, self._next_mutation - self._ahead))
            try:
                yield
            finally:
                self._next_mutation = max(self._next_mutation, self._now()) + BETWEEN_MUTATIONS

    def note_limit(self, headers: Mapping[str, str]) -> None:
        """Store the rate limit from a response's headers; Enterprise Server may send none."""
        numbers = [headers.get(f"x-ratelimit-{name}", "") for name in ("remaining", "limit", "reset")]
        if not all(number.isascii() and number.isdecimal() and len(number) < 11 for number in numbers):
            return
        remaining, limit, reset = map(int, numbers)
        resource = headers.get("x-ratelimit-resource", "core")[:40]
        resets_at = datetime.fromtimestamp(reset, UTC)
        self.limits[resource] = RateLimit(
            resource, min(remaining, 2**31 - 1), min(limit, 2**31 - 1), resets_at, self._now()
        )

    def pause_until(self, until: datetime) -> None:
        self._silent_until = max(self._silent_until, until)

    async def _wait(self, moment: datetime) -> None:
        while (remaining := moment - self._now()) > timedelta():
            if remaining > MAX_WAIT_LENGTH:
                raise RateLimited(f"GitHub accepts no request before {moment:%H:%M:%S} UTC.", until=moment)
            await self._sleep(remaining.total_seconds())
            moment = max(moment, self._silent_until)


# Makes githubkit sign requests the right way. It decides by the path who signs, and gets some paths wrong.
#
# A file, branch or label may be named like one of its routes: it takes `…/contents/installation` for a request of the
# App and `…/applications/x/tokens` for one of an OAuth app, and cannot parse a path with a quoted `?` or `#`. So it is
# given a route that leaves no doubt.


@dataclass
class RequestSigner(BaseAuthStrategy):
    """Wraps a strategy so that it signs every request as it would sign one to `route`."""

    strategy: BaseAuthStrategy
    route: str

    def get_auth_flow(self, github: GitHubCore[Any]) -> httpx.Auth:
        base = github.config.base_url
        plain = base.copy_with(raw_path=base.raw_path + self.route.encode())
        return _SigningAuth(self.strategy.get_auth_flow(github), plain)


class _SigningAuth(httpx.Auth):
    def __init__(self, inner: httpx.Auth, plain: httpx.URL) -> None:
        self._inner = inner
        self._plain = plain

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Request the token through `request`'s own connection, as githubkit does, then send the request."""
        shown = httpx.Request("GET", self._plain)
        flow = self._inner.async_auth_flow(shown)
        try:
            token_request = await anext(flow)
            while token_request is not shown:
                token_request = await flow.asend((yield token_request))
        finally:
            await flow.aclose()
        request.headers["Authorization"] = shown.headers["Authorization"]
        yield request


@dataclass(frozen=True, slots=True)
class GitHubHost:
    """A GitHub's addresses: the API, and those for people and git; with a proxy for hosts that `no_proxy` leaves."""

    api_url: str
    server_url: str
    proxy: str | None = None
    no_proxy: str = ""
    git_certificates: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables by which git finds certificates that it trusts."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        found = settings.proxy, settings.no_proxy, settings.git_certificates
        return cls(settings.github_api_url, settings.github_url, *found)

    def proxy_for(self, url: str) -> str | None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)
        return None if bypasses_proxy(self.no_proxy, host, port) else self.proxy

    @property
    def git_variables(self) -> dict[str, str]:
        """Git's environment for this host: its proxy and its certificates."""
        proxy = self.proxy_for(self.server_url)
        return {**(dict.fromkeys(("https_proxy", "http_proxy"), proxy) if proxy else {}), **self.git_certificates}

    def transport(self) -> httpx.AsyncBaseTransport:
        """A new transport for requests to it, and to wherever it redirects for logs and pictures."""
        return _ProxiedTransport(self)

    @property
    def is_enterprise_server(self) -> bool:
        """True if the API's path is Enterprise Server's."""
        return urlsplit(self.api_url).path.rstrip("/").endswith("/api/v3")

    @property
    def rest_version(self) -> str:
        """The version that is written for: every Enterprise Server that GitHub supports has the older one."""
        return "2022-11-28" if self.is_enterprise_server else "2026-03-10"

    @property
    def graphql_url(self) -> str:
        base = self.api_url.rstrip("/")
        return f"{base.removesuffix('/v3')}/graphql" if base.endswith("/api/v3") else f"{base}/graphql"

    @property
    def noreply(self) -> str:
        """The domain of the email addresses that GitHub gives to accounts."""
        return f"users.noreply.{urlsplit(self.server_url).hostname}"

    def git_url(self, owner: str, name: str) -> str:
        return f"{self.server_url.rstrip('/')}/{owner}/{name}.git"


@dataclass(frozen=True, slots=True)
class RepositoryId:
    """A repository as a signed delivery names it. Only the id counts; tokens are made for it alone."""

    id: int
    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """The App's id and private key (PEM)."""

    app_id: int
    private_key: str = field(repr=False)


class Connection(ABC):
    """One GitHub and our credentials: one connection pool, and one pacer for each installation."""

    at_once: ClassVar[int] = 1
    """Mutations that may be sent without a second's wait between them."""
    refused_hint: ClassVar[str]
    """The hint for a 401."""

    def __init__(
        self,
        host: GitHubHost,
        app_id: int,
        transport: httpx.AsyncBaseTransport | None,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.host = host
        self.app_id = app_id
        """Our App's id, which marks what we did; 0 if only the account is known."""
        self.now = now
        self.sleep = sleep
        self.transport = transport or host.transport()
        self.shared_transport = _SharedTransport(self.transport)
        self._tokens = MemCacheStrategy()
        self.account: BotAccount | None = None
        """Our own account, once it was looked up."""
        self._paces: dict[int, MutationPacer] = {}
        self._config = configured(host, self.shared_transport, self._tokens)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.aclose()
        self._tokens.cleanup()

    @abstractmethod
    def as_installation(self, installation: int, repository: int | None, grant: Grant) -> GitHub[Any]:
        """A client whose tokens open one repository with these permissions; without a repository, tokens to list
        all."""

    @abstractmethod
    def refuse_tokens(self, answered_at: str | None) -> bool:
        """Discard all tokens after a 401; returns False if no other token can be had."""

    def pace(self, installation: int) -> MutationPacer:
        return self._paces.setdefault(installation, MutationPacer(self.now, self.sleep, at_once=self.at_once))

    def limits(self) -> tuple[tuple[int, RateLimit], ...]:
        """What GitHub last said of its limits, each with its installation; 0 is the App itself."""
        return tuple((number, limit) for number, pace in self._paces.items() for limit in pace.limits.values())

    def with_token(self, token: str) -> GitHub[Any]:
        """A client with this token; without one, an anonymous client that can read public data."""
        return GitHub(token or UnauthAuthStrategy(), config=self._config)


def configured(host: GitHubHost, transport: httpx.AsyncBaseTransport, tokens: MemCacheStrategy) -> Config:
    """githubkit's configuration for requests to this GitHub; `tokens` keeps the tokens that were made."""
    return get_config(
        base_url=host.api_url,
        user_agent="agent-fix",
        follow_redirects=False,  # a redirected POST would arrive as a GET
        timeout=TIMEOUT,
        async_transport=transport,
        cache_strategy=tokens,
        http_cache=False,
        auto_retry=False,  # it would repeat POST too; see `app.github.repository_api`
    )


class AppConnection(Connection):
    """Access as an App, with a separate token for each group of calls, with minimal permissions."""

    refused_hint: ClassVar[str] = "Is the App's private key the right one, and does the App still exist?"

    def __init__(
        self,
        host: GitHubHost,
        credentials: AppCredentials,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(host, credentials.app_id, transport, now, sleep)
        self.credentials = credentials

    def as_app(self) -> GitHub[Any]:
        return GitHub(RequestSigner(self._strategy(), BY_APP), config=self._config)

    def as_installation(self, installation: int, repository: int | None, grant: Grant) -> GitHub[Any]:
        auth = self._strategy().as_installation(
            installation,
            repository_ids=UNSET if repository is None else [repository],
            permissions=dict(grant),  # type: ignore[arg-type]  # githubkit's TypedDict is closed, and newer than servers
        )
        return GitHub(RequestSigner(auth, BY_INSTALLATION), config=self._config)

    def refuse_tokens(self, answered_at: str | None) -> bool:
        """Sign again, with the server's clock if it differs from ours."""
        self._tokens.cleanup()
        skew = self._skew(answered_at)
        issued = self.now() + (skew if abs(skew) > MIN_SKEW else timedelta()) - timedelta(seconds=60)
        claims = {"iss": str(self.credentials.app_id), "iat": issued, "exp": issued + _LIFETIME}
        signed = jwt.encode(claims, self.credentials.private_key, algorithm="RS256")
        key = AppAuth.JWT_CACHE_KEY.format(issuer=self.credentials.app_id)
        self._tokens.get_cache_storage().set(key, signed, _LIFETIME - timedelta(minutes=1))
        return True

    def _skew(self, answered_at: str | None) -> timedelta:
        try:
            return parsedate_to_datetime(answered_at or "") - self.now()
        except (ValueError, TypeError):
            return timedelta()

    def _strategy(self) -> AppAuthStrategy:
        return AppAuthStrategy(self.credentials.app_id, self.credentials.private_key)


class TokenConnection(Connection):
    """Access with one given token, such as a workflow's; its permissions and lifetime are not ours to choose.

    `app_id` is that of its App, if known.
    """

    at_once: ClassVar[int] = 5
    """A workflow sends few mutations in all (reaction, status, labels), and people wait for them."""
    refused_hint: ClassVar[str] = (
        "The token has expired or was revoked. An App's token expires after an hour; for longer jobs give the "
        "Action `app-id` and `private-key` instead."
    )

    def __init__(
        self,
        host: GitHubHost,
        token: str,
        *,
        app_id: int = 0,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(host, app_id, transport, now, sleep)
        self.token = token

    def as_installation(self, installation: int, repository: int | None, grant: Grant) -> GitHub[Any]:
        return self.with_token(self.token)

    def refuse_tokens(self, answered_at: str | None) -> bool:
        return False


class _ProxiedTransport(httpx.AsyncBaseTransport):
    """Sends each request through the proxy, or past it."""

    def __init__(self, host: GitHubHost) -> None:
        self._host = host
        self._direct = httpx.AsyncHTTPTransport()
        self._proxied = httpx.AsyncHTTPTransport(proxy=host.proxy) if host.proxy else self._direct

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        chosen = self._proxied if self._host.proxy_for(str(request.url)) else self._direct
        return await chosen.handle_async_request(request)

    async def aclose(self) -> None:
        await self._direct.aclose()
        await self._proxied.aclose()


class _SharedTransport(httpx.AsyncBaseTransport):
    """A transport that githubkit's many short-lived clients share, and that none of them can close."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(request)
