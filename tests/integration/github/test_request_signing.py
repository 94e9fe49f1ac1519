"""Each request gets a token for its own route, whatever the names of files, branches and labels in its path."""

from pathlib import Path

import pytest

from app.github.auth import AppRegistration
from app.github.reader import RepositoryReader
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.publishing import forge_at

NAMES = ("installation", "applications/x/tokens.md", "login/oauth/access_token", "why? #1 & 50 %.txt", "näher/#2")


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_called_like_a_route(fake_github: FakeGitHubSetup, name: str) -> None:
    fake_github.world.push_as_human(fake_github.repo, "main", {name: "found\n"})
    assert await RepositoryReader(fake_github.api(fake_github.app())).file(name) == b"found\n"


@pytest.mark.parametrize("name", ["x/installation", "fix/#12", "applications/x/grants"])
async def test_a_branch_called_like_a_route(fake_github: FakeGitHubSetup, name: str) -> None:
    commit = fake_github.world.push_as_human(fake_github.repo, name, {"a": "b"})
    assert await RepositoryReader(fake_github.api(fake_github.app())).head(name) == commit


@pytest.mark.parametrize("name", ["installation", "why?", "c#"])
async def test_a_label_called_like_a_route(fake_github: FakeGitHubSetup, tmp_path: Path, name: str) -> None:
    fake_github.issue.labels = ["bug", name]
    async with forge_at(fake_github, tmp_path / "forge") as forge:
        await forge.ensure_labels(remove=[name])
    assert fake_github.issue.labels == ["bug"]


async def test_the_app_signs_for_itself_where_it_is_asked(fake_github: FakeGitHubSetup) -> None:
    registration = AppRegistration(fake_github.app())
    assert (await registration.identity()).slug == "agent-fix-test"
    found = await registration.installation_of("ada", "sample")
    assert found is not None
    assert found.id == fake_github.installation.id
