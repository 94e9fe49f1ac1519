"""A request is signed for what it asks, however the files, branches and labels in its path are called."""

from pathlib import Path

import pytest

from app.forge.github.reads import Reader
from app.forge.github.registration import Registration
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.publishing import forge_at

NAMES = ("installation", "applications/x/tokens.md", "login/oauth/access_token", "why? #1 & 50 %.txt", "näher/#2")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_called_like_a_route(ground: Ground, name: str) -> None:
    ground.world.push_as_human(ground.repo, "main", {name: "found\n"})
    assert await Reader(ground.door(ground.app())).file(name) == b"found\n"


@pytest.mark.parametrize("name", ["x/installation", "fix/#12", "applications/x/grants"])
async def test_a_branch_called_like_a_route(ground: Ground, name: str) -> None:
    commit = ground.world.push_as_human(ground.repo, name, {"a": "b"})
    assert await Reader(ground.door(ground.app())).head(name) == commit


@pytest.mark.parametrize("name", ["installation", "why?", "c#"])
async def test_a_label_called_like_a_route(ground: Ground, tmp_path: Path, name: str) -> None:
    ground.issue.labels = ["bug", name]
    async with forge_at(ground, tmp_path / "forge") as forge:
        await forge.ensure_labels(remove=[name])
    assert ground.issue.labels == ["bug"]


async def test_the_app_signs_for_itself_where_it_is_asked(ground: Ground) -> None:
    registration = Registration(ground.app())
    assert (await registration.identity()).slug == "agent-fix-test"
    found = await registration.installation_of("ada", "sample")
    assert found is not None
    assert found.id == ground.installation.id
