"""The publisher dies in the middle of real pushes and requests; GitHub ends with one branch, one draft, one comment."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.config import RepoConfig
from app.forge.github.identity import who_we_are
from app.forge.markers import says
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from tests.fakes.github.faults import Fault
from tests.fakes.github.gate import APP_ID, app_key
from tests.fakes.github.ground import Ground, make_ground, served
from tests.publishing import Desk
from tests.repositories import git

BRANCH = "agent-fix/issue-1-totals"
ROOT = Path(__file__).parents[2]


async def prepare(ground: Ground, address: str, directory: Path, *, early: bool = False) -> Path:
    """A job whose work is done, with its draft wished for; returns what the child is told.

    With `early` its draft was opened before that, as far as a publisher that died in the middle of it got.
    """
    async with ground.app(api=address, site=address) as app:
        engine = sqlite_engine(directory / "state.db")
        desk = Desk(ground, app, await who_we_are(ground.door(app)), engine, directory)
        config = RepoConfig(pull_request="early" if early else "final")
        made = await desk.admit(job_changes={"branch": BRANCH}, config=config)
        if early:
            desk.store.enter(made.id, "working")
        else:
            await desk.work(made)
        engine.dispose()
    spec = {"address": address, "app_id": APP_ID, "key": app_key()[0], "database": str(directory / "state.db")}
    path = directory / "spec.json"
    path.write_text(json.dumps({**spec, "store": str(desk.mirror(ground.repo.id).path), "late": 0}))
    return path


def publish(spec: Path, failpoint: str = "", *, late: int = 0) -> int:
    """`late`: how many leases of former publishers have ended by now."""
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "late": late}))
    command = [sys.executable, "-m", "tests.chaos.publisher_child", str(spec), failpoint]
    return subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode


async def finish(ground: Ground, address: str, directory: Path) -> None:
    """The work is done now."""
    async with ground.app(api=address, site=address) as app:
        engine = sqlite_engine(directory / "state.db")
        desk = Desk(ground, app, await who_we_are(ground.door(app)), engine, directory)
        await desk.work(desk.commissioned("j1").job)
        engine.dispose()


MOMENTS = (
    "intent.wanted:1",
    "intent.wanted:4",
    "intent.claimed:1",
    "branch.made:1",
    "effect.made:1",
    "effect.made:3",
    "receipt.written:1",
    "settling.wished:1",
    "settling.settled:1",
    "intent.wanted:6",
)


@pytest.mark.parametrize(
    ("opening", "finishing"),
    [("branch.made:1", "effect.made:1"), ("effect.made:4", "branch.made:1"), ("receipt.written:4", "branch.made:1")],
)
def test_killed_while_a_draft_is_opened_early_and_again_at_its_end(
    tmp_path: Path, opening: str, finishing: str
) -> None:
    ground = make_ground(tmp_path)
    with served(ground.github) as address:
        spec = asyncio.run(prepare(ground, address, tmp_path, early=True))
        assert publish(spec, opening) == -9
        assert BRANCH in ground.repo.branches, "it was killed at something else"
        asyncio.run(finish(ground, address, tmp_path))
        assert publish(spec, finishing, late=1) == -9
        assert publish(spec, late=2) == 0
    assert sorted(ground.repo.branches) == [BRANCH, "main"]
    (pull,) = ground.repo.pulls
    assert "## Verification" in pull.body
    bodies = [ground.repo.comments[number].body for number in ground.issue.comments]
    assert [says(body, "j1") for body in bodies] == [True]
    row = JobStore(sqlite_engine(tmp_path / "state.db"), lambda: ground.world.now).get("j1")
    assert row is not None
    assert row.state == "pr_opened"
    assert row.result is not None
    assert git(ground.repo.path, "rev-parse", BRANCH) == row.result["commit"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_between_two_effects_github_has_each_once(tmp_path: Path, moment: str) -> None:
    ground = make_ground(tmp_path)
    with served(ground.github) as address:
        spec = asyncio.run(prepare(ground, address, tmp_path))
        assert publish(spec, moment) == -9
        ground.github.faults.append(Fault("POST .*/comments", after=True))
        assert publish(spec, late=1) == 0
    assert sorted(ground.repo.branches) == [BRANCH, "main"]
    assert len(ground.repo.pushes) == 1
    (pull,) = ground.repo.pulls
    assert pull.pull is not None
    assert pull.pull.draft
    bodies = [ground.repo.comments[number].body for number in ground.issue.comments]
    assert [says(body, "j1") for body in bodies] == [True]
    assert bodies[0].startswith("### 🚀 A draft pull request is open")
    assert len(ground.repo.checks) == 1
    assert [content for *_, content in ground.repo.reactions] == ["eyes", "rocket"]
    assert [name for name in ground.issue.labels if name.startswith("agent-")] == ["agent-done"]
    row = JobStore(sqlite_engine(tmp_path / "state.db"), lambda: ground.world.now).get("j1")
    assert row is not None
    assert row.state == "pr_opened"
