"""The line to one GitHub: a request in its turn, repeated where that is safe, its failure told as one of four kinds."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx
from githubkit import GitHub
from githubkit.exception import GitHubException, RequestError, RequestFailed
from pydantic import TypeAdapter, ValidationError

from app.github.calls import Call
from app.github.connection import Connection
from app.github.errors import ForgeError, NoAccess, RateLimited, TemporaryFailure
from app.github.failures import WAIT_UNTOLD, NotSeenYet, failure_of, refusal_of
from app.github.rate_limit import MutationPacer

T = TypeVar("T")

_PAUSES = (0.5, 1.0, 2.0)
"""Seconds between the tries of a read."""
_UNSEEN = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds until what was just written is asked about again: a minute in all, for everything that one line asks."""


class NotFoundOnGitHub(NoAccess):
    """A 404: there is no such thing, or we may not see it; GitHub does not say which."""


class HttpClient:
    """Requests at one pace."""

    def __init__(self, app: Connection, pace: MutationPacer) -> None:
        self._app = app
        self._pace = pace
        self._unseen = iter(_UNSEEN)

    async def ask(
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
        """One request in its turn, at `address` where a page before it named that.

        A token that is refused is replaced once: a 401 was not carried out.
        """
        path = address or (self._app.host.graphql_url if call.text else call.at(*values))
        headers = {"X-GitHub-Api-Version": self._app.host.rest_version}
        if raw:
            headers["Accept"] = "application/vnd.github.raw+json"

        async def send() -> httpx.Response:
            async with self._pace.wait_for_mutation(mutation=mutation):
                answer = await client.arequest(call.method, path, params=params, json=body, headers=headers)
            return answer.raw_response

        try:
            return await send()
        except GitHubException as error:
            refused = _refusal(error)
            if refused is None or refused.status_code != 401:
                raise self._failure(error) from None
            if not self._app.refuse_tokens(refused.headers.get("date")):
                raise self._failure(error) from None
        except ValueError:
            raise self._unreadable_limit() from None
        try:
            return await send()
        except GitHubException as error:
            raise self._failure(error) from None
        except ValueError:
            raise self._unreadable_limit() from None

    def _failure(self, error: GitHubException) -> ForgeError:
        failure = failure_of(error, self._app.now())
        refused = _refusal(error)
        if refused is not None and refused.status_code == 404:
            return NotFoundOnGitHub(failure.message, hint=failure.hint)
        if refused is not None and refused.status_code == 401:
            return NoAccess(failure.message, hint=self._app.refused_hint)
        return self.check_response(failure)

    def _unreadable_limit(self) -> ForgeError:
        """Githubkit reads a limit's headers as numbers, and fails where they are none."""
        until = self._app.now() + WAIT_UNTOLD
        return self.check_response(RateLimited("GitHub limits us and does not say for how long.", until=until))

    def check_response(self, failure: ForgeError) -> ForgeError:
        if isinstance(failure, RateLimited):
            self._pace.pause_until(failure.until)
        return failure

    async def with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat what changes nothing while GitHub stumbles."""
        for pause in _PAUSES:
            try:
                return await ask()
            except TemporaryFailure:
                await self._app.sleep(pause)
        return await ask()

    async def once_seen(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat what was refused because GitHub does not see yet what was just written: it was not carried out."""
        while True:
            try:
                return await ask()
            except NotSeenYet:
                pause = next(self._unseen, None)
                if pause is None:
                    raise
                await self._app.sleep(pause)

    def in_place(self, response: httpx.Response) -> httpx.Response:
        """The response, unless it says that the thing is elsewhere."""
        if response.is_redirect:
            raise refusal_of(response, self._app.now())
        return response


def _refusal(error: GitHubException) -> httpx.Response | None:
    """The answer behind an exception, also one that came while a token was asked for."""
    found: Exception = error
    while isinstance(found, RequestError) and not isinstance(found, RequestFailed):
        found = found.exc
    return found.response.raw_response if isinstance(found, RequestFailed) else None


def parsed(kind: type[T], response: httpx.Response) -> T:
    try:
        return TypeAdapter(kind).validate_json(response.content or b"{}")
    except ValidationError as error:
        raise TemporaryFailure("GitHub's answer broke off, or is not what its documentation says.") from error
