"""Requests to one repository, each with a token that has only the permissions it needs, and our account there."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import httpx
from githubkit import GitHub
from pydantic import TypeAdapter, ValidationError

from app.core.task import Person
from app.github.auth import auth_for
from app.github.base import TemporaryFailure
from app.github.calls import GET_REPOSITORY, GET_USER, Call, grant
from app.github.connection import Connection, RepositoryId
from app.github.http_client import MAX_PAGES, HttpClient, parsed
from app.github.models import Account, BotAccount, GraphQLResponse
from app.github.refusals import NotFoundOnGitHub, graphql_failure

T = TypeVar("T")

Query = Mapping[str, str | int]


class RepositoryApi:
    """Requests to one repository of one installation."""

    def __init__(self, app: Connection, installation: int, repository: RepositoryId) -> None:
        self.app = app
        self.installation = installation
        self.repository = repository
        self.pace = app.pace(installation)
        self.auth = auth_for(app)
        self._http = HttpClient(app, self.pace)

    @property
    def names(self) -> dict[str, str]:
        """The repository's owner and name, as variables of a GraphQL query."""
        return {"owner": self.repository.owner, "name": self.repository.name}

    async def read(self, kind: type[T], call: Call, *values: str | int, params: Query | None = None) -> T:
        """A GET, retried after a TemporaryFailure. `values` fill the call's path after the repository's."""

        async def ask() -> T:
            answer = self._http.reject_redirect(await self._send(call, values, params=params))
            return parsed(kind, answer, call.inside)

        return await self._http.with_retries(ask)

    async def find(self, kind: type[T], call: Call, *values: str | int) -> T | None:
        """As `read`; None for a 404, once a second request has shown that the repository itself is accessible."""
        try:
            return await self.read(kind, call, *values)
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
        """All items of a list, from the first `most` pages."""
        items = self._http.pages(kind, self._client(call), call, *self._values(call, values), params=params, most=most)
        return [item async for item in items]

    async def content(self, call: Call, *values: str | int) -> bytes | None:
        """A file's bytes; None if there is none."""
        try:
            response = await self._http.with_retries(lambda: self._send(call, values, raw=True))
        except NotFoundOnGitHub:
            await self.read(dict, GET_REPOSITORY)
            return None
        return self._http.reject_redirect(response).content

    async def location(self, call: Call, *values: str | int) -> str | None:
        """The address that GitHub redirects to, as for a job's log; None if there is none."""
        try:
            response = await self._http.with_retries(lambda: self._send(call, values))
        except NotFoundOnGitHub:
            return None
        address: str | None = response.headers.get("location")
        return address

    async def change(self, kind: type[T], call: Call, *values: str | int, body: Mapping[str, Any] | None = None) -> T:
        """A mutation, sent once. After a TemporaryFailure it may have happened: look before repeating it."""
        send = partial(self._send, call, values, body=body, mutation=True)
        return parsed(kind, self._http.reject_redirect(await self._http.until_visible(send)))

    async def until_visible(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read that raises NotSeenYet until our last write is visible."""
        return await self._http.until_visible(ask)

    async def remove(self, call: Call, *values: str | int) -> None:
        """A DELETE; a 404 counts as success."""
        with suppress(NotFoundOnGitHub):
            self._http.reject_redirect(await self._send(call, values, mutation=True))

    async def graphql(self, kind: type[T], call: Call, variables: Mapping[str, Any], *, partial: bool = False) -> T:
        """The `data` of a GraphQL answer. Raises ForgeError for its errors, unless `partial` and there is data too."""
        body = {"query": call.text, "variables": dict(variables)}

        async def ask() -> T:
            response = await self._send(call, (), body=body, mutation=call.is_mutation)
            answer = parsed(GraphQLResponse, response)
            if answer.errors and not (partial and answer.data):
                first = answer.errors[0]
                raise self._http.pause_if_limited(graphql_failure(first.type, first.message, self.app.now()))
            try:
                return TypeAdapter(kind).validate_python(answer.data)
            except ValidationError as error:
                raise TemporaryFailure("GitHub's GraphQL answer does not match its schema.") from error

        return await ask() if call.is_mutation else await self._http.with_retries(ask)

    async def with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read, such as one of git, after a TemporaryFailure."""
        return await self._http.with_retries(ask)

    async def token(self, call: Call) -> str:
        """A token for git in this repository; the caller revokes it with `revoke_token`."""
        return await self.auth.token_for(self.installation, self.repository.id, grant([call.purpose]))

    async def revoke_token(self, token: str) -> None:
        await self.auth.revoke(self.installation, token)

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
        client, values = self._client(call), self._values(call, values)
        return await self._http.request(client, call, *values, params=params, body=body, raw=raw, mutation=mutation)

    def _client(self, call: Call) -> GitHub[Any]:
        return self.app.as_installation(self.installation, self.repository.id, grant([call.purpose]))

    def _values(self, call: Call, values: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """What fills the call's path, the repository first if its path begins with that."""
        return (self.repository.owner, self.repository.name, *values) if call.is_below_repository else values


async def find_bot_account(api: RepositoryApi) -> BotAccount:
    """The account of the App or of the given token, looked up once. Its id never changes; its login may."""
    if api.app.account is None:
        login = await api.auth.login()
        account = await api.read(Account, GET_USER, login)
        person = Person(name=login, email=f"{account.id}+{login}@{api.app.host.noreply}")
        api.app.account = BotAccount(user=account.id, app=api.app.app_id, login=login, person=person)
    return api.app.account
