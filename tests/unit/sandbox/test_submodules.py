"""How a set-up fetches public submodules."""

import subprocess
from pathlib import Path

from app.sandbox.setup.plan import fetch_command
from tests.support.repositories import commit_files, git, make_repository


def test_a_submodule_is_fetched_at_its_pinned_commit(tmp_path: Path) -> None:
    public = make_repository(tmp_path / "public", {"a.txt": "pinned\n"})
    pinned = git(public, "rev-parse", "HEAD")
    commit_files(public, {"a.txt": "newer\n"})
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    command = fetch_command("inner", f"file://{public}", pinned)
    subprocess.run(["/bin/sh", "-e", "-c", command], cwd=tmp_path / "tree", check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "tree" / "inner").iterdir()} == {"a.txt": "pinned\n"}


def test_a_submodule_that_cannot_be_fetched_does_not_stop_the_set_up(tmp_path: Path) -> None:
    command = fetch_command("inner", f"file://{tmp_path}/absent", "1" * 40)
    done = subprocess.run(["/bin/sh", "-e", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "stays empty" in done.stdout
    assert [*(tmp_path / "inner").iterdir()] == []
