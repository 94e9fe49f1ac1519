"""The publisher dies in the middle of real pushes and requests; GitHub ends with one branch, one draft, one comment."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.forge.markers import says
from app.gitremote import Remote, fetch
from app.gitstore import GitStore
from app.jobs.store import JobBlobs
from app.jobs.tables import jobs, sqlite_engine
from app.jobs.tables import metadata as job_tables
from app.patch import FileChange, Patch
from app.publish.intent import OpenDraftPullRequest, Place, Recipe, StatusComment
from app.publish.intents import Intents
from app.task import Person
from tests.fakes.github.faults import Fault
from tests.fakes.github.gate import APP_ID, app_key
from tests.fakes.github.ground import Ground, make_ground, served

NOW = datetime.now(UTC)
BRANCH = "agent-fix/issue-1-totals"
ROOT = Path(__file__).parents[2]


def prepare(ground: Ground, address: str, directory: Path) -> Path:
    """A job with a commit of ours and two wishes; returns what the child is told."""
    engine = sqlite_engine(directory / "state.db")
    job_tables.create_all(engine)
    row = {"id": "j1", "key": "k", "state": "working", "job": {}, "epoch": 1, "created_at": NOW, "updated_at": NOW}
    with engine.begin() as db:
        db.execute(jobs.insert().values(row))
    store = GitStore(directory / "store.git")
    store.ensure()
    base = ground.repo.branches["main"]
    token, _ = ground.github.gate.mint(ground.installation, {"permissions": {"contents": "read"}})
    fetch(store, Remote(f"{address}/ada/sample.git", token), base)
    patch = Patch(base=base, changes=(FileChange(path="app/money.py", mode="100644", content=b"half = 0.25\n"),))
    author = Person(name="bot", email="bot@users.noreply.example")
    commit = store.commit(patch, message="Fix\n", author=author, date=NOW)
    kept = JobBlobs(engine, "j1").put(patch.model_dump_json().encode())
    recipe = Recipe(patch=kept, message="Fix\n", author=author, date=NOW)
    intents = Intents(engine, lambda: NOW)
    intents.create_tables()
    number = ground.issue.number
    place = Place(
        installation=ground.installation.id, repository=ground.repo.id, owner="ada", name="sample", number=number
    )
    draft = OpenDraftPullRequest(branch=BRANCH, commit=commit, recipe=recipe, base="main", title="Fix", body="Fixes #1")
    intents.want("j1", 1, place, draft)
    intents.want("j1", 1, place, StatusComment(body="opened"))
    spec = {"address": address, "app_id": APP_ID, "key": app_key()[0], "database": str(directory / "state.db")}
    path = directory / "spec.json"
    path.write_text(json.dumps({**spec, "store": str(store.path), "late": False}))
    return path


def publish(spec: Path, failpoint: str = "", *, late: bool = False) -> int:
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "late": late}))
    command = [sys.executable, "-m", "tests.chaos.publisher_child", str(spec), failpoint]
    return subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode


@pytest.mark.parametrize("moment", ["intent.claimed:1", "branch.made:1", "effect.made:1", "effect.made:2"])
def test_killed_between_two_effects_github_has_each_once(tmp_path: Path, moment: str) -> None:
    ground = make_ground(tmp_path)
    with served(ground.github) as address:
        spec = prepare(ground, address, tmp_path)
        assert publish(spec, moment) == -9
        ground.github.faults.append(Fault("POST .*/comments", after=True))
        assert publish(spec, late=True) == 0
    assert sorted(ground.repo.branches) == [BRANCH, "main"]
    assert len(ground.repo.pushes) == 1
    (pull,) = ground.repo.pulls
    assert pull.pull is not None
    assert pull.pull.draft
    bodies = [ground.repo.comments[number].body for number in ground.issue.comments]
    assert [says(body, "j1") for body in bodies] == [True]
