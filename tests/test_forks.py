"""Commits of a fork that become a branch here: no workflow of this repository starts for them, and people are told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.config import RepoConfig
from app.publish.forks import FORK_MARK
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.world import Issue, Pull
from tests.front_desk import FrontDesk, front_desk
from tests.publishing import Desk, desk_at

AUTO = RepoConfig(ci="auto")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def desk(ground: Ground, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(ground, tmp_path) as desk:
        yield desk


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as front:
        yield front


def from_a_fork(ground: Ground) -> Issue:
    mallory = ground.world.add_user("mallory")
    theirs = Pull("topic", "main", draft=False, fork=99)
    return ground.world.open_issue(ground.repo, mallory, "Round better", "It rounds.", pull=theirs)


async def beside(desk: Desk, ground: Ground, pull: Issue, **changes: Any) -> str:
    """A sibling of that pull request, worked on and as far published as it may be."""
    made = await desk.admit(number=pull.number, aim="follow_up", goal="sibling", pull=pull.number, **changes)
    await desk.work(made)
    for _ in range(4):
        await desk.everything()
        ground.world.tick(11)
    return made.id


async def test_a_sibling_of_a_fork_starts_no_workflow_and_says_why(desk: Desk, ground: Ground) -> None:
    name = await beside(desk, ground, from_a_fork(ground), config=AUTO.model_copy(update={"ci": "manual"}), fork=True)
    assert desk.ended(name)[0] == "pr_opened"
    assert ground.repo.started == []
    ours = ground.repo.pulls[-1]
    assert FORK_MARK in ours.body
    assert "commits of a fork" in ours.body
    assert "lets CI start" not in desk.comments(ours.number - 1)[0]


async def test_what_would_start_workflows_for_a_forks_commits_is_not_pushed(desk: Desk, ground: Ground) -> None:
    """Whatever the worker was told: GitHub is asked whose commits they are right before the push."""
    name = await beside(desk, ground, from_a_fork(ground), config=AUTO)
    state, result = desk.ended(name)
    assert state == "error"
    assert "commits of a fork" in result.reason
    assert ground.repo.pushes == []


async def test_a_sibling_of_a_branch_of_this_repository_may_start_them(desk: Desk, ground: Ground) -> None:
    theirs = ground.world.open_issue(ground.repo, ground.owner, "Mine", pull=Pull("main", "main", draft=False))
    name = await beside(desk, ground, theirs, config=AUTO)
    assert desk.ended(name)[0] == "pr_opened"
    assert len(ground.repo.started) == 1
    assert FORK_MARK not in ground.repo.pulls[-1].body


@pytest.mark.parametrize("aim", ["ci", "follow_up"])
async def test_nor_is_anything_that_starts_them_later(desk: Desk, ground: Ground, aim: str) -> None:
    await beside(desk, ground, from_a_fork(ground), fork=True)
    ours = ground.repo.pulls[-1]
    assert ours.pull is not None
    head, pushed = ground.repo.branches[ours.pull.head], list(ground.repo.pushes)
    made = await desk.admit(
        base=head, number=ours.number, aim=aim, goal="same_branch", pull=ours.number, expected=head, config=AUTO,
        job_changes={"branch": ours.pull.head, "plan_mode": "none"},
    )  # fmt: skip
    await desk.work(made, {} if aim == "ci" else {"app/money.py": "half = 0.125\n"})
    await desk.everything()
    assert desk.ended(made.id)[0] == "error"
    assert ground.repo.pushes == pushed


async def test_a_fork_is_worked_on_with_ci_held_back_whatever_the_configuration_says(front: FrontDesk) -> None:
    front.configure("ci: auto\n")
    pull = front.open_pull(front.person("mallory", "none"), fork=999)
    await front.says("/agent fix the rounding", pull)
    commission = front.job.commission
    assert (commission.goal, commission.config.ci, commission.fork) == ("sibling", "manual", True)


@pytest.mark.parametrize(("mark", "ci"), [(FORK_MARK, "manual"), ("", "auto")])
async def test_so_is_our_own_pull_request_that_holds_a_forks_commits(front: FrontDesk, mark: str, ci: str) -> None:
    front.configure("ci: auto\n")
    pull = front.our_pull()
    pull.body = f"Fixes #1\n\n{mark}"
    await front.says("/agent fix the rounding", pull)
    commission = front.job.commission
    assert (commission.goal, commission.config.ci, commission.fork) == ("same_branch", ci, bool(mark))


async def test_ci_cannot_be_asked_for_there_and_it_is_said_how_a_person_starts_it(front: FrontDesk) -> None:
    pull = front.our_pull()
    pull.body = f"Fixes #1\n\n{FORK_MARK}"
    await front.says("/agent ci", pull)
    assert front.jobs() == []
    said = front.answer
    assert "secrets" in said
    assert "git commit --allow-empty" in said
