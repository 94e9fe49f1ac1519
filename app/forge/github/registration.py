"""What the App asks about itself: its account, where it is installed, and which webhooks were not received."""

from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import httpx

from app.forge.errors import ForgeError
from app.forge.facts import RepositoryFacts
from app.forge.github import wire
from app.forge.github.calls import (
    CREATE_TOKEN,
    GET_APP,
    GET_INSTALLATION,
    LIST_DELIVERIES,
    LIST_INSTALLATIONS,
    LIST_REPOSITORIES,
    REDELIVER,
    REVOKE_TOKEN,
    Call,
    grant,
)
from app.forge.github.connection import App, Grant
from app.forge.github.line import Line, Missing, parsed

T = TypeVar("T")
MOST_PAGES = 30


class Registration:
    """Requests with the App's own signature and no token."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._line = Line(app, app.pace(0))

    async def identity(self) -> wire.AppIdentity:
        return await self._read(wire.AppIdentity, GET_APP)

    async def login(self) -> str:
        return f"{(await self.identity()).slug}[bot]"

    async def serving(self, owner: str, name: str) -> int | None:
        found = await self.installation_of(owner, name)
        return found.id if found is not None and found.suspended_at is None else None

    async def lend(self, installation: int, repository: int, permissions: Grant) -> str:
        """A new token for this repository alone."""
        body = {"repository_ids": [repository], "permissions": dict(permissions)}
        line = Line(self._app, self._app.pace(installation))
        answer = await line.patiently(lambda: line.ask(self._app.as_app(), CREATE_TOKEN, installation, body=body))
        return parsed(wire.Token, answer).token

    async def give_back(self, installation: int, token: str) -> None:
        """Revoke it. Where that fails it ends by itself within the hour."""
        line = Line(self._app, self._app.pace(installation))
        try:
            await line.ask(self._app.as_bearer(token), REVOKE_TOKEN)
        except ForgeError:
            return

    async def installation_of(self, owner: str, name: str) -> wire.Installation | None:
        """The installation that this repository is in, as GitHub says; never taken from a payload alone."""
        try:
            return await self._read(wire.Installation, GET_INSTALLATION, owner, name)
        except Missing:
            return None

    async def installations(self) -> tuple[wire.Installation, ...]:
        """Where the App is installed, suspended ones included."""
        return tuple(await self._pages(wire.Installation, LIST_INSTALLATIONS))

    async def repositories(self, installation: int) -> tuple[RepositoryFacts, ...]:
        """What an installation opens, by a token that may list repositories and nothing else."""
        client = self._app.as_installation(installation, None, grant([LIST_REPOSITORIES.purpose]))
        found: list[wire.Repository] = []
        line = Line(self._app, self._app.pace(installation))
        for page in range(1, MOST_PAGES + 1):
            params = {"per_page": 100, "page": page}
            answer = line.in_place(await line.patiently(partial(line.ask, client, LIST_REPOSITORIES, params=params)))
            found += parsed(wire.Repositories, answer).repositories
            if "next" not in answer.links:
                break
        return tuple(repository_facts(item) for item in found)

    async def deliveries(self, since: datetime) -> tuple[wire.Delivery, ...]:
        """Every webhook sent since, the newest first. GitHub keeps them for three days."""
        found: list[wire.Delivery] = []
        address, params = "", dict[str, Any](per_page=100)
        for _ in range(MOST_PAGES):
            answer = await self._asked(LIST_DELIVERIES, params=params, address=address)
            page = parsed(list[wire.Delivery], answer)
            found += [item for item in page if item.delivered_at >= since]
            address, params = answer.links.get("next", {}).get("url", ""), {}
            if not address or not page or page[-1].delivered_at < since:
                break
        return tuple(found)

    async def redeliver(self, delivery: int) -> None:
        """Have GitHub send a webhook again, under the same delivery id."""
        await self._line.ask(self._app.as_app(), REDELIVER, delivery, mutation=True)

    async def _pages(self, kind: type[T], call: Call) -> list[T]:
        found: list[T] = []
        for page in range(1, MOST_PAGES + 1):
            answer = await self._asked(call, params={"per_page": 100, "page": page})
            found += parsed(list[kind], answer)  # type: ignore[valid-type]
            if "next" not in answer.links:
                break
        return found

    async def _read(self, kind: type[T], call: Call, *values: str) -> T:
        return parsed(kind, await self._asked(call, *values))

    async def _asked(
        self, call: Call, *values: str, params: dict[str, Any] | None = None, address: str = ""
    ) -> httpx.Response:
        client = self._app.as_app()
        answer = await self._line.patiently(
            lambda: self._line.ask(client, call, *values, params=params or None, address=address)
        )
        return self._line.in_place(answer)


def repository_facts(found: wire.Repository) -> RepositoryFacts:
    return RepositoryFacts(
        id=found.id,
        owner=found.owner.login,
        name=found.name,
        default_branch=found.default_branch,
        private=found.private,
        archived=found.archived,
    )


def missed(deliveries: tuple[wire.Delivery, ...]) -> tuple[wire.Delivery, ...]:
    """Those of which no attempt was received, each once: a redelivery has the same guid as its first attempt."""
    received = {item.guid for item in deliveries if 200 <= item.status_code < 300}
    open_ones = {item.guid: item for item in deliveries if item.guid not in received}
    return tuple(open_ones.values())
