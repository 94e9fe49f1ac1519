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

from app.forge.errors import NeedsHuman, NoAccess, TryAgain
from app.forge.github.calls import BODY_HTML
from app.forge.github.connection import TIMEOUT, Host
from app.forge.github.documents import BodyHtmlAnswer
from app.forge.github.door import Door
from app.images import LARGEST, MOST, Album, NotShown, too_large
from app.markup import html_images

PATIENCE: Final = 30.0
"""Seconds for one image."""
ELSEWHERE: Final = "only attachments of the forge itself are fetched"
TOO_MANY: Final = f"at most {MOST} are"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ITS_IMAGES: Final = ("private-user-images.githubusercontent.com", "user-images.githubusercontent.com")


class Attachments:
    """Of one repository."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def collect(self, number: int, addresses: Iterable[str]) -> Album:
        """The images of an issue or pull request at these addresses, which stood in its text."""
        album, wanted = Album(), dict[str, int]()
        for place, address in enumerate(addresses, 1):
            name = attachment(address, self._door.app.host)
            if not name:
                album.leave_out(place, ELSEWHERE)
            elif len(wanted) >= MOST and name not in wanted:
                album.leave_out(place, TOO_MANY)
            else:
                wanted.setdefault(name, place)
        signed = await self._signed(number) if wanted else {}
        for name, place in wanted.items():
            try:
                album.add(place, await self._fetch(signed, name))
            except NotShown as why:
                album.leave_out(place, str(why))
        return album

    async def _signed(self, number: int) -> Mapping[str, str]:
        """The addresses on the rendered page by the attachments' names; nothing where GitHub does not say."""
        repository = self._door.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": number}
        try:
            answer = await self._door.graphql(BodyHtmlAnswer, BODY_HTML, variables)
        except (NoAccess, NeedsHuman, TryAgain):
            return {}
        found: dict[str, str] = {}
        for address in html_images(answer.page):
            if name := attachment(address, self._door.app.host):
                found.setdefault(name, address)
        return found

    async def _fetch(self, signed: Mapping[str, str], name: str) -> bytes:
        if name not in signed:
            raise NotShown("it is not on the page any more, or could not be looked up")
        client = httpx.AsyncClient(
            transport=self._door.app.lent,
            timeout=TIMEOUT,
            follow_redirects=False,
            headers={"accept": "image/*", "accept-encoding": "identity", "user-agent": "agent-fix"},
        )
        try:
            async with asyncio.timeout(PATIENCE), client, client.stream("GET", signed[name]) as response:
                return await _body(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            raise NotShown("it could not be fetched") from None


async def _body(response: httpx.Response) -> bytes:
    """As it comes, never unpacked, and no more than may be shown."""
    if response.status_code != 200:
        raise NotShown(f"GitHub answered {response.status_code}")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > LARGEST:
            raise too_large()
    return bytes(content)


def attachment(address: str, host: Host) -> str:
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


def _is_its_own(name: str, host: Host, site: str) -> bool:
    """Enterprise Server keeps attachments on its own host, or on one for media below it.

    A tenant of GHE.com has *.TENANT.ghe.com, and nobody documents which of them has images. What people publish
    themselves is below `pages`.
    """
    if host.is_enterprise_server:
        return name in {site, f"media.{site}"}
    below = site.endswith(".ghe.com") and name.endswith(f".{site}") and not name.endswith(f".pages.{site}")
    return below or name in {site, *_ITS_IMAGES}
