"""Webhooks between emulate and our receiver: verified, put right, given an id and signed again, recorded, forwarded.

Where nothing listens, or the webhooks are being lost, the attempt is recorded as failed, as GitHub would.
"""

import asyncio
import hashlib
import hmac
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response

from tests.support.emulate.memory import Memory, now

NOT_REACHED = 502
Dress = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass
class Delivery:
    """One attempt to tell the App something; another attempt has the same guid."""

    id: int
    guid: str
    event: str
    payload: dict[str, Any]
    redelivery: bool = False
    status: int = 0
    """0 until it was tried."""
    at: datetime = field(default_factory=now)

    @property
    def action(self) -> str | None:
        return self.payload.get("action")

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Relay:
    """`receiver` is the whole address of the App's webhook, and may be set at any time; `lost` makes attempts fail."""

    def __init__(self, memory: Memory, secret: str, installation: int) -> None:
        self.receiver: str | None = None
        self.lost = False
        self.installation = installation
        self.deliveries: list[Delivery] = []
        self._memory = memory
        self._secret = secret.encode()
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue()
        self._client = httpx.AsyncClient(timeout=10.0)

    async def take(self, request: Request) -> Response:
        """What emulate sends; it is answered at once."""
        body = await request.body()
        if not hmac.compare_digest(request.headers.get("x-hub-signature-256", ""), self._signature(body)):
            return Response(status_code=401)
        self.put(request.headers["x-github-event"], json.loads(body))
        return Response(status_code=204)

    def put(self, event: str, payload: dict[str, Any]) -> None:
        """To be sent in its turn."""
        self._waiting.put_nowait(Delivery(self._memory.number(), str(uuid.uuid4()), event, payload))

    def again(self, delivery: int) -> bool:
        """Send one once more; False where there is none of that number."""
        found = next((item for item in self.deliveries if item.id == delivery), None)
        if found is not None:
            self._waiting.put_nowait(replace(found, id=self._memory.number(), redelivery=True, status=0, at=now()))
        return found is not None

    async def forward(self, dress: Dress) -> None:
        """Send what waits, one after the other, for ever."""
        while True:
            delivery = await self._waiting.get()
            if not delivery.redelivery:
                delivery.payload = await dress(delivery.payload)
                _put_right(delivery)
            await self._attempt(delivery)
            self.deliveries.append(delivery)
            self._memory.happened()

    async def close(self) -> None:
        await self._client.aclose()

    async def _attempt(self, delivery: Delivery) -> None:
        body = json.dumps(delivery.payload).encode()
        headers = {
            "content-type": "application/json",
            "user-agent": "GitHub-Hookshot/emulate",
            "x-github-delivery": delivery.guid,
            "x-github-event": delivery.event,
            "x-hub-signature-256": self._signature(body),
        }
        delivery.status = NOT_REACHED
        if self.receiver is None or self.lost:
            return
        try:
            answer = await self._client.post(self.receiver, content=body, headers=headers)
        except httpx.HTTPError:
            return
        delivery.status = answer.status_code

    def _signature(self, body: bytes) -> str:
        return "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()


def _put_right(delivery: Delivery) -> None:
    """A label on a pull request is an event of pull requests; emulate tells it as an issue's."""
    about = delivery.payload.get("issue") or {}
    if delivery.event == "issues" and "head" in about:
        delivery.event = "pull_request"
        delivery.payload["pull_request"] = delivery.payload.pop("issue")
        delivery.payload["number"] = about["number"]
