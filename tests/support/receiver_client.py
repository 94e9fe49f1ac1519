"""A client of the receiver: over ASGI, with a real inbox in a SQLite file."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import FastAPI

from app.jobs.inbox import Delivery, Inbox, InboxError, InboxHealth, StoreOutcome
from app.jobs.tables import metadata
from app.server.receiver import DeliveryStore, receiver
from tests.support import webhook_requests as made
from tests.support.clock import SettableClock
from tests.support.databases import database


class FullDisk:
    """An inbox that can store nothing until there is space."""

    def __init__(self, inner: DeliveryStore) -> None:
        self.inner = inner
        self.full = True

    def store(self, arrived: Sequence[Delivery]) -> list[StoreOutcome]:
        if self.full:
            raise InboxError("The database refused a transaction: OperationalError.")
        return self.inner.store(arrived)

    def health(self) -> InboxHealth:
        if self.full:
            raise InboxError("The database refused a transaction: OperationalError.")
        return self.inner.health()


@dataclass
class ReceiverClient:
    """A receiver, its client, and the inbox behind it."""

    app: FastAPI
    client: httpx.AsyncClient
    inbox: Inbox
    clock: SettableClock

    async def post(self, body: bytes, **headers: str | None) -> httpx.Response:
        return await self.client.post("/webhook", content=body, headers=made.headers(body, **headers))  # type: ignore[arg-type]

    def stored(self) -> list[Delivery]:
        """What a worker would find."""
        return [claimed.delivery for claimed in self.inbox.claim("test", limit=1_000)]

    @property
    def untouched(self) -> bool:
        return self.inbox.health().undone == 0


@asynccontextmanager
async def receiver_client(
    place: Path, secrets: Sequence[str] = (made.SECRET,), disk: type[FullDisk] | None = None
) -> AsyncIterator[ReceiverClient]:
    clock = SettableClock()
    with database("sqlite", place) as engine:
        inbox = Inbox(engine, clock)
        metadata.create_all(engine)
        app = receiver(secrets, disk(inbox) if disk else inbox, clock)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver.invalid") as client:
            yield ReceiverClient(app, client, inbox, clock)
