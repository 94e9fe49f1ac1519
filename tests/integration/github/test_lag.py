"""GitHub's reads lag behind its writes: they are repeated for a minute at most, and nothing is written twice."""

import re
from datetime import timedelta

import pytest

from app.github.base import NeedsHumanAction, TemporaryFailure
from app.github.effects import GitHubForge
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import BRANCH_UNSEEN, NODE_UNSEEN, PULLS, TEAM_UNSEEN, TOO_QUICK, Fault, invalid
from tests.support.github.publishing import BRANCH, commit, opened, wanted

LIST = "GET /repos/ada/sample/pulls"
LABELS = "POST /repos/ada/sample/issues/2/labels"
REVIEWERS = "POST /repos/ada/sample/pulls/2/requested_reviewers"


@pytest.mark.parametrize("errors", BRANCH_UNSEEN)
async def test_a_branch_that_is_not_seen_yet_is_waited_for(
    forge: GitHubForge, fake_github: FakeGitHubSetup, errors: object
) -> None:
    fake_github.github.faults.append(invalid(PULLS, errors, times=4))
    began = fake_github.world.now
    await opened(forge, fake_github)
    assert len(fake_github.repo.pulls) == 1
    assert timedelta(seconds=5) < fake_github.world.now - began < timedelta(minutes=1), "it waited between the tries"


@pytest.mark.parametrize("errors", BRANCH_UNSEEN)
async def test_a_branch_that_never_appears_fails_after_a_minute(
    forge: GitHubForge, fake_github: FakeGitHubSetup, errors: object
) -> None:
    fake_github.github.faults.append(invalid(PULLS, errors, times=99))
    began = fake_github.world.now
    with pytest.raises(NeedsHumanAction, match="422"):
        await opened(forge, fake_github)
    assert fake_github.world.now - began < timedelta(minutes=2)
    assert len([call for call in fake_github.github.mutations() if re.fullmatch(PULLS, f"POST {call.path}")]) <= 8


async def test_a_missing_base_fails_at_once(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    began = fake_github.world.now
    with pytest.raises(NeedsHumanAction, match="base invalid"):
        await forge.ensure_pull_request(wanted(base="gone"))
    assert fake_github.world.now - began < timedelta(seconds=5)


async def test_a_pull_request_not_listed_yet_is_awaited(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    """The answer to its opening was lost, and the list lags: GitHub says that it exists, and soon shows it."""
    await opened(forge, fake_github)
    fake_github.github.faults.append(Fault(LIST, 200, "[]", times=3))
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(fake_github.repo.pulls) == 1


async def test_labels_and_reviewers_of_a_new_pull_request_are_waited_for(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.collaborators[fake_github.world.add_user("grace").id] = "write"
    pull = await opened(forge, fake_github)
    fake_github.github.faults += [
        Fault(LIST, 200, "[]", times=2),
        invalid(LABELS, NODE_UNSEEN, times=2),
        invalid(REVIEWERS, NODE_UNSEEN),
    ]
    began = fake_github.world.now
    assert (await forge.ensure_labels_and_reviewers(BRANCH, ["bot"], ["grace"])).endswith("/pull/2")
    assert (pull.labels, pull.asked) == (["bot"], ["grace"])
    assert fake_github.world.now - began < timedelta(minutes=1)


@pytest.mark.parametrize("members", [False, True], ids=["no permission", "not found"])
async def test_teams_that_the_token_cannot_see_are_told_at_once(
    forge: GitHubForge, fake_github: FakeGitHubSetup, members: bool
) -> None:
    pull = await opened(forge, fake_github)
    if members:
        fake_github.installation.permissions["members"] = "read"
        fake_github.github.faults.append(invalid(REVIEWERS, TEAM_UNSEEN, times=20))
    began = fake_github.world.now
    with pytest.raises(NeedsHumanAction, match="acme/one, acme/two, acme/three") as caught:
        await forge.ensure_labels_and_reviewers(BRANCH, ["bot"], ["acme/one", "acme/two", "acme/three"])
    assert pull.labels == ["bot"]
    assert "Members: read" in caught.value.hint
    assert fake_github.world.now - began < timedelta(seconds=10)


async def test_a_team_is_asked_with_the_permission_that_this_needs(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(forge, fake_github)
    fake_github.installation.permissions["members"] = "read"
    await forge.ensure_labels_and_reviewers(BRANCH, ["bot"], ["acme/one"])
    assert pull.asked == ["team/one"]


async def test_a_pull_request_that_came_too_quickly_is_for_later(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.github.faults.append(invalid(PULLS, TOO_QUICK))
    with pytest.raises(TemporaryFailure, match="too quickly"):
        await opened(forge, fake_github)
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
