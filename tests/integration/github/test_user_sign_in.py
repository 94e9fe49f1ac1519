"""People sign in with GitHub's user flow; what they may do is what GitHub says of their own token."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from app.github.base import NoAccess
from app.github.connection import GitHubHost
from app.github.user_sign_in import GitHubSignIn, SignInRefused, challenge
from tests.support.github.fake import API, SITE, FakeGitHubSetup, make_fake_github
from tests.support.github.faults import Fault

BACK = "https://agent-fix.example/sign-in/done"
VERIFIER = "v" * 43


@pytest.fixture
def github(tmp_path: Path) -> FakeGitHubSetup:
    made = make_fake_github(tmp_path)
    made.world.sign_in.callbacks = {BACK}
    made.world.sign_in.person = made.owner
    return made


def sign_in(github: FakeGitHubSetup, secret: str = "") -> GitHubSignIn:
    world = github.world
    return GitHubSignIn(
        GitHubHost(API, SITE),
        world.sign_in.client,
        secret or world.sign_in.secret,
        transport=httpx.ASGITransport(github.github),
        now=lambda: world.now,
        sleep=github.sleep,
    )


async def code(github: FakeGitHubSetup, **changes: str) -> str:
    """The code that GitHub hands to the browser of a person who presses its button."""
    address = sign_in(github).address(state="s", verifier=VERIFIER, redirect=BACK)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()} | changes
    async with httpx.AsyncClient(transport=httpx.ASGITransport(github.github), base_url=SITE) as browser:
        shown = await browser.get(f"/login/oauth/authorize?{urlencode(asked)}")
        if shown.status_code != 200:
            return ""
        sent = await browser.post("/login/oauth/authorize", data=asked)
    query = parse_qs(urlsplit(sent.headers["location"]).query)
    assert query["state"] == ["s"]
    return query["code"][0]


async def test_a_person_signs_in_and_has_the_rights_that_github_says(github: FakeGitHubSetup) -> None:
    world = github.world
    repos = [world.add_repo(github.owner, name, {"a": "b\n"}) for name in ("read", "triage", "write", "maintain", "no")]
    grace = world.add_user("grace")
    for repo in repos[:4]:
        repo.collaborators[grace.id] = repo.name
    elsewhere = world.add_repo(github.owner, "elsewhere", {"a": "b\n"})  # where the App is not installed
    elsewhere.collaborators[grace.id] = "admin"
    world.install(*repos[:2])
    world.install(*repos[2:])
    world.sign_in.person = grace
    client = sign_in(github)
    token = await client.token(await code(github), verifier=VERIFIER, redirect=BACK)
    found = await client.person(token)
    assert (found.user, found.login) == (grace.id, "grace")
    assert found.rights == {repos[0].id: "read", repos[1].id: "read", repos[2].id: "write", repos[3].id: "write"}
    repos[2].collaborators[grace.id] = "read"
    del repos[3].collaborators[grace.id]
    assert await client.rights(token) == {repo.id: "read" for repo in repos[:3]}


async def test_all_pages_are_read(github: FakeGitHubSetup) -> None:
    world = github.world
    for number in range(130):
        repo = world.repos[github.repo.id]
        world.repos[5_000 + number] = type(repo)(
            5_000 + number, github.owner, f"r{number}", repo.path, repo.collaborators
        )
    github.installation.repositories |= world.repos.keys()
    client = sign_in(github)
    token = await client.token(await code(github), verifier=VERIFIER, redirect=BACK)
    assert len(await client.rights(token)) == 131


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda given: given | {"code": "0" * 20}, "incorrect or expired"),
        (lambda given: given | {"verifier": "w" * 43}, "incorrect or expired"),
        (lambda given: given | {"redirect": BACK + "x"}, "redirect_uri"),
    ],
)
async def test_a_code_is_good_only_with_what_it_was_made_for(
    github: FakeGitHubSetup, spoil: Callable[[dict[str, str]], dict[str, str]], words: str
) -> None:
    given = spoil({"code": await code(github), "verifier": VERIFIER, "redirect": BACK})
    with pytest.raises(SignInRefused, match=words):
        await sign_in(github).token(given.pop("code"), **given)


async def test_a_code_is_good_once_and_not_for_long_and_only_with_the_secret(github: FakeGitHubSetup) -> None:
    given = await code(github)
    await sign_in(github).token(given, verifier=VERIFIER, redirect=BACK)
    with pytest.raises(SignInRefused):
        await sign_in(github).token(given, verifier=VERIFIER, redirect=BACK)
    late = await code(github)
    github.world.tick(601)
    with pytest.raises(SignInRefused):
        await sign_in(github).token(late, verifier=VERIFIER, redirect=BACK)
    with pytest.raises(SignInRefused, match="client_secret"):
        await sign_in(github, "f" * 40).token(await code(github), verifier=VERIFIER, redirect=BACK)


async def test_github_shows_no_button_for_a_foreign_address_or_another_challenge(github: FakeGitHubSetup) -> None:
    assert not await code(github, redirect_uri="https://evil.example/sign-in/done")
    assert not await code(github, code_challenge_method="plain")
    assert not await code(github, code_challenge=challenge(VERIFIER) + "=")
    assert not await code(github, client_id="another")


async def test_a_revoked_token_opens_nothing(github: FakeGitHubSetup) -> None:
    client = sign_in(github)
    token = await client.token(await code(github), verifier=VERIFIER, redirect=BACK)
    assert await client.rights(token)
    await sign_in(github, "f" * 40).revoke(token)
    assert await client.rights(token)
    await client.revoke(token)
    with pytest.raises(NoAccess):
        await client.rights(token)


async def test_an_installation_that_is_gone_meanwhile_is_left_out(github: FakeGitHubSetup) -> None:
    other = github.world.add_repo(github.owner, "other", {"a": "b\n"})
    gone = github.world.install(other)
    client = sign_in(github)
    token = await client.token(await code(github), verifier=VERIFIER, redirect=BACK)
    assert set(await client.rights(token)) == {github.repo.id, other.id}
    github.github.faults.append(Fault(f"GET /user/installations/{gone.id}/repositories", 404))
    assert set(await client.rights(token)) == {github.repo.id}
