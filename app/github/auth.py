"""Who we are at a GitHub and what opens a repository to us: the App's registration, or the one token we were given."""

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
    """What both ways in can say. What only an App has (its installations, its webhooks) is `AppRegistration`'s
    alone."""

    async def login(self) -> str:
        """Our own account's."""
        ...

    async def serves(self, owner: str, name: str) -> int | None:
        """The installation that opens this repository now; None where it is closed to us."""
        ...

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        """A token for git, to be given back."""
        ...

    async def revoke(self, installation: int, token: str) -> None: ...


class TokenAuth:
    """We hold one token, which stays as it is: it is never widened, narrowed or revoked by us."""

    def __init__(self, bearer: TokenConnection) -> None:
        self._bearer = bearer
        self._line = HttpClient(bearer, bearer.pace(GIVEN))

    async def login(self) -> str:
        """A person's token says so itself; an App's, a workflow's among them, by GraphQL only."""
        try:
            return (await self._read_self()).login
        except NoAccess:
            return await self._viewer()

    async def serves(self, owner: str, name: str) -> int | None:
        client = self._bearer.as_bearer(self._bearer.token)
        try:
            await self._line.with_retries(lambda: self._line.ask(client, GET_REPOSITORY, owner, name))
        except NotFoundOnGitHub:
            return None
        return GIVEN

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        return self._bearer.token

    async def revoke(self, installation: int, token: str) -> None:
        return

    async def _viewer(self) -> str:
        client = self._bearer.as_bearer(self._bearer.token)
        try:
            answer = await self._line.ask(client, VIEWER, body={"query": VIEWER.text})
        except (NoAccess, NeedsHumanAction):
            return ACTIONS_BOT
        return parsed(ViewerAnswer, answer).login or ACTIONS_BOT

    async def _read_self(self) -> api_models.AccountResponse:
        client = self._bearer.as_bearer(self._bearer.token)
        answer = await self._line.with_retries(lambda: self._line.ask(client, GET_SELF))
        return parsed(api_models.AccountResponse, self._line.in_place(answer))


def auth_for(connection: Connection) -> Auth:
    match connection:
        case AppConnection():
            return AppRegistration(connection)
        case TokenConnection():
            return TokenAuth(connection)
    raise TypeError(f"{type(connection).__name__} is no way in that is known")
