"""GitHub refuses a branch that is behind a changed workflow: the base is merged into it, and the text says so."""

from pathlib import Path
from typing import Any

import pytest

from app.config.repository import RepoConfig
from app.core.job import JobResult
from tests.support.github.fake import FakeGitHubSetup, make_fake_github
from tests.support.github.faults import Fault
from tests.support.github.world import Issue, Pull
from tests.support.publisher_harness import MANY, PublisherHarness
from tests.support.repositories import git

CI = ".github/workflows/ci.yml"


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    fake_github = make_fake_github(tmp_path)
    fake_github.world.push_as_human(fake_github.repo, "main", {CI: "on: push\n"})
    return fake_github


async def finish(harness: PublisherHarness) -> None:
    for _ in range(5):
        await harness.everything()
        harness.fake_github.world.tick(31)


def workflow_changes(fake_github: FakeGitHubSetup, **more: str) -> str:
    """On the default branch, with other files as `name=content`; the commit."""
    files: dict[str, str | bytes] = {CI: f"on: push # {fake_github.world.number()}\n"}
    files |= {f"{name}.py": content for name, content in more.items()}
    return fake_github.world.push_as_human(fake_github.repo, "main", files)


def parents(fake_github: FakeGitHubSetup, commit: str) -> list[str]:
    return git(fake_github.repo.path, "show", "-s", "--format=%P", commit).split()


def show(fake_github: FakeGitHubSetup, ref: str, path: str) -> str:
    return git(fake_github.repo.path, "show", f"{ref}:{path}")


async def published(harness: PublisherHarness, fake_github: FakeGitHubSetup, **changes: Any) -> tuple[str, JobResult]:
    made = await harness.admit(**changes)
    newest = workflow_changes(fake_github, other="x = 1\n")
    await harness.work(made)
    await finish(harness)
    assert fake_github.repo.branches["main"] == newest
    return harness.ended(made.id)


async def test_the_base_is_merged_into_the_verified_commit_and_the_text_says_so(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    state, result = await published(harness, fake_github)
    assert state == "pr_opened", result.reason
    newest, head = fake_github.repo.branches["main"], fake_github.repo.branches[result.branch]
    assert parents(fake_github, head) == [result.commit, newest], "what was verified is below, by its own id"
    assert show(fake_github, head, "app/money.py") == "half = 0.25"
    assert git(fake_github.repo.path, "diff", "--name-only", newest, head).split() == ["app/money.py"]
    assert "[skip ci]" in git(fake_github.repo.path, "show", "-s", "--format=%B", head)
    assert len(fake_github.repo.pushes) == 2
    (pull,) = fake_github.repo.pulls
    assert "was merged into this branch after verification" in pull.body
    assert result.commit in pull.body
    assert newest in pull.body
    assert any("after verification" in note for note in result.notes)


async def test_an_unchanged_base_is_not_merged(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    fake_github.world.push_as_human(fake_github.repo, "main", {"other.py": "x = 1\n"})
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened"
    assert fake_github.repo.branches[result.branch] == result.commit
    assert "after verification" not in fake_github.repo.pulls[0].body


async def test_a_conflict_with_the_base_is_reported_and_not_pushed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    fake_github.world.push_as_human(fake_github.repo, "main", {CI: "on: issues\n", "app/money.py": "half = 0.75\n"})
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "workflow changed on main" in result.reason
    assert "app/money.py" in result.reason
    assert "/agent retry" in result.hint
    assert made.branch not in fake_github.repo.branches
    assert len(fake_github.repo.pushes) == 1
    assert result.diff


async def test_a_merge_of_the_base_is_tried_once(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    """The workflows change again while it is pushed: that is said, and not run after."""
    made = await harness.admit()
    workflow_changes(fake_github)
    await harness.work(made)

    class ConcurrentPush:
        """After the second look at where the base is, it is elsewhere."""

        def hits(self, method: str, path: str) -> bool:
            if "/compare/" in path:
                workflow_changes(fake_github)
            return False

    fake_github.github.faults.append(ConcurrentPush())  # type: ignore[arg-type]
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "without `workflows` permission" in result.reason
    assert "/agent retry" in result.hint
    assert len(fake_github.repo.pushes) == 2


async def test_a_forks_own_workflow_is_not_attributed_to_the_base(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """Merging helps nothing there: GitHub takes no workflow that no branch here has."""
    theirs = fake_github.world.push_as_human(fake_github.repo, "theirs", {CI: "on: [push, issues]\n"})
    git(fake_github.repo.path, "update-ref", "refs/pull/7/head", theirs)
    git(fake_github.repo.path, "update-ref", "-d", "refs/heads/theirs")
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Theirs", pull=Pull("theirs", "main", draft=False, fork=9)
    )
    made = await harness.admit(
        base=theirs, number=pull.number, aim="follow_up", publish_target="sibling", pull=pull.number, fork=True
    )
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "workflow" in result.reason
    assert "a person" in result.hint
    assert made.branch not in fake_github.repo.branches


async def follow_up(harness: PublisherHarness, fake_github: FakeGitHubSetup, pull: Issue) -> JobResult:
    assert pull.pull is not None
    head = fake_github.repo.branches[pull.pull.head]
    made = await harness.admit(
        base=head, number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": pull.pull.head, "plan_mode": "none"},
    )  # fmt: skip
    await harness.work(made, {"app/money.py": "half = 0.125\n"})
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_updated", result.reason
    return result


async def test_a_follow_up_on_a_pull_request_behind_the_base(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    _, first = await published(harness, fake_github)
    (pull,) = fake_github.repo.pulls
    assert pull.pull is not None
    before = fake_github.repo.branches[pull.pull.head]
    newest = workflow_changes(fake_github)
    result = await follow_up(harness, fake_github, pull)
    head = fake_github.repo.branches[pull.pull.head]
    assert parents(fake_github, head) == [result.commit, newest]
    assert parents(fake_github, result.commit) == [before]
    assert first.commit != result.commit
    section = pull.body.partition("## Follow-up in")[2]
    assert "after verification" in section


async def test_a_follow_up_on_a_persons_pull_request_leaves_their_commits(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    theirs = fake_github.world.push_as_human(fake_github.repo, "feature", {"mine.txt": "mine\n"})
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", "My words.", pull=Pull("feature", "main", False)
    )
    workflow_changes(fake_github)
    result = await follow_up(harness, fake_github, pull)
    assert parents(fake_github, result.commit) == [theirs]
    assert parents(fake_github, fake_github.repo.branches["feature"])[0] == result.commit
    assert pull.body == "My words."


async def test_a_draft_that_cannot_be_opened_early_is_opened_at_the_end(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit(config=RepoConfig(pull_request="early"))
    claim = harness.queue.claim("w0", MANY)
    assert claim is not None
    harness.store.enter(made.id, "working")
    harness.queue.release(claim)
    workflow_changes(fake_github)
    await finish(harness)
    assert fake_github.repo.pulls == []
    await harness.work(made)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    assert len(fake_github.repo.pulls) == 1


@pytest.mark.parametrize("whose", ["another branch's", "a fork's"])
async def test_only_files_on_the_base_can_be_included(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, whose: str
) -> None:
    """A worker that says so itself gets nothing in that was not verified."""
    evil = fake_github.world.push_as_human(fake_github.repo, "topic", {"evil.py": "steal()\n"})
    if whose == "a fork's":
        git(fake_github.repo.path, "update-ref", "refs/pull/7/head", evil)
        git(fake_github.repo.path, "update-ref", "-d", "refs/heads/topic")
    made = await harness.admit()
    await harness.work(made, onto=evil)
    await finish(harness)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "is not on main" in result.reason
    assert fake_github.repo.pushes == []


async def test_the_verified_commit_is_what_was_merged_after_any_crash(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """The answer to opening the pull request is lost, and the base moves on: the same merge is found again."""
    made = await harness.admit()
    workflow_changes(fake_github)
    await harness.work(made)
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await harness.everything()
    pushed = dict(fake_github.repo.branches)
    workflow_changes(fake_github)
    await finish(harness)
    assert harness.ended(made.id)[0] == "pr_opened"
    assert fake_github.repo.branches[made.branch] == pushed[made.branch]
    assert sorted(fake_github.repo.branches) == sorted([made.branch, "main"])
    assert len(fake_github.repo.pulls) == 1
