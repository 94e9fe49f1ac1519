"""Worker and publisher are killed before and after every step of every effect; each effect is there once in the end."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.jobs.tables import jobs, metadata, sqlite_engine
from app.publish.effects import key_of
from app.publish.outbox import Outbox
from tests.chaos.outbox_child import EFFECTS

MOMENTS = ("effect.wanted", "effect.claimed", "effect.before", "effect.after", "effect.made", "receipt.written")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def work(directory: Path, failpoint: str, epoch: int) -> int:
    """A process of this epoch, which it takes before it begins."""
    with sqlite_engine(directory / "state.db").begin() as db:
        db.execute(jobs.update().values(epoch=epoch))
    command = [sys.executable, "-m", "tests.chaos.outbox_child", str(directory), failpoint, str(epoch)]
    return subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("moment", "passing"), [("branch.made", 1), *((moment, passing) for moment in MOMENTS for passing in (1, 3))]
)
def test_a_publisher_killed_anywhere_makes_each_effect_once(tmp_path: Path, moment: str, passing: int) -> None:
    engine = sqlite_engine(tmp_path / "state.db")
    metadata.create_all(engine)
    outbox = Outbox(engine, lambda: NOW)
    row = {"id": "j1", "key": "k", "state": "working", "job": {}, "epoch": 0, "created_at": NOW, "updated_at": NOW}
    with engine.begin() as db:
        db.execute(jobs.insert().values(row))
    assert work(tmp_path, f"{moment}:{passing}", 1) == -9
    assert work(tmp_path, "", 2) == 0
    for effect in EFFECTS:
        standing = outbox.status(key_of("j1", effect))
        assert standing is not None
        assert standing.state == "done"
        assert standing.receipt is not None
    for name in ("reaction", "labels", "branch", "pull-request", "comment-j1"):
        assert len((tmp_path / name).read_text().splitlines()) == 1, name
