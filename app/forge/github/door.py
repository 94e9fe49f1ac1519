"""The door to one repository: what is read and changed there, each with the least permissions that it needs."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from app.forge.errors import TryAgain
from app.forge.github.connection import Connection, Grant, RepositoryId
from app.forge.github.failures import graphql_failure
from app.forge.github.line import Line, Missing, parsed
from app.forge.github.presence import presence_of
from app.forge.github.wire import GraphQLAnswer

T = TypeVar("T")

READ: Grant = {"metadata": "read", "contents": "read", "issues": "read", "pull_requests": "read"}
READ_CHECKS: Grant = {"checks": "read", "statuses": "read", "actions": "read"}
TALK: Grant = {"issues": "write", "pull_requests": "write"}
PROPOSE: Grant = {"pull_requests": "write"}
CHECK: Grant = {"checks": "write"}
PUSH: Grant = {"contents": "write"}

PER_PAGE = 100
MOST_PAGES = 50
"""5,000 comments, files or labelled issues are looked at; beyond that GitHub's own pages are no place for a person."""


def quoted(*parts: str | int) -> str:
    """Path segments; a branch or label may contain anything."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


class Door:
    """Requests to one repository of one installation."""

    def __init__(self, app: Connection, installation: int, repository: RepositoryId) -> None:
        self.app = app
        self.installation = installation
        self.repository = repository
        self.pace = app.pace(installation)
        self.presence = presence_of(app)
        self._line = Line(app, self.pace)

    async def read(
        self, kind: type[T], path: str, *, grant: Grant = READ, params: Mapping[str, str | int] | None = None
    ) -> T:
        """A GET below the repository, tried again where GitHub stumbles."""
        return (await self._read(kind, self.repository.path + path, grant, params))[0]

    async def read_account(self, kind: type[T], path: str) -> T:
        """A GET that is about an account and not about the repository."""
        return (await self._read(kind, path, {"metadata": "read"}, None))[0]

    async def find(
        self, kind: type[T], path: str, *, grant: Grant = READ, params: Mapping[str, str | int] | None = None
    ) -> T | None:
        """Like `read`; None where there is no such thing, once it is sure that the repository itself is open to us."""
        try:
            return await self.read(kind, path, grant=grant, params=params)
        except Missing:
            await self._read(dict, self.repository.path, READ, None)
            return None

    async def pages(
        self,
        kind: type[T],
        path: str,
        *,
        grant: Grant = READ,
        params: Mapping[str, str | int] | None = None,
        most: int = MOST_PAGES,
    ) -> list[T]:
        """All items of a list, of a very long one the first pages."""
        items: list[T] = []
        for page in range(1, most + 1):
            query = {**(params or {}), "per_page": PER_PAGE, "page": page}
            found, response = await self._read(list[kind], self.repository.path + path, grant, query)  # type: ignore[valid-type]
            items += found
            if "next" not in response.links:
                break
        return items

    async def content(self, path: str, *, params: Mapping[str, str | int] | None = None) -> bytes | None:
        """A file's bytes; None where there is none."""
        whole = self.repository.path + path
        try:
            response = await self._line.patiently(lambda: self._send("GET", whole, READ, params=params, raw=True))
        except Missing:
            await self._read(dict, self.repository.path, READ, None)
            return None
        return self._line.in_place(response).content

    async def location(self, path: str, *, grant: Grant) -> str | None:
        """Where GitHub redirects to, as it does to a job's log; None where there is nothing."""
        try:
            response = await self._line.patiently(lambda: self._send("GET", self.repository.path + path, grant))
        except Missing:
            return None
        address: str | None = response.headers.get("location")
        return address

    async def change(
        self, kind: type[T], method: str, path: str, *, grant: Grant, body: Mapping[str, Any] | None = None
    ) -> T:
        """A mutation, sent once. After TryAgain it may have happened: look before saying it again."""
        response = await self._send(method, self.repository.path + path, grant, body=body, mutation=True)
        return parsed(kind, self._line.in_place(response))

    async def remove(self, path: str, *, grant: Grant) -> None:
        """A DELETE; what is gone already needs nothing."""
        with suppress(Missing):
            self._line.in_place(await self._send("DELETE", self.repository.path + path, grant, mutation=True))

    async def graphql(
        self, kind: type[T], document: str, variables: Mapping[str, Any], *, grant: Grant, mutation: bool = False
    ) -> T:
        """The `data` of a GraphQL answer, whose errors come with status 200."""
        body = {"query": document, "variables": dict(variables)}

        async def ask() -> T:
            response = await self._send("POST", self.app.host.graphql_url, grant, body=body, mutation=mutation)
            answer = parsed(GraphQLAnswer, response)
            if answer.errors:
                first = answer.errors[0]
                raise self._line.heard(graphql_failure(first.type, first.message, self.app.now()))
            try:
                return TypeAdapter(kind).validate_python(answer.data)
            except ValidationError as error:
                raise TryAgain("GitHub's GraphQL answer is not what its schema says.") from error

        return await ask() if mutation else await self._line.patiently(ask)

    async def token(self, grant: Grant) -> str:
        """A token for git at this repository, to be given back with `give_back`."""
        return await self.presence.lend(self.installation, self.repository.id, grant)

    async def give_back(self, token: str) -> None:
        await self.presence.give_back(self.installation, token)

    async def _read(
        self, kind: type[T], path: str, grant: Grant, params: Mapping[str, str | int] | None
    ) -> tuple[T, httpx.Response]:
        async def ask() -> tuple[T, httpx.Response]:
            response = self._line.in_place(await self._send("GET", path, grant, params=params))
            return parsed(kind, response), response

        return await self._line.patiently(ask)

    async def _send(
        self,
        method: str,
        path: str,
        grant: Grant,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        raw: bool = False,
        mutation: bool = False,
    ) -> httpx.Response:
        client = self.app.as_installation(self.installation, self.repository.id, grant)
        return await self._line.ask(client, method, path, params=params, body=body, raw=raw, mutation=mutation)
