"""Commits of a fork on a branch here: no workflow of this repository starts for them, and the text says so."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.publish.body_edits import FORK_MARK
from tests.support.event_harness import EventHarness, event_harness
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.world import Issue, Pull
from tests.support.publisher_harness import PublisherHarness

AUTO = RepoConfig(ci="auto")


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path) as front:
        yield front


def from_a_fork(fake_github: FakeGitHubSetup) -> Issue:
    mallory = fake_github.world.add_user("mallory")
    theirs = Pull("topic", "main", draft=False, fork=99)
    return fake_github.world.open_issue(fake_github.repo, mallory, "Round better", "It rounds.", pull=theirs)


async def beside(harness: PublisherHarness, fake_github: FakeGitHubSetup, pull: Issue, **changes: Any) -> str:
    """A sibling of that pull request, worked on and as far published as it may be."""
    made = await harness.admit(
        number=pull.number, aim="follow_up", publish_target="sibling", pull=pull.number, **changes
    )
    await harness.work(made)
    for _ in range(4):
        await harness.everything()
        fake_github.world.tick(11)
    return made.id


async def test_a_sibling_of_a_fork_starts_no_workflow_and_says_why(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    name = await beside(
        harness, fake_github, from_a_fork(fake_github), config=AUTO.model_copy(update={"ci": "manual"}), fork=True
    )
    assert harness.ended(name)[0] == "pr_opened"
    assert fake_github.repo.started == []
    ours = fake_github.repo.pulls[-1]
    assert FORK_MARK in ours.body
    assert "commits from a fork" in ours.body
    assert "to start CI" not in harness.comments(ours.number - 1)[0]


async def test_a_push_that_would_start_workflows_for_a_forks_commits_is_refused(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """Whatever the worker was told: GitHub is asked whose commits they are right before the push."""
    name = await beside(harness, fake_github, from_a_fork(fake_github), config=AUTO)
    state, result = harness.ended(name)
    assert state == "error"
    assert "commits from a fork" in result.reason
    assert fake_github.repo.pushes == []


async def test_a_sibling_of_a_branch_of_this_repository_may_start_them(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    theirs = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", pull=Pull("main", "main", draft=False)
    )
    name = await beside(harness, fake_github, theirs, config=AUTO)
    assert harness.ended(name)[0] == "pr_opened"
    assert len(fake_github.repo.started) == 1
    assert FORK_MARK not in fake_github.repo.pulls[-1].body


@pytest.mark.parametrize("aim", ["ci", "follow_up"])
async def test_nor_is_anything_that_starts_them_later(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, aim: str
) -> None:
    await beside(harness, fake_github, from_a_fork(fake_github), fork=True)
    ours = fake_github.repo.pulls[-1]
    assert ours.pull is not None
    head, pushed = fake_github.repo.branches[ours.pull.head], list(fake_github.repo.pushes)
    made = await harness.admit(
        base=head, number=ours.number, aim=aim, publish_target="same_branch", pull=ours.number,
        expected=head, config=AUTO,
        job_changes={"branch": ours.pull.head, "plan_mode": "none"},
    )  # fmt: skip
    await harness.work(made, {} if aim == "ci" else {"app/money.py": "half = 0.125\n"})
    await harness.everything()
    assert harness.ended(made.id)[0] == "error"
    assert fake_github.repo.pushes == pushed


async def test_ci_is_always_held_back_for_a_fork(front: EventHarness) -> None:
    front.configure("ci: auto\n")
    pull = front.open_pull(front.person("mallory", "none"), fork=999)
    await front.says("/agent fix the rounding", pull)
    job_context = front.job.job_context
    assert (job_context.publish_target, job_context.config.ci, job_context.fork) == ("sibling", "manual", True)


@pytest.mark.parametrize(("mark", "ci"), [(FORK_MARK, "manual"), ("", "auto")])
async def test_our_pull_request_with_a_forks_commits_is_a_fork_too(front: EventHarness, mark: str, ci: str) -> None:
    front.configure("ci: auto\n")
    pull = front.our_pull()
    pull.body = f"Fixes #1\n\n{mark}"
    await front.says("/agent fix the rounding", pull)
    job_context = front.job.job_context
    assert (job_context.publish_target, job_context.config.ci, job_context.fork) == ("same_branch", ci, bool(mark))


async def test_ci_is_refused_there_with_how_a_person_starts_it(front: EventHarness) -> None:
    pull = front.our_pull()
    pull.body = f"Fixes #1\n\n{FORK_MARK}"
    await front.says("/agent ci", pull)
    assert front.jobs() == []
    said = front.answer
    assert "secrets" in said
    assert "git commit --allow-empty" in said
