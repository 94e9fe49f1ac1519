"""Sends requests to one GitHub: paced, retried if that is safe, with failures mapped by `app.github.refusals`."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import httpx
from githubkit import GitHub
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import TypeAdapter, ValidationError

from app.github.base import ForgeError, NoAccess, RateLimited, TemporaryFailure, UnexpectedAnswer
from app.github.calls import Call
from app.github.connection import Connection, MutationPacer
from app.github.refusals import DEFAULT_WAIT, NotFoundOnGitHub, NotSeenYet, failure_of, refusal_of

T = TypeVar("T")
log = logging.getLogger(__name__)

PER_PAGE: Final = 100
MAX_PAGES: Final = 50
"""Of one list: 5,000 comments, files, repositories or labelled issues."""

_PAUSES = (0.5, 1.0, 2.0)
"""Seconds between the attempts of a read."""
_VISIBILITY_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks for our last write: a minute in all, shared by all requests of one client."""


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

    Raises UnexpectedAnswer if it is something else.
    """
    try:
        if inside:
            answer = TypeAdapter(dict[str, Any]).validate_json(response.content or b"{}")
            return TypeAdapter(kind).validate_python(answer.get(inside), by_alias=True, by_name=False)
        return TypeAdapter(kind).validate_json(response.content or b"{}", by_alias=True, by_name=False)
    except ValidationError as error:
        raise UnexpectedAnswer("GitHub's answer was cut off or does not match its documentation.") from error
