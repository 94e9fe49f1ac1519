"""Requests a provider's free list of models, to check that it answers, accepts the key and knows the model."""

import asyncio
import urllib.request
from dataclasses import dataclass
from typing import Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from app.llm.background import background

SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """`url` is the endpoint's base; `key` is sent in the way that the provider expects."""

    url: str
    key: str = ""
    style: Literal["bearer", "anthropic"] = "bearer"


Finding = Literal["there", "bad_key", "unreachable"]


async def probe(target: ProbeTarget, *, seconds: float = SECONDS) -> Finding:
    """One GET; anything but a refused key or no answer counts as `there`, because not every endpoint has a list."""
    return await asyncio.wrap_future(background(lambda: _get(target, seconds), "probe-endpoint"))


def _get(target: ProbeTarget, seconds: float) -> Finding:
    if urlsplit(target.url).scheme not in ("http", "https"):
        return "unreachable"
    headers = {"user-agent": "agent-fix"}
    if target.key and target.style == "bearer":
        headers["authorization"] = f"Bearer {target.key}"
    elif target.key:
        headers |= {"x-api-key": target.key, "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{target.url.rstrip('/')}/models", headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=seconds):  # noqa: S310 (the scheme was looked at)
            return "there"
    except HTTPError as error:
        error.close()
        return "bad_key" if error.code == 401 else "there"
    except (URLError, OSError, ValueError):
        return "unreachable"
