"""Sends notifications about jobs: through Apprise, and as Standard Webhooks."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, Final

import httpx

from app import __version__
from app.core.errors import AgentFixError
from app.publish.effects import Receipt, SendNotification
from app.publish.secret_scan import SecretScan

TIMEOUT: Final = 15.0
GONE: Final = 410
"""A receiver that is gone for good, as Standard Webhooks says; everything else is tried again."""


class NotDelivered(AgentFixError):  # noqa: N818  # what happened to it
    """The receiver did not take it."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self._for_good = for_good

    @property
    def final(self) -> bool:
        return self._for_good


class Notifier:
    """Delivers notifications. `urls` are Apprise's; `key` signs the webhook's requests.

    Raises ModuleNotFoundError if Apprise is needed and not installed, AgentFixError for an address that it refuses.
    """

    def __init__(
        self,
        secret_scan: SecretScan,
        now: Callable[[], datetime],
        *,
        webhook_url: str = "",
        key: bytes = b"",
        urls: Sequence[str] = (),
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._secret_scan = secret_scan
        self._now = now
        self._webhook_url = webhook_url
        self._key = key
        self._transport = transport
        self._apprise: Any = None
        if urls:
            self._apprise = import_module("apprise").Apprise()
            for number, url in enumerate(urls, 1):
                if not self._apprise.add(url):
                    hint = "Its log names the address. Apprise's wiki lists the forms: https://github.com/caronc/apprise/wiki"
                    raise AgentFixError(f"Apprise cannot use address {number} of AGENT_FIX_NOTIFY.", hint=hint)

    async def deliver(self, job: str, key: str, effect: SendNotification) -> Receipt:
        """Deliver at least once. `key` stays the same across retries. Raises NotDelivered."""
        checked = self._secret_scan.checked(job, effect)
        if not isinstance(checked, SendNotification):
            raise TypeError("a notification stays one")
        if checked.channel == "webhook":
            await self._post(job, key, checked)
        else:
            await self._notify(checked)
        return Receipt()

    async def _post(self, job: str, key: str, effect: SendNotification) -> None:
        moment = self._now()
        data = effect.model_dump(mode="json", exclude={"kind", "channel"}) | {"job": job}
        body = json.dumps({"type": f"job.{effect.state}", "timestamp": moment.isoformat(), "data": data}).encode()
        message = "msg_" + hashlib.sha256(f"{key}\0{effect.model_dump_json()}".encode()).hexdigest()[:32]
        headers = {
            "content-type": "application/json",
            "user-agent": f"agent-fix/{__version__}",
            "webhook-id": message,
            "webhook-timestamp": str(int(moment.timestamp())),
        }
        headers["webhook-signature"] = sign(self._key, message, headers["webhook-timestamp"], body)
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                httpx.AsyncClient(timeout=TIMEOUT, transport=self._transport) as client,
                client.stream("POST", self._webhook_url, content=body, headers=headers) as answer,
            ):
                pass  # only the status counts; the body is not read
        except (httpx.HTTPError, TimeoutError) as error:
            raise NotDelivered(f"The webhook's receiver did not answer ({type(error).__name__}).") from error
        if not answer.is_success:
            message = f"The webhook's receiver answered {answer.status_code}."
            raise NotDelivered(message, for_good=answer.status_code == GONE)

    async def _notify(self, effect: SendNotification) -> None:
        text = "\n".join(filter(None, (effect.body, effect.pull_request or effect.page)))
        title, text = (part.replace("@", "@\u200b") for part in (effect.title, text))  # so that nobody is mentioned
        if not await asyncio.to_thread(self._apprise.notify, title=title, body=text, body_format="text"):
            raise NotDelivered("Apprise could not deliver the notification.")


def sign(key: bytes, message: str, timestamp: str, body: bytes) -> str:
    """The value of the header `webhook-signature`."""
    digest = hmac.new(key, f"{message}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
