"""The door to one repository: what is read and changed there, each with the least permissions that it needs."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from app.github.api_models import GraphQLResponse
from app.github.auth import auth_for
from app.github.calls import GET_REPOSITORY, Call, grant
from app.github.connection import Connection, RepositoryId
from app.github.errors import TemporaryFailure
from app.github.failures import graphql_failure
from app.github.http_client import HttpClient, NotFoundOnGitHub, parsed

T = TypeVar("T")

Query = Mapping[str, str | int]

PER_PAGE = 100
MAX_PAGES = 50
"""5,000 comments, files or labelled issues are looked at; beyond that GitHub's own pages are no place for a person."""


class RepositoryApi:
    """Requests to one repository of one installation."""

    def __init__(self, app: Connection, installation: int, repository: RepositoryId) -> None:
        self.app = app
        self.installation = installation
        self.repository = repository
        self.pace = app.pace(installation)
        self.presence = auth_for(app)
        self._line = HttpClient(app, self.pace)

    async def read(self, kind: type[T], call: Call, *values: str | int, params: Query | None = None) -> T:
        """A GET, tried again where GitHub stumbles. `values` go into the call's path, after the repository's."""
        return (await self._read(kind, call, values, params))[0]

    async def find(self, kind: type[T], call: Call, *values: str | int, params: Query | None = None) -> T | None:
        """Like `read`; None where there is no such thing, once it is sure that the repository itself is open to us."""
        try:
            return await self.read(kind, call, *values, params=params)
        except NotFoundOnGitHub:
            await self.read(dict, GET_REPOSITORY)
            return None

    async def pages(
        self,
        kind: type[T],
        call: Call,
        *values: str | int,
        params: Query | None = None,
        most: int = MAX_PAGES,
    ) -> list[T]:
        """All items of a list, of a very long one the first pages."""
        found = await self.whole_pages(list[kind], call, *values, params=params, most=most)  # type: ignore[valid-type]
        return [item for page in found for item in page]

    async def whole_pages(
        self,
        kind: type[T],
        call: Call,
        *values: str | int,
        params: Query | None = None,
        most: int = MAX_PAGES,
    ) -> list[T]:
        """The same for a list inside an object: each page as it is."""
        pages: list[T] = []
        for page in range(1, most + 1):
            query = {**(params or {}), "per_page": PER_PAGE, "page": page}
            found, response = await self._read(kind, call, values, query)
            pages.append(found)
            if "next" not in response.links:
                break
        return pages

    async def content(self, call: Call, *values: str | int, params: Query | None = None) -> bytes | None:
        """A file's bytes; None where there is none."""
        try:
            response = await self._line.with_retries(lambda: self._send(call, values, params=params, raw=True))
        except NotFoundOnGitHub:
            await self.read(dict, GET_REPOSITORY)
            return None
        return self._line.in_place(response).content

    async def location(self, call: Call, *values: str | int) -> str | None:
        """Where GitHub redirects to, as it does to a job's log; None where there is nothing."""
        try:
            response = await self._line.with_retries(lambda: self._send(call, values))
        except NotFoundOnGitHub:
            return None
        address: str | None = response.headers.get("location")
        return address

    async def change(self, kind: type[T], call: Call, *values: str | int, body: Mapping[str, Any] | None = None) -> T:
        """A mutation, carried out once. After TryAgain it may have happened: look before saying it again."""
        send = partial(self._send, call, values, body=body, mutation=True)
        return parsed(kind, self._line.in_place(await self._line.once_seen(send)))

    async def once_seen(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a look that raises NotSeenYet while what was just written does not show."""
        return await self._line.once_seen(ask)

    async def remove(self, call: Call, *values: str | int) -> None:
        """A DELETE; what is gone already needs nothing."""
        with suppress(NotFoundOnGitHub):
            self._line.in_place(await self._send(call, values, mutation=True))

    async def graphql(self, kind: type[T], call: Call, variables: Mapping[str, Any], *, partial: bool = False) -> T:
        """The `data` of a GraphQL answer, whose errors come with status 200; if `partial`, data beside errors too."""
        body = {"query": call.text, "variables": dict(variables)}

        async def ask() -> T:
            response = await self._send(call, (), body=body, mutation=call.is_mutation)
            answer = parsed(GraphQLResponse, response)
            if answer.errors and not (partial and answer.data):
                first = answer.errors[0]
                raise self._line.check_response(graphql_failure(first.type, first.message, self.app.now()))
            try:
                return TypeAdapter(kind).validate_python(answer.data)
            except ValidationError as error:
                raise TemporaryFailure("GitHub's GraphQL answer is not what its schema says.") from error

        return await ask() if call.is_mutation else await self._line.with_retries(ask)

    async def token(self, call: Call) -> str:
        """A token for git at this repository, to be given back with `give_back`."""
        return await self.presence.token_for(self.installation, self.repository.id, grant([call.purpose]))

    async def revoke_token(self, token: str) -> None:
        await self.presence.revoke(self.installation, token)

    async def _read(
        self, kind: type[T], call: Call, values: tuple[str | int, ...], params: Query | None
    ) -> tuple[T, httpx.Response]:
        async def ask() -> tuple[T, httpx.Response]:
            response = self._line.in_place(await self._send(call, values, params=params))
            return parsed(kind, response), response

        return await self._line.with_retries(ask)

    async def _send(
        self,
        call: Call,
        values: tuple[str | int, ...],
        *,
        params: Query | None = None,
        body: Mapping[str, Any] | None = None,
        raw: bool = False,
        mutation: bool = False,
    ) -> httpx.Response:
        client = self.app.as_installation(self.installation, self.repository.id, grant([call.purpose]))
        if call.is_below_repository:
            values = (self.repository.owner, self.repository.name, *values)
        return await self._line.ask(client, call, *values, params=params, body=body, raw=raw, mutation=mutation)
