"""An issue on GitHub for `agent-fix fix --issue`: public or with a token, never with a token for another server."""

from pathlib import Path

import httpx
import pytest

from app.cli.github import read_issue_at
from app.config.workflow import github_token
from app.core.errors import ExitCode, IssueError
from app.core.issue_file import IssueAddress, where_issue
from app.core.task import Issue
from app.github.connection import GitHubHost, TokenConnection
from tests.support import wallet_project
from tests.support.console import Console
from tests.support.github.fake import API, SITE, FakeGitHubSetup, served
from tests.support.github.faults import Fault
from tests.support.github.world import Pull, Token


async def fetched(fake_github: FakeGitHubSetup, text: str, token: str = "") -> Issue:
    address = where_issue(text)
    assert isinstance(address, IssueAddress)
    async with TokenConnection(
        GitHubHost(API, SITE), token, transport=httpx.ASGITransport(fake_github.github)
    ) as bearer:
        return await read_issue_at(bearer, address)


async def refused(fake_github: FakeGitHubSetup, text: str, token: str = "") -> str:
    with pytest.raises(IssueError) as caught:
        await fetched(fake_github, text, token)
    assert caught.value.code == ExitCode.ISSUE_UNREADABLE
    return f"{caught.value.message} | {caught.value.hint}"


def give_token(fake_github: FakeGitHubSetup, **permissions: str) -> str:
    token = "ghp_0123456789abcdef0123456789abcdef0123"
    repositories = frozenset({fake_github.repo.id})
    until = fake_github.world.now.replace(year=2099)
    fake_github.world.tokens[token] = Token(fake_github.installation.id, repositories, permissions, until)
    return token


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("ada/sample#1", ""),
        ("https://github.com/ada/sample/issues/1", "https://github.com"),
        ("https://github.com/ada/sample/issues/1/?x=y#issuecomment-12", "https://github.com"),
        ("https://github.com/ada/sample/pull/1#discussion_r2", "https://github.com"),
        ("https://ghe.example:8443/ada/sample/issues/1", "https://ghe.example:8443"),
    ],
)
def test_addresses_of_issues(text: str, server: str) -> None:
    assert where_issue(text) == IssueAddress(server, "ada", "sample", 1)


@pytest.mark.parametrize(
    "text", ["-", "issue.md", "a/b/c#1", "ada/sample", "ada/sample#", "ada/sample#x", "#1", "../c#1"]
)
def test_anything_else_is_a_file(text: str) -> None:
    assert where_issue(text) == Path(text)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/ada/sample",
        "https://github.com/ada/sample.git",
        "https://token@github.com/ada/sample.git/",
        "git@github.com:ada/sample.git",
        "github.com:ada/sample",
        "ssh://git@github.com:22/ada/sample.git",
    ],
)
@pytest.mark.parametrize("text", ["7", "#7"])
def test_a_number_is_an_issue_of_the_repository_itself(text: str, url: str) -> None:
    assert where_issue(text, lambda: url) == IssueAddress("https://github.com", "ada", "sample", 7)


@pytest.mark.parametrize("url", ["", "/srv/git/sample.git", "file:///srv/sample", "https://host/a/b/c", "../sample"])
def test_a_number_needs_a_repository_on_github(url: str) -> None:
    with pytest.raises(IssueError, match="cannot be looked up") as caught:
        where_issue("7", lambda: url)
    assert caught.value.hint == "Name it with its repository: --issue OWNER/NAME#7"


@pytest.mark.parametrize("text", ["https://github.com/ada/sample", "http://github.com/ada/sample/issues/new"])
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(IssueError, match="is not the address of an issue"):
        where_issue(text)


async def test_a_public_issue_needs_no_token(fake_github: FakeGitHubSetup) -> None:
    fake_github.issue.body = "Totals like 0.125 …\u200b<!-- hidden -->"
    fake_github.world.label(fake_github.issue, fake_github.owner, "bug")
    for text in ("ada/sample#1", f"{SITE}/ada/sample/issues/1"):
        found = await fetched(fake_github, text)
        assert (found.title, found.number, found.labels) == ("Totals are a cent too low", 1, ("bug",))
        assert found.body == "Totals like 0.125 …"
        assert found.hidden_characters > 0
    assert {call.token for call in fake_github.github.calls} == {None}


async def test_a_private_issue_needs_a_token_with_access(fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.private = True
    assert "a private repository needs a token: set GITHUB_TOKEN" in await refused(fake_github, "ada/sample#1")
    token = give_token(fake_github, metadata="read")
    assert "check that the token in GITHUB_TOKEN may read it" in await refused(fake_github, "ada/sample#1", token)
    token = give_token(fake_github, metadata="read", issues="read")
    assert (await fetched(fake_github, "ada/sample#1", token)).number == 1


def test_a_token_is_looked_for_under_the_usual_names() -> None:
    given = {"GH_TOKEN": "third", "GITHUB_TOKEN": "second", "AGENT_FIX_GITHUB_TOKEN": " first "}
    assert github_token(given) == "first"
    assert github_token({"GITHUB_TOKEN": " ", "GH_TOKEN": "third"}) == "third"
    assert github_token({}) == ""


async def test_a_token_goes_to_no_other_server(fake_github: FakeGitHubSetup) -> None:
    token = give_token(fake_github, metadata="read", issues="read")
    said = await refused(fake_github, "https://github.com/ada/sample/issues/1", token)
    assert f"agent-fix is configured for {SITE}" in said
    assert "set AGENT_FIX_GITHUB_URL=https://github.com" in said
    assert fake_github.github.calls == []


async def test_a_number_that_is_not_an_issue_is_refused(fake_github: FakeGitHubSetup) -> None:
    assert "ada/sample has no issue 9" in await refused(fake_github, "ada/sample#9")
    fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "A change", pull=Pull("topic", "main", draft=True)
    )
    assert "ada/sample#2 is a pull request" in await refused(fake_github, "ada/sample#2")
    assert "ada/other#1 cannot be read" in await refused(fake_github, "ada/other#1")
    assert "401" in await refused(fake_github, "ada/sample#1", "ghp_unknown")


async def test_a_rate_limit_is_reported_in_githubs_words(fake_github: FakeGitHubSetup) -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9999999999"}
    body = '{"message": "API rate limit exceeded for 192.0.2.1."}'
    fake_github.github.faults.append(Fault("GET /repos/ada/sample/issues/1", 403, body=body, headers=headers))
    assert "API rate limit exceeded" in await refused(fake_github, "ada/sample#1")


def test_the_command_fixes_an_issue_by_its_address(fake_github: FakeGitHubSetup, tmp_path: Path) -> None:
    """The real program with a GitHub on the loopback: the branch and the text name the issue's number."""
    title, _, body = wallet_project.ISSUE.partition("\n")
    fake_github.issue.title, fake_github.issue.body = title.removeprefix("# "), body.strip()
    console = Console(tmp_path / "console")
    with served(fake_github.github) as address:
        console.environment |= {"AGENT_FIX_GITHUB_URL": address, "AGENT_FIX_GITHUB_API_URL": address}
        repository, model = (
            wallet_project.make_wallet(tmp_path / "wallet"),
            wallet_project.mended().save(tmp_path / "recording.jsonl"),
        )
        what = ("--repo", repository, "--issue", f"{address}/ada/sample/issues/1", "--model", f"recorded/{model}")
        finished = console.execute("fix", *what, "--state", console.state, "--out", console.out)
    assert finished.code == 0, finished.said
    assert finished.job["branch"].startswith("agent-fix/issue-1-")
    assert "Fixes #1" in finished.pull_request
