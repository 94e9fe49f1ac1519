"""The receiver's whole application as tests visit it: over ASGI, on a seeded database, with the password or without."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from sqlalchemy.engine import Engine

from app.config.settings import Settings, settings_from
from app.github.user_sign_in import GitHubSignIn
from app.server.context import ServerContext
from app.server.receiver import application
from tests.support.clock import SettableClock
from tests.support.seeded_database import seeded

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TOKEN = "a-token-of-some-length"
HOST = "http://agent-fix.example"
OURS = {"authorization": f"Bearer {TOKEN}"}


@dataclass
class WebClient:
    """`client` has the password, `stranger` has not."""

    client: httpx.AsyncClient
    stranger: httpx.AsyncClient
    receiving: ServerContext
    clock: SettableClock

    @property
    def engine(self) -> Engine:
        return self.receiving.engine

    async def page(self, path: str, status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text


def settings(place: Path, **changes: str) -> Settings:
    ours = {"WEBHOOK_SECRET": "a secret of the webhooks", "WEB_TOKEN": TOKEN, **changes}
    return settings_from({f"AGENT_FIX_{name}": value for name, value in ours.items()}, place)


@asynccontextmanager
async def web_client(
    place: Path, *, seed: bool = True, sign_in: GitHubSignIn | None = None, address: str = "127.0.0.1", **changes: str
) -> AsyncIterator[WebClient]:
    clock = SettableClock(NOW)
    if seed:
        seeded(place, NOW)
    chosen = settings(place, **changes)
    receiving = ServerContext(chosen, clock)
    receiving.prepare()
    transport = httpx.ASGITransport(application(receiving, sign_in=sign_in), client=(address, 1))
    try:
        async with (
            httpx.AsyncClient(transport=transport, base_url=HOST, headers=OURS) as client,
            httpx.AsyncClient(transport=transport, base_url=HOST) as stranger,
        ):
            yield WebClient(client, stranger, receiving, clock)
    finally:
        receiving.engine.dispose()
