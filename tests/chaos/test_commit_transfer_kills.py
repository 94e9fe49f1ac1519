"""Processes are killed while they transfer a commit: no half transfer counts as whole, and the next try succeeds."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.jobs.commit_transfer import ABANDONED, CHUNK, CommitTransfer
from app.jobs.tables import metadata, transfer_chunks
from app.repo.git_store import GitStore
from tests.support.databases import database
from tests.support.repositories import commit_files, git, make_repository

ROOT = Path(__file__).parents[2]
MOMENTS = ("transfer.chunk:1", "transfer.chunk:3", "transfer.written", "unpack.indexed", "unpack.cutting", "unpack.cut")
IN_THE_DATABASE = MOMENTS[1:3]
CASES = [*(("sqlite", moment) for moment in MOMENTS), *(("postgresql", moment) for moment in IN_THE_DATABASE)]


@pytest.mark.parametrize(("dialect", "moment"), CASES)
def test_a_transfer_killed_halfway_is_completed_by_the_next_process(dialect: str, moment: str, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source")
    head = commit_files(source, {"large.bin": os.urandom(CHUNK * 5 // 2)})
    ours, theirs = GitStore(tmp_path / "ours.git"), GitStore(tmp_path / "theirs.git")
    ours.ensure()
    ours.fetch(source, head)
    with database(dialect, tmp_path) as engine:
        metadata.create_all(engine)
        transfers = CommitTransfer(engine, lambda: datetime.now(UTC))
        transfers.request(1, head)
        url = engine.url.render_as_string(hide_password=False)
        spec = {"database": url, "place": str(tmp_path), "commit": head}
        path = tmp_path / "spec.json"
        path.write_text(json.dumps({**spec, "ours": str(ours.path), "theirs": str(theirs.path)}))

        def attempt(failpoint: str = "") -> int:
            command = [sys.executable, "-m", "tests.chaos.commit_transfer_child", str(path), failpoint]
            return subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode

        assert attempt(moment) == -9
        assert not (theirs.path / "config").exists() or not theirs.keeps(head)
        assert attempt() == 0
        assert theirs.tree(head).read("large.bin") == (source / "large.bin").read_bytes()
        git(theirs.path, "fsck", "--strict", "--no-dangling")
        later = CommitTransfer(engine, lambda: datetime.now(UTC) + ABANDONED + timedelta(minutes=1))
        later.prune(timedelta(days=1))
        with engine.connect() as db:
            assert db.scalar(sa.select(sa.func.count()).select_from(transfer_chunks)) == 3, "the dead one's are gone"
    left = {each.name for each in tmp_path.iterdir() if each.is_dir()} - {"source", "ours.git", "theirs.git"}
    assert left == set()
