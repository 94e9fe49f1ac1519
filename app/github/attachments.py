"""Images that people attached to an issue, fetched from the forge's own addresses and from nowhere else.

An attachment has a UUID in its address and never changes. The written address opens to browsers only; the rendered
page of the issue has one that is signed for a few minutes. So no token of ours goes with a request, and no redirect is
ever followed.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageCollection, ImageRejected, too_large
from app.core.markup import html_images
from app.github.calls import BODY_HTML
from app.github.connection import TIMEOUT, GitHubHost
from app.github.errors import NeedsHumanAction, NoAccess, TemporaryFailure
from app.github.graphql import BodyHtmlAnswer
from app.github.repository_api import RepositoryApi

PATIENCE: Final = 30.0
"""Seconds for one image."""
ELSEWHERE: Final = "only attachments of the forge itself are fetched"
TOO_MANY: Final = f"at most {MAX_IMAGES} are"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ITS_IMAGES: Final = ("private-user-images.githubusercontent.com", "user-images.githubusercontent.com")


class AttachmentFetcher:
    """Of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def collect(self, number: int, addresses: Iterable[str]) -> ImageCollection:
        """The images of an issue or pull request at these addresses, which stood in its text."""
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
        """The addresses on the rendered page by the attachments' names; nothing where GitHub does not say."""
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
            raise ImageRejected("it is not on the page any more, or could not be looked up")
        client = httpx.AsyncClient(
            transport=self._api.app.lent,
            timeout=TIMEOUT,
            follow_redirects=False,
            headers={"accept": "image/*", "accept-encoding": "identity", "user-agent": "agent-fix"},
        )
        try:
            async with asyncio.timeout(PATIENCE), client, client.stream("GET", signed[name]) as response:
                return await _body(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            raise ImageRejected("it could not be fetched") from None


async def _body(response: httpx.Response) -> bytes:
    """As it comes, never unpacked, and no more than may be shown."""
    if response.status_code != 200:
        raise ImageRejected(f"GitHub answered {response.status_code}")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_IMAGE_BYTES:
            raise too_large()
    return bytes(content)


def attachment(address: str, host: GitHubHost) -> str:
    """The attachment's name where the address is one of this GitHub's own; empty for all else."""
    site = urlsplit(host.server_url)
    try:
        asked = urlsplit(address)
        port = asked.port
    except ValueError:
        return ""
    if asked.scheme != site.scheme or asked.username is not None or port != site.port:
        return ""
    if not _is_its_own(asked.hostname or "", host, site.hostname or ""):
        return ""
    found = _UUID.findall(asked.path)
    return str(found[-1]).lower() if found else ""


def _is_its_own(name: str, host: GitHubHost, site: str) -> bool:
    """Enterprise Server keeps attachments on its own host, or on one for media below it.

    A tenant of GHE.com has *.TENANT.ghe.com, and nobody documents which of them has images. What people publish
    themselves is below `pages`.
    """
    if host.is_enterprise_server:
        return name in {site, f"media.{site}"}
    below = site.endswith(".ghe.com") and name.endswith(f".{site}") and not name.endswith(f".pages.{site}")
    return below or name in {site, *_ITS_IMAGES}
