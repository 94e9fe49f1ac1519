"""Answers which account we use and which repositories it can open, for an App or for a given token."""

from typing import Final, Protocol

from app.github import api_models
from app.github.app_registration import AppRegistration
from app.github.base import GIVEN
from app.github.calls import GET_REPOSITORY, GET_SELF, VIEWER
from app.github.connection import AppConnection, Connection, Grant, TokenConnection
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.graphql import ViewerAnswer
from app.github.http_client import HttpClient, NotFoundOnGitHub, parsed

ACTIONS_BOT: Final = "github-actions[bot]"


class Auth(Protocol):
    """What an App and a token have in common. Installations and webhooks are in `AppRegistration` only."""

    async def login(self) -> str:
        """The login of our own account."""
        ...

    async def serves(self, owner: str, name: str) -> int | None:
        """The installation that gives access to this repository now; None without access."""
        ...

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        """A token for git; the caller revokes it."""
        ...

    async def revoke(self, installation: int, token: str) -> None: ...


class TokenAuth:
    """A given token: we never widen, narrow or revoke it."""

    def __init__(self, bearer: TokenConnection) -> None:
        self._connection = bearer
        self._http = HttpClient(bearer, bearer.pace(GIVEN))

    async def login(self) -> str:
        """Read by REST for a person's token, by GraphQL for an App's or a workflow's token."""
        try:
            return (await self._read_self()).login
        except NoAccess:
            return await self._viewer()

    async def serves(self, owner: str, name: str) -> int | None:
        client = self._connection.with_token(self._connection.token)
        try:
            await self._http.with_retries(lambda: self._http.request(client, GET_REPOSITORY, owner, name))
        except NotFoundOnGitHub:
            return None
        return GIVEN

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        return self._connection.token

    async def revoke(self, installation: int, token: str) -> None:
        return

    async def _viewer(self) -> str:
        client = self._connection.with_token(self._connection.token)
        try:
            answer = await self._http.request(client, VIEWER, body={"query": VIEWER.text})
        except (NoAccess, NeedsHumanAction):
            return ACTIONS_BOT
        return parsed(ViewerAnswer, answer).login or ACTIONS_BOT

    async def _read_self(self) -> api_models.AccountResponse:
        client = self._connection.with_token(self._connection.token)
        answer = await self._http.with_retries(lambda: self._http.request(client, GET_SELF))
        return parsed(api_models.AccountResponse, self._http.reject_redirect(answer))


def auth_for(connection: Connection) -> Auth:
    match connection:
        case AppConnection():
            return AppRegistration(connection)
        case TokenConnection():
            return TokenAuth(connection)
    raise TypeError(f"unknown connection {type(connection).__name__}")
