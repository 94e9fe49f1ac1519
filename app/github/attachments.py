"""Fetches the images that people attached to an issue, from GitHub's own addresses only.

An attachment's address contains a UUID and never changes. That address works in browsers only; the issue's rendered
page has one that is signed for a few minutes. So requests carry no token of ours, and redirects are never followed.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageCollection, ImageRejected, too_large
from app.core.text import html_images
from app.github.base import NeedsHumanAction, NoAccess, TemporaryFailure
from app.github.calls import BODY_HTML
from app.github.connection import TIMEOUT, GitHubHost
from app.github.models import BodyHtmlAnswer
from app.github.repository_api import RepositoryApi

TOTAL_TIMEOUT: Final = 30.0
"""Seconds for one image."""
ELSEWHERE: Final = "only GitHub attachments are fetched"
TOO_MANY: Final = f"the limit is {MAX_IMAGES}"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ITS_IMAGES: Final = ("private-user-images.githubusercontent.com", "user-images.githubusercontent.com")


class AttachmentFetcher:
    """Fetches images of one repository's issues."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def collect(self, number: int, addresses: Iterable[str]) -> ImageCollection:
        """The images at these addresses in the text of an issue or pull request; problems are noted in the result."""
        image_collection, wanted = ImageCollection(), dict[str, int]()
        for place, address in enumerate(addresses, 1):
            name = attachment(address, self._api.app.host)
            if not name:
                image_collection.leave_out(place, ELSEWHERE)
            elif len(wanted) >= MAX_IMAGES and name not in wanted:
                image_collection.leave_out(place, TOO_MANY)
            else:
                wanted.setdefault(name, place)
        signed = await self._signed(number) if wanted else {}
        for name, place in wanted.items():
            try:
                image_collection.add(place, await self._fetch(signed, name))
            except ImageRejected as why:
                image_collection.leave_out(place, str(why))
        return image_collection

    async def _signed(self, number: int) -> Mapping[str, str]:
        """The signed addresses on the rendered page, by attachment name; empty if GitHub does not return the page."""
        repository = self._api.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": number}
        try:
            answer = await self._api.graphql(BodyHtmlAnswer, BODY_HTML, variables)
        except (NoAccess, NeedsHumanAction, TemporaryFailure):
            return {}
        found: dict[str, str] = {}
        for address in html_images(answer.page):
            if name := attachment(address, self._api.app.host):
                found.setdefault(name, address)
        return found

    async def _fetch(self, signed: Mapping[str, str], name: str) -> bytes:
        if name not in signed:
            raise ImageRejected("it is no longer on the page, or the page could not be read")
        client = httpx.AsyncClient(
            transport=self._api.app.shared_transport,
            timeout=TIMEOUT,
            follow_redirects=False,
            headers={"accept": "image/*", "accept-encoding": "identity", "user-agent": "agent-fix"},
        )
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT), client, client.stream("GET", signed[name]) as response:
                return await _body(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            raise ImageRejected("it could not be fetched") from None


async def _body(response: httpx.Response) -> bytes:
    """The raw body. Raises ImageRejected if it is too large or not a success."""
    if response.status_code != 200:
        raise ImageRejected(f"GitHub answered {response.status_code}")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_IMAGE_BYTES:
            raise too_large()
    return bytes(content)


def attachment(address: str, host: GitHubHost) -> str:
    """The attachment's name if the address is one of this GitHub's own, else empty."""
    site = urlsplit(host.server_url)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme != site.scheme or parts.username is not None or port != site.port:
        return ""
    if not _is_its_own(parts.hostname or "", host, site.hostname or ""):
        return ""
    found = _UUID.findall(parts.path)
    return str(found[-1]).lower() if found else ""


def _is_its_own(name: str, host: GitHubHost, site: str) -> bool:
    """True for hosts that may hold this GitHub's attachments.

    Enterprise Server uses its own host or `media` below it. A tenant of GHE.com has *.TENANT.ghe.com, and it is not
    documented which of them hold images; `pages` has what people publish themselves.
    """
    if host.is_enterprise_server:
        return name in {site, f"media.{site}"}
    below = site.endswith(".ghe.com") and name.endswith(f".{site}") and not name.endswith(f".pages.{site}")
    return below or name in {site, *_ITS_IMAGES}
