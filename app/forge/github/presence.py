"""Who we are at a GitHub and what opens a repository to us: the App's registration, or the one token we were given."""

from typing import Final, Protocol

from app.forge.base import GIVEN
from app.forge.errors import NeedsHuman, NoAccess
from app.forge.github import wire
from app.forge.github.calls import GET_REPOSITORY, GET_SELF, VIEWER
from app.forge.github.connection import App, Bearer, Connection, Grant
from app.forge.github.documents import ViewerAnswer
from app.forge.github.line import Line, Missing, parsed
from app.forge.github.registration import Registration

ACTIONS_BOT: Final = "github-actions[bot]"


class Presence(Protocol):
    """What both ways in can say. What only an App has (its installations, its webhooks) is `Registration`'s alone."""

    async def login(self) -> str:
        """Our own account's."""
        ...

    async def serving(self, owner: str, name: str) -> int | None:
        """The installation that opens this repository now; None where it is closed to us."""
        ...

    async def lend(self, installation: int, repository: int, permissions: Grant) -> str:
        """A token for git, to be given back."""
        ...

    async def give_back(self, installation: int, token: str) -> None: ...


class Guest:
    """We hold one token, which stays as it is: it is never widened, narrowed or revoked by us."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer
        self._line = Line(bearer, bearer.pace(GIVEN))

    async def login(self) -> str:
        """A person's token says so itself; an App's, a workflow's among them, by GraphQL only."""
        try:
            return (await self._read_self()).login
        except NoAccess:
            return await self._viewer()

    async def serving(self, owner: str, name: str) -> int | None:
        client = self._bearer.as_bearer(self._bearer.token)
        try:
            await self._line.patiently(lambda: self._line.ask(client, GET_REPOSITORY, owner, name))
        except Missing:
            return None
        return GIVEN

    async def lend(self, installation: int, repository: int, permissions: Grant) -> str:
        return self._bearer.token

    async def give_back(self, installation: int, token: str) -> None:
        return

    async def _viewer(self) -> str:
        client = self._bearer.as_bearer(self._bearer.token)
        try:
            answer = await self._line.ask(client, VIEWER, body={"query": VIEWER.text})
        except (NoAccess, NeedsHuman):
            return ACTIONS_BOT
        return parsed(ViewerAnswer, answer).login or ACTIONS_BOT

    async def _read_self(self) -> wire.Account:
        client = self._bearer.as_bearer(self._bearer.token)
        answer = await self._line.patiently(lambda: self._line.ask(client, GET_SELF))
        return parsed(wire.Account, self._line.in_place(answer))


def presence_of(connection: Connection) -> Presence:
    match connection:
        case App():
            return Registration(connection)
        case Bearer():
            return Guest(connection)
    raise TypeError(f"{type(connection).__name__} is no way in that is known")
