"""One token in place of an App: its account, its uses, and that it is never revoked or replaced."""

from collections.abc import Mapping

import httpx
import pytest

from app.github.base import GIVEN, NoAccess
from app.github.calls import GIT_PUSH
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi, find_bot_account

TOKEN = "ghs_0123456789abcdef0123456789abcdef0123"
REPOSITORY = RepositoryId(7, "ada", "sample")
PATH = "/repos/ada/sample"
BOT = {"id": 41_898_282, "login": "github-actions[bot]", "type": "Bot"}
FORBIDDEN = httpx.Response(403, json={"message": "Resource not accessible by integration"})


class Site(httpx.AsyncBaseTransport):
    """Answers by path, and remembers what was asked with which token."""

    def __init__(self, answers: Mapping[str, httpx.Response]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path, request.headers.get("authorization", "")))
        missing = httpx.Response(404, json={"message": "Not Found"})
        return self.answers.get(request.url.path, missing)


def repository_api(site: Site) -> RepositoryApi:
    return RepositoryApi(
        TokenConnection(GitHubHost("http://api.example", "http://site.example"), TOKEN, transport=site),
        GIVEN,
        REPOSITORY,
    )


@pytest.mark.parametrize(
    ("answers", "login"),
    [
        ({"/user": httpx.Response(200, json={"id": 5, "login": "robot", "type": "User"})}, "robot"),
        (
            {"/user": FORBIDDEN, "/graphql": httpx.Response(200, json={"data": {"viewer": {"login": "ci[bot]"}}})},
            "ci[bot]",
        ),
        ({"/user": FORBIDDEN, "/graphql": FORBIDDEN}, "github-actions[bot]"),
        ({"/user": FORBIDDEN, "/graphql": httpx.Response(200, json={"errors": [{"message": "no"}]})}, BOT["login"]),
    ],
)
async def test_a_token_knows_whose_it_is(answers: dict[str, httpx.Response], login: str) -> None:
    account = httpx.Response(200, json={**BOT, "login": login})
    site = Site({**answers, f"/users/{login}": account})
    bot = await find_bot_account(repository_api(site))
    assert (bot.login, bot.user) == (login, BOT["id"])
    assert bot.person.email == f"{BOT['id']}+{login}@users.noreply.site.example"


async def test_a_given_token_is_used_as_it_is_and_never_revoked() -> None:
    site = Site({})
    here = repository_api(site)
    assert await here.token(GIT_PUSH) == TOKEN
    await here.revoke_token(TOKEN)
    assert site.asked == []


async def test_a_repository_is_fetched_from_the_host_of_its_token() -> None:
    site = Site({PATH: httpx.Response(200, json={})})
    assert await RepositoryReader(repository_api(site)).installation() == GIVEN
    assert await RepositoryReader(repository_api(Site({}))).installation() is None


async def test_a_refused_token_is_reported_once() -> None:
    site = Site({PATH: httpx.Response(401, json={"message": "Bad credentials"})})
    with pytest.raises(NoAccess):
        await RepositoryReader(repository_api(site)).repository()
    assert [path for _, path, _ in site.asked] == [PATH]


async def test_every_request_is_signed_by_it() -> None:
    site = Site({PATH: httpx.Response(200, json={}), "/user": FORBIDDEN})
    await RepositoryReader(repository_api(site)).installation()
    assert {sign.partition(" ")[2] for _, _, sign in site.asked} == {TOKEN}


def test_a_given_token_is_not_in_the_repr() -> None:
    assert TOKEN not in repr(TokenConnection(GitHubHost("http://api.example", "http://site.example"), TOKEN))


async def test_ownership_is_asked_once() -> None:
    site = Site({"/user": httpx.Response(200, json=BOT), f"/users/{BOT['login']}": httpx.Response(200, json=BOT)})
    app = repository_api(site).app
    first, again = [await find_bot_account(RepositoryApi(app, GIVEN, REPOSITORY)) for _ in range(2)]
    assert first == again
    assert [path for _, path, _ in site.asked] == ["/user", f"/users/{BOT['login']}"]
