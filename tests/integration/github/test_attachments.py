"""A server fetches only those images of an issue that are GitHub's own attachments, and asks no other host."""

import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from uuid import UUID

import httpx
import pytest

from app.core.images import MAX_IMAGE_BYTES, ImageCollection
from app.github.base import GIVEN
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.reader import AttachmentFetcher, attachment
from app.github.repository_api import RepositoryApi
from tests.support.image_bytes import png

TOKEN = "ghs_0123456789abcdef0123456789abcdef0123"
PUBLIC = GitHubHost("https://api.github.com", "https://github.com")
OWN = GitHubHost("https://git.example:8443/api/v3", "https://git.example:8443")
TENANT = GitHubHost("https://api.octo.ghe.com", "https://octo.ghe.com")
SIGNED = "https://private-user-images.githubusercontent.com/1/2-{}.png?jwt=signed"
Answer = Callable[[httpx.Request], httpx.Response]


def name(number: int = 1) -> str:
    return str(UUID(int=number))


def written(number: int = 1) -> str:
    return f"https://github.com/user-attachments/assets/{name(number)}"


class Bytes(httpx.AsyncByteStream):
    """A body as it comes over a wire."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content


def served(content: bytes, **headers: str) -> httpx.Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx.Response(200, headers=named, stream=Bytes(content))


def image(_request: httpx.Request) -> httpx.Response:
    return served(png())


class Endless(httpx.AsyncByteStream):
    """A body of a hundred megabytes, which counts what was taken of it."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.sent < 100_000_000:
            self.sent += 1 << 16
            yield png() + bytes((1 << 16) - len(png()))


class Site(httpx.AsyncBaseTransport):
    """GitHub's GraphQL with a rendered page, and images by one answer; remembers all that was asked."""

    def __init__(self, page: str, answer: Answer = image) -> None:
        self.page = page
        self.answer = answer
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/graphql"):
            body: Mapping[str, object] = json.loads(await request.aread())
            assert body["variables"] == {"owner": "ada", "name": "sample", "number": 7}
            found = {"issueOrPullRequest": {"__typename": "Issue", "bodyHtml": self.page}}
            return httpx.Response(200, json={"data": {"repository": found}})
        self.asked.append(request)
        return self.answer(request)


async def collected(site: Site, *addresses: str, host: GitHubHost = PUBLIC) -> ImageCollection:
    async with TokenConnection(host, TOKEN, transport=site) as bearer:
        return await AttachmentFetcher(RepositoryApi(bearer, GIVEN, RepositoryId(7, "ada", "sample"))).collect(
            7, addresses
        )


def page(*numbers: int) -> str:
    return "".join(f'<a><img src="{SIGNED.format(name(number))}" alt="x"></a>' for number in numbers)


async def test_an_attachment_is_fetched_where_the_page_says_without_our_token() -> None:
    site = Site(page(2, 1))
    image_collection = await collected(site, written(1))
    assert image_collection.contents == [png()]
    assert image_collection.notes == ()
    (asked,) = site.asked
    assert str(asked.url) == SIGNED.format(name(1))
    assert "authorization" not in asked.headers
    assert "cookie" not in asked.headers


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/{}",
        "https://metadata.example/{}",
        "https://github.com.example/user-attachments/assets/{}",
        "https://github.com@10.0.0.1/user-attachments/assets/{}",
        "https://user:pw@github.com/user-attachments/assets/{}",
        "https://github.com:22/user-attachments/assets/{}",
        "https://github.com:x/user-attachments/assets/{}",
        "http://github.com/user-attachments/assets/{}",
        "//github.com/user-attachments/assets/{}",
        "https://raw.githubusercontent.com/{}/a.png",
        "https://camo.githubusercontent.com/{}",
        "https://private-user-images.githubusercontent.com.example/{}",
        "https://github.com\\@10.0.0.1/{}",
        "https://[::1/{}",
        "https://github.com/logout",
        "https://github.com/a?x={}",
        "https://github.com/a#{}",
        "file:///etc/{}",
        "data:image/png;base64,{}",
        "user-attachments/assets/{}",
    ],
)
async def test_no_other_host_is_asked(address: str) -> None:
    hostile = address.format(name())
    site = Site(f'<img src="{hostile}">')
    image_collection = await collected(site, hostile, written())
    assert site.asked == []
    first = "Image 1 of the issue was not shown to a model: only GitHub attachments are fetched."
    assert image_collection.notes[0] == first
    assert image_collection.images == []


async def test_an_image_that_is_no_longer_on_the_page_is_noted() -> None:
    site = Site(page(2))
    image_collection = await collected(site, written(1))
    assert (site.asked, image_collection.contents) == ([], [])
    assert "is no longer on the page" in image_collection.notes[0]


async def test_no_image_is_fetched_without_githubs_page() -> None:
    site = Site("")
    assert (await collected(site, written())).contents == []
    assert site.asked == []


def gone(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(404)


def elsewhere(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(302, headers={"location": "http://169.254.169.254/latest/meta-data/"})


def drawing(_request: httpx.Request) -> httpx.Response:
    return served(b"<svg onload='x'/>", content_type="image/png")


def bomb(_request: httpx.Request) -> httpx.Response:
    return served(png(60_000, 60_000))


def lost(_request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("slow")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (gone, "GitHub answered 404"),
        (elsewhere, "GitHub answered 302"),
        (drawing, "only PNG, JPEG, GIF and WebP are"),
        (bomb, "at most 8,000 pixels on a side are"),
        (lost, "it could not be fetched"),
    ],
)
async def test_an_unusable_image_is_noted_and_requested_once(answer: Answer, why: str) -> None:
    site = Site(page(1), answer)
    image_collection = await collected(site, written())
    assert image_collection.contents == []
    assert image_collection.notes == (f"Image 1 of the issue was not shown to a model: {why}.",)
    assert len(site.asked) == 1, "no redirect is followed"


async def test_an_oversized_image_is_read_only_up_to_the_limit() -> None:
    body = Endless()
    image_collection = await collected(Site(page(1), lambda _: httpx.Response(200, stream=body)), written())
    assert image_collection.contents == []
    assert "at most 3,750,000 bytes are" in image_collection.notes[0]
    assert body.sent < MAX_IMAGE_BYTES + (1 << 17)


async def test_a_compressed_image_is_not_decompressed() -> None:
    packed = served(gzip.compress(png()), content_encoding="gzip")
    image_collection = await collected(Site(page(1), lambda _: packed), written())
    assert "only PNG" in image_collection.notes[0]


async def test_only_five_of_three_hundred_images_are_fetched() -> None:
    site = Site(page(*range(300)))
    image_collection = await collected(site, *(written(number) for number in range(300)), written(0))
    assert len(site.asked) == len(image_collection.images) == 5
    assert image_collection.notes == (
        "Images 6, 7, 8, 9, 10 and 290 more of the issue were not shown to a model: the limit is 5.",
    )


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (written(), PUBLIC),
        (f"https://github.com/ada/sample/assets/12/{name()}", PUBLIC),
        (f"https://user-images.githubusercontent.com/1/2-{name()}.png", PUBLIC),
        (SIGNED.format(name().upper()), PUBLIC),
        (f"https://git.example:8443/user-attachments/assets/{name()}", OWN),
        (f"https://media.git.example:8443/user/1/files/{name()}?token=t", OWN),
        (f"https://octo.ghe.com/user-attachments/assets/{name()}", TENANT),
        (f"https://private-user-images.octo.ghe.com/1/2-{name()}.png?jwt=signed", TENANT),
        (SIGNED.format(name()), TENANT),
    ],
)
def test_the_forge_s_own_addresses(address: str, host: GitHubHost) -> None:
    assert attachment(address, host) == name()


@pytest.mark.parametrize(
    "address",
    [
        written(),
        f"https://git.example/user-attachments/assets/{name()}",
        f"https://x.git.example:8443/{name()}",
        SIGNED.format(name()),
    ],
)
def test_an_enterprise_server_s_attachments_are_its_own(address: str) -> None:
    assert attachment(address, OWN) == ""


@pytest.mark.parametrize("host", ["other.ghe.com", "ghe.com", "xocto.ghe.com", "site.pages.octo.ghe.com", "github.com"])
def test_a_tenant_s_attachments_are_its_own_and_no_page_that_its_people_publish(host: str) -> None:
    assert attachment(f"https://{host}/user-attachments/assets/{name()}", TENANT) == ""
