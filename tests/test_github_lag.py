"""GitHub's read side lags behind what was just written: asked again for a minute, never without end, nothing twice."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.forge.errors import NeedsHuman
from app.forge.github.forge import GitHubForge
from tests.fakes.github.faults import BRANCH_UNSEEN, NODE_UNSEEN, PULLS, Fault, invalid
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.publishing import BRANCH, commit, forge_at, opened, wanted

LIST = "GET /repos/ada/sample/pulls"
LABELS = "POST /repos/ada/sample/issues/2/labels"
REVIEWERS = "POST /repos/ada/sample/pulls/2/requested_reviewers"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def forge(ground: Ground, tmp_path: Path) -> AsyncIterator[GitHubForge]:
    async with forge_at(ground, tmp_path) as forge:
        yield forge


@pytest.mark.parametrize("errors", BRANCH_UNSEEN)
async def test_a_branch_that_is_not_seen_yet_is_waited_for(forge: GitHubForge, ground: Ground, errors: object) -> None:
    ground.github.faults.append(invalid(PULLS, errors, times=4))
    began = ground.world.now
    await opened(forge, ground)
    assert len(ground.repo.pulls) == 1
    assert timedelta(seconds=5) < ground.world.now - began < timedelta(minutes=1), "it waited between the tries"


@pytest.mark.parametrize("errors", BRANCH_UNSEEN)
async def test_a_branch_that_is_never_seen_is_told_after_a_minute(
    forge: GitHubForge, ground: Ground, errors: object
) -> None:
    ground.github.faults.append(invalid(PULLS, errors, times=99))
    began = ground.world.now
    with pytest.raises(NeedsHuman, match="422"):
        await opened(forge, ground)
    assert ground.world.now - began < timedelta(minutes=2)
    assert len([call for call in ground.github.mutations() if re.fullmatch(PULLS, f"POST {call.path}")]) <= 8


async def test_a_base_that_is_gone_is_told_at_once(forge: GitHubForge, ground: Ground) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    began = ground.world.now
    with pytest.raises(NeedsHuman, match="base invalid"):
        await forge.ensure_pull_request(wanted(base="gone"))
    assert ground.world.now - began < timedelta(seconds=5)


async def test_one_that_is_there_and_not_listed_yet_is_not_given_up(forge: GitHubForge, ground: Ground) -> None:
    """The answer to its opening was lost, and the list lags: GitHub says that it exists, and soon shows it."""
    await opened(forge, ground)
    ground.github.faults.append(Fault(LIST, 200, "[]", times=3))
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(ground.repo.pulls) == 1


async def test_labels_and_reviewers_of_a_new_pull_request_are_waited_for(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.collaborators[ground.world.add_user("grace").id] = "write"
    pull = await opened(forge, ground)
    ground.github.faults += [
        Fault(LIST, 200, "[]", times=2),
        invalid(LABELS, NODE_UNSEEN, times=2),
        invalid(REVIEWERS, NODE_UNSEEN),
    ]
    began = ground.world.now
    assert (await forge.ensure_dress(BRANCH, ["bot"], ["grace"])).endswith("/pull/2")
    assert (pull.labels, pull.asked) == (["bot"], ["grace"])
    assert ground.world.now - began < timedelta(minutes=1)


async def test_teams_that_the_token_cannot_see_do_not_hold_it_up_without_end(
    forge: GitHubForge, ground: Ground
) -> None:
    """Of them GitHub says the same for good: all of them together are waited for once."""
    ground.repo.collaborators[ground.world.add_user("grace").id] = "write"
    pull = await opened(forge, ground)
    ground.github.faults.append(invalid(REVIEWERS, NODE_UNSEEN, times=20))
    began = ground.world.now
    with pytest.raises(NeedsHuman, match="acme/one, acme/two, acme/three"):
        await forge.ensure_dress(BRANCH, ["bot"], ["acme/one", "acme/two", "acme/three"])
    assert pull.labels == ["bot"]
    assert ground.world.now - began < timedelta(minutes=2), "less than a publisher may hold an intent for"
