"""Sends requests to one GitHub: paced, retried if that is safe, with failures mapped to `app.github.base`.

The second half maps GitHub's error responses, by status and message, to the four kinds of `app.github.base`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import httpx
from githubkit import GitHub
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import TypeAdapter, ValidationError

from app.core.redaction import mask_tokens
from app.github.base import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure
from app.github.calls import Call
from app.github.connection import Connection, MutationPacer

T = TypeVar("T")
log = logging.getLogger(__name__)

PER_PAGE: Final = 100
MAX_PAGES: Final = 50
"""Of one list: 5,000 comments, files, repositories or labelled issues."""

_PAUSES = (0.5, 1.0, 2.0)
"""Seconds between the attempts of a read."""
_VISIBILITY_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks for our last write: a minute in all, shared by all requests of one client."""
MAX_MESSAGE = 300
DEFAULT_WAIT = timedelta(seconds=60)
"""GitHub's documentation requires this if a limit names no time."""


class NotSeenYet(NeedsHumanAction):
    """GitHub reads from a replica that does not have our last write yet. Nothing was done; try again soon."""


class NoDrafts(NeedsHumanAction):
    """The repository's plan has no drafts. No call tells this in advance."""


class AlreadyThere(NeedsHumanAction):
    """The thing to be created exists."""


_INSTALL = (
    "Check that the App's installation includes this repository and that its new permissions are accepted; "
    "in a workflow, that the job's `permissions:` include it."
)
_MAY_OPEN = (
    "Allow it under Settings, Actions, General, Workflow permissions: "
    "“Allow GitHub Actions to create and approve pull requests”. If the switch is greyed out, the organisation has "
    "turned it off in the same place of its own settings. Alternatively, give the Action an App."
)


class FailureRule(NamedTuple):
    """A status (0: any), a part of the message in lower case, and the error that they become."""

    status: int
    part: str
    kind: Callable[..., ForgeError]
    hint: str = ""


RULES = (
    FailureRule(401, "", NoAccess),
    FailureRule(403, "archived", NoAccess, "The repository is archived and cannot be changed."),
    FailureRule(403, "suspended", NoAccess, "The App's installation is suspended."),
    FailureRule(403, "not permitted to create or approve pull requests", NoAccess, _MAY_OPEN),
    FailureRule(403, "locked", NeedsHumanAction, "The conversation is locked."),
    FailureRule(403, "", NoAccess, _INSTALL),
    FailureRule(404, "", NoAccess, _INSTALL),
    FailureRule(408, "", TemporaryFailure),
    FailureRule(409, "is empty", NeedsHumanAction, "The repository has no commit yet."),
    FailureRule(409, "", TemporaryFailure),
    FailureRule(410, "", NoAccess, "It was deleted, or issues are turned off."),
    FailureRule(422, "a pull request already exists", AlreadyThere),
    FailureRule(422, "draft pull requests are not supported", NoDrafts),
    FailureRule(422, "head invalid", NotSeenYet),
    FailureRule(422, "sha can't be blank", NotSeenYet),
    FailureRule(422, "no commits between", NotSeenYet),
    FailureRule(422, "not all refs are readable", NotSeenYet, "Check that the App may read contents."),
    FailureRule(422, "could not resolve to a node", NotSeenYet),
    FailureRule(422, "permissions requested are not granted", NoAccess, _INSTALL),
    FailureRule(422, "not accessible to the parent installation", NoAccess, _INSTALL),
    FailureRule(423, "", NoAccess, "The repository is locked, for example during a migration."),
    FailureRule(451, "", NoAccess, "The repository is blocked for legal reasons."),
)
GRAPHQL = {
    "RATE_LIMIT": RateLimited,
    "RATE_LIMITED": RateLimited,
    "FORBIDDEN": NoAccess,
    "INSUFFICIENT_SCOPES": NoAccess,
    "NOT_FOUND": NoAccess,
    "SERVICE_UNAVAILABLE": TemporaryFailure,
    "INTERNAL": TemporaryFailure,
}


class NotFoundOnGitHub(NoAccess):
    """A 404: it does not exist or we may not see it; GitHub does not say which."""


class HttpClient:
    """Requests with a shared pacer."""

    def __init__(self, app: Connection, pace: MutationPacer) -> None:
        self._app = app
        self._pace = pace
        self._visibility_pauses = iter(_VISIBILITY_PAUSES)

    async def request(
        self,
        client: GitHub[Any],
        call: Call,
        *values: str | int,
        address: str = "",
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        raw: bool = False,
        mutation: bool = False,
    ) -> httpx.Response:
        """Send one request, to `address` if an earlier page gave one. Raises ForgeError.

        After a 401, which is never carried out, the token is replaced once.
        """
        path = address or (self._app.host.graphql_url if call.text else call.at(*values))
        headers = {"X-GitHub-Api-Version": self._app.host.rest_version}
        if raw:
            headers["Accept"] = "application/vnd.github.raw+json"

        async def send() -> httpx.Response:
            async with self._pace.turn(mutation=mutation):
                answer = await client.arequest(call.method, path, params=params, json=body, headers=headers)
            self._pace.note_limit(answer.headers)
            return answer.raw_response

        replaced = False
        while True:
            try:
                return await send()
            except GitHubException as error:
                refused = _refusal(error)
                if (
                    replaced
                    or refused is None
                    or refused.status_code != 401
                    or not self._app.refuse_tokens(refused.headers.get("date"))
                ):
                    raise self._failure(error) from None
                replaced = True
            except ValueError:
                raise self._unreadable_limit() from None

    async def get(
        self,
        client: GitHub[Any],
        call: Call,
        *values: str | int,
        address: str = "",
        params: Mapping[str, str | int] | None = None,
    ) -> httpx.Response:
        """Send a read, repeated after a TemporaryFailure. Raises ForgeError, for a redirect too."""
        return self.reject_redirect(
            await self.with_retries(lambda: self.request(client, call, *values, address=address, params=params))
        )

    def _failure(self, error: GitHubException) -> ForgeError:
        failure = failure_of(error, self._app.now())
        refused = _refusal(error)
        if refused is not None:
            self._pace.note_limit(refused.headers)
        if refused is not None and refused.status_code == 404:
            return NotFoundOnGitHub(failure.message, hint=failure.hint)
        if refused is not None and refused.status_code == 401:
            return NoAccess(failure.message, hint=self._app.refused_hint)
        return self.pause_if_limited(failure)

    def _unreadable_limit(self) -> ForgeError:
        """githubkit parses a limit's headers as numbers and raises ValueError if they are not."""
        until = self._app.now() + DEFAULT_WAIT
        return self.pause_if_limited(
            RateLimited("GitHub limits our requests without saying for how long.", until=until)
        )

    def pause_if_limited(self, failure: ForgeError) -> ForgeError:
        if isinstance(failure, RateLimited):
            self._pace.pause_until(failure.until)
        return failure

    async def with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read after TemporaryFailure."""
        for pause in _PAUSES:
            try:
                return await ask()
            except TemporaryFailure:
                await self._app.sleep(pause)
        return await ask()

    async def pages(
        self,
        kind: type[T],
        client: GitHub[Any],
        call: Call,
        *values: str | int,
        params: Mapping[str, str | int] | None = None,
        most: int = MAX_PAGES,
    ) -> AsyncIterator[T]:
        """The items of a list, each page read with retries. Logs a warning if there are more pages than `most`."""
        for number in range(1, most + 1):
            query = {**(params or {}), "per_page": PER_PAGE, "page": number}
            page, response = await self.with_retries(partial(self._page, kind, client, call, values, query))
            for item in page:
                yield item
            if "next" not in response.links:
                return
        log.warning("only the first %d entries of %s were read", most * PER_PAGE, call.path)

    async def _page(
        self, kind: type[T], client: GitHub[Any], call: Call, values: tuple[str | int, ...], query: dict[str, str | int]
    ) -> tuple[list[T], httpx.Response]:
        response = self.reject_redirect(await self.request(client, call, *values, params=query))
        return parsed(list[kind], response, call.inside), response  # type: ignore[valid-type]

    async def until_visible(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request that was refused because GitHub does not see our last write yet."""
        while True:
            try:
                return await ask()
            except NotSeenYet:
                pause = next(self._visibility_pauses, None)
                if pause is None:
                    raise
                await self._app.sleep(pause)

    def reject_redirect(self, response: httpx.Response) -> httpx.Response:
        """The response. Raises ForgeError for a redirect."""
        if response.is_redirect:
            raise refusal_of(response, self._app.now())
        return response


def _refusal(error: GitHubException) -> httpx.Response | None:
    """The response behind an exception, also one of a token request."""
    found: Exception = error
    while isinstance(found, RequestError) and not isinstance(found, RequestFailed):
        found = found.exc
    return found.response.raw_response if isinstance(found, RequestFailed) else None


def parsed(kind: type[T], response: httpx.Response, inside: str = "") -> T:
    """An answer, or what it has `inside`, as `kind`, by GitHub's field names only.

    Raises TemporaryFailure if it is something else.
    """
    try:
        if inside:
            answer = TypeAdapter(dict[str, Any]).validate_json(response.content or b"{}")
            return TypeAdapter(kind).validate_python(answer.get(inside), by_alias=True, by_name=False)
        return TypeAdapter(kind).validate_json(response.content or b"{}", by_alias=True, by_name=False)
    except ValidationError as error:
        raise TemporaryFailure("GitHub's answer was cut off or does not match its documentation.") from error


def failure_of(error: GitHubException, now: datetime) -> ForgeError:
    """The error for an exception of githubkit, which also wraps errors of a token request."""
    while isinstance(error, RequestError) and isinstance(error.exc, GitHubException):
        error = error.exc
    if isinstance(error, RequestFailed):
        return refusal_of(error.response.raw_response, now)
    cause = error.exc if isinstance(error, RequestError) else error
    if isinstance(cause, httpx.HTTPError | OSError):
        return TemporaryFailure(f"{_server(cause)} could not be reached: {_short(str(cause) or type(cause).__name__)}")
    if isinstance(cause, ValidationError):  # a page instead of a token, or half a token
        return TemporaryFailure("GitHub's answer could not be read.")
    return NoAccess(f"No token for GitHub: {_short(str(cause) or type(cause).__name__)}", hint=_INSTALL)


def _server(error: httpx.HTTPError | OSError) -> str:
    """GitHub, with the host that was asked, as far as it is known."""
    request = getattr(error, "_request", None)  # httpx raises an error if the public property is unset
    return f"GitHub ({request.url.host})" if isinstance(request, httpx.Request) else "GitHub"


def refusal_of(response: httpx.Response, now: datetime) -> ForgeError:
    """The error for a response that is not a success."""
    message = message_of(response)
    status = response.status_code
    text = f"GitHub answered {status}: {message}" if message else f"GitHub answered {status}."
    if until := silence_until(response, message, now):
        return RateLimited(text, until=until)
    if status in {301, 302, 307, 308}:
        return NoAccess("The repository has moved: GitHub redirected the request.", hint=_INSTALL)
    if status >= 500:
        return TemporaryFailure(text)
    for rule in RULES:
        if rule.status == status and rule.part in message.lower():
            return rule.kind(text, hint=rule.hint)
    return NeedsHumanAction(text)


def graphql_failure(kind: str, message: str, now: datetime) -> ForgeError:
    """The error for one entry of `errors` in a GraphQL answer."""
    text = f"GitHub answered {kind or 'an error'}: {_short(message)}"
    cls = GRAPHQL.get(kind, NeedsHumanAction)
    return RateLimited(text, until=now + DEFAULT_WAIT) if cls is RateLimited else cls(text)


def silence_until(response: httpx.Response, message: str, now: datetime) -> datetime | None:
    """Until when a rate limit forbids requests; None if the answer is about something else."""
    status, headers = response.status_code, response.headers
    if "retry-after" in headers and (status in {403, 429} or status >= 500):
        return now + _seconds(headers["retry-after"])
    if status not in {403, 429}:
        return None
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
        return datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
    limited = status == 429 or "rate limit" in message.lower() or "abuse detection" in message.lower()
    return now + DEFAULT_WAIT if limited else None


def message_of(response: httpx.Response) -> str:
    """GitHub's message; empty if the body is not JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    details = [detail.get("message") or _coded(detail) for detail in _dicts(body.get("errors"))]
    return _short(": ".join(str(part) for part in (body.get("message"), *details) if part))


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _coded(detail: dict[str, object]) -> str:
    """Such as `head invalid`, if GitHub gives no message."""
    return " ".join(str(detail[key]) for key in ("field", "code") if detail.get(key))


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=min(int(text), 86_400)) if text.isdigit() else DEFAULT_WAIT


def _short(text: str) -> str:
    return mask_tokens(" ".join(text.split()))[:MAX_MESSAGE]
