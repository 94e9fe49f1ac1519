"""The publisher dies in the middle of real pushes and requests; GitHub ends with one branch, one draft, one comment."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.repository import RepoConfig
from app.github.base import has_marker
from app.github.repository_api import find_bot_account
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import FakeGitHubSetup, make_fake_github, served
from tests.support.github.faults import Fault
from tests.support.publisher_harness import PublisherHarness
from tests.support.repositories import git

BRANCH = "agent-fix/issue-1-totals"
ROOT = Path(__file__).parents[2]


async def prepare(fake_github: FakeGitHubSetup, address: str, directory: Path, *, early: bool = False) -> Path:
    """A finished job with the effect for its draft; returns the child's specification.

    With `early` its draft was opened before that, as far as a publisher that died in the middle of it got.
    """
    async with fake_github.app(api=address, site=address) as app:
        engine = sqlite_engine(directory / "state.db")
        harness = PublisherHarness(fake_github, app, await find_bot_account(fake_github.api(app)), engine, directory)
        config = RepoConfig(pull_request="early" if early else "final")
        made = await harness.admit(job_changes={"branch": BRANCH}, config=config)
        if early:
            harness.store.enter(made.id, "working")
        else:
            await harness.work(made)
        engine.dispose()
    spec = {"address": address, "app_id": APP_ID, "key": app_key()[0], "database": str(directory / "state.db")}
    path = directory / "spec.json"
    path.write_text(json.dumps({**spec, "store": str(harness.mirror(fake_github.repo.id).path), "late": 0}))
    return path


def publish(spec: Path, failpoint: str = "", *, late: int = 0) -> int:
    """`late`: how many leases of former publishers have ended by now."""
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "late": late}))
    command = [sys.executable, "-m", "tests.chaos.publisher_child", str(spec), failpoint]
    return subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode


async def finish(fake_github: FakeGitHubSetup, address: str, directory: Path) -> None:
    """The work is done now."""
    async with fake_github.app(api=address, site=address) as app:
        engine = sqlite_engine(directory / "state.db")
        harness = PublisherHarness(fake_github, app, await find_bot_account(fake_github.api(app)), engine, directory)
        await harness.work(harness.job_with_context("j1").job)
        engine.dispose()


MOMENTS = (
    "effect.wanted:1",
    "effect.wanted:4",
    "effect.claimed:1",
    "branch.made:1",
    "effect.made:1",
    "effect.made:3",
    "receipt.written:1",
    "job.finishing:1",
    "job.finished:1",
    "effect.wanted:6",
)


@pytest.mark.parametrize(
    ("opening", "finishing"),
    [("branch.made:1", "effect.made:1"), ("effect.made:4", "branch.made:1"), ("receipt.written:4", "branch.made:1")],
)
def test_killed_while_a_draft_is_opened_early_and_again_at_its_end(
    tmp_path: Path, opening: str, finishing: str
) -> None:
    fake_github = make_fake_github(tmp_path)
    with served(fake_github.github) as address:
        spec = asyncio.run(prepare(fake_github, address, tmp_path, early=True))
        assert publish(spec, opening) == -9
        assert BRANCH in fake_github.repo.branches, "it was killed at something else"
        asyncio.run(finish(fake_github, address, tmp_path))
        assert publish(spec, finishing, late=1) == -9
        assert publish(spec, late=2) == 0
    assert sorted(fake_github.repo.branches) == [BRANCH, "main"]
    (pull,) = fake_github.repo.pulls
    assert "## Verification" in pull.body
    bodies = [fake_github.repo.comments[number].body for number in fake_github.issue.comments]
    assert [has_marker(body, "j1") for body in bodies] == [True]
    row = JobStore(sqlite_engine(tmp_path / "state.db"), lambda: fake_github.world.now).get("j1")
    assert row is not None
    assert row.state == "pr_opened"
    assert row.result is not None
    assert git(fake_github.repo.path, "rev-parse", BRANCH) == row.result["commit"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_between_two_effects_github_has_each_once(tmp_path: Path, moment: str) -> None:
    fake_github = make_fake_github(tmp_path)
    with served(fake_github.github) as address:
        spec = asyncio.run(prepare(fake_github, address, tmp_path))
        assert publish(spec, moment) == -9
        fake_github.github.faults.append(Fault("POST .*/comments", after=True))
        assert publish(spec, late=1) == 0
    assert sorted(fake_github.repo.branches) == [BRANCH, "main"]
    assert len(fake_github.repo.pushes) == 1
    (pull,) = fake_github.repo.pulls
    assert pull.pull is not None
    assert pull.pull.draft
    bodies = [fake_github.repo.comments[number].body for number in fake_github.issue.comments]
    assert [has_marker(body, "j1") for body in bodies] == [True]
    assert bodies[0].startswith("### 🚀 A draft pull request is open")
    assert len(fake_github.repo.checks) == 1
    assert [content for *_, content in fake_github.repo.reactions] == ["eyes", "rocket"]
    assert [name for name in fake_github.issue.labels if name.startswith("agent-")] == ["agent-done"]
    row = JobStore(sqlite_engine(tmp_path / "state.db"), lambda: fake_github.world.now).get("j1")
    assert row is not None
    assert row.state == "pr_opened"


CI = ".github/workflows/ci.yml"


@pytest.mark.parametrize("moment", ["commit.rebuilt:2", "effect.amended:1", "effect.claimed:3", "branch.made:1"])
def test_killed_while_the_base_is_merged_into_what_was_verified(tmp_path: Path, moment: str) -> None:
    """A workflow changed meanwhile, and goes on changing: still one branch, one draft, and one merge."""
    fake_github = make_fake_github(tmp_path)
    fake_github.world.push_as_human(fake_github.repo, "main", {CI: "on: push\n"})
    with served(fake_github.github) as address:
        spec = asyncio.run(prepare(fake_github, address, tmp_path))
        newest = fake_github.world.push_as_human(fake_github.repo, "main", {CI: "on: issues\n"})
        assert publish(spec, moment) == -9
        assert publish(spec, late=1) == 0
    assert sorted(fake_github.repo.branches) == [BRANCH, "main"]
    (pull,) = fake_github.repo.pulls
    assert pull.body.count("was merged into this branch after verification") == 1
    row = JobStore(sqlite_engine(tmp_path / "state.db"), lambda: fake_github.world.now).get("j1")
    assert row is not None
    assert row.state == "pr_opened"
    assert row.result is not None
    merged = git(fake_github.repo.path, "show", "-s", "--format=%P", BRANCH).split()
    assert merged == [row.result["commit"], newest]
