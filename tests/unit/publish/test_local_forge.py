"""The folder a job leaves its files in: whole files or none, and every obstacle told before anything costs."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.errors import ExitCode, OutputError
from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.github.base import Forge, NewPullRequest
from app.publish.local_forge import PULL_REQUEST, LocalForge, OutputFolder
from app.repo.git_store import GitStore
from tests.support.repositories import git, make_repository
from tests.support.small_disk import tiny_disk


def failure(folder: OutputFolder) -> OutputError:
    with pytest.raises(OutputError) as caught:
        folder.prepare("job.json")
    assert caught.value.hint
    return caught.value


def test_a_new_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "deep" / "out")
    folder.prepare()
    folder.prepare()
    assert list(folder.path.iterdir()) == []


def test_files_are_replaced_atomically(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path)
    assert folder.write("a.md", "first") == tmp_path / "a.md"
    folder.write("a.md", "größer\udcff")
    folder.write("b.bin", b"\0\xff")
    assert (tmp_path / "a.md").read_bytes() == "größer\\udcff".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "b.bin"]
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_leftovers_of_a_dead_process_are_overwritten(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / ".a.md.new").symlink_to(elsewhere)
    (tmp_path / "a.md").symlink_to(elsewhere)
    OutputFolder(tmp_path).write("a.md", "text")
    assert (tmp_path / "a.md").read_text() == "text"
    assert not (tmp_path / "a.md").is_symlink()
    assert elsewhere.read_text() == "precious"


def test_file_at_the_folder_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        error = failure(OutputFolder(path))
        assert (error.code, error.message.startswith(f"{path} cannot be written: ")) == (ExitCode.OUTPUT, True)
    (tmp_path / "job.json").mkdir()
    assert (
        failure(OutputFolder(tmp_path)).message
        == f"{tmp_path}/job.json is a directory, but a file will be written there."
    )


def test_invalid_file_name_is_reported(tmp_path: Path) -> None:
    assert failure(OutputFolder(tmp_path / ("x" * 300))).code == ExitCode.OUTPUT


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_write_access_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert failure(OutputFolder(tmp_path)).message == f"{tmp_path} cannot be written: permission denied."
        assert failure(OutputFolder(tmp_path / "new")).code == ExitCode.OUTPUT
    finally:
        tmp_path.chmod(0o700)


def test_unusable_output_location_is_reported() -> None:
    assert failure(OutputFolder(Path("/proc/agent-fix"))).code == ExitCode.OUTPUT


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with tiny_disk(tmp_path / "tiny") as place:
        yield place


def test_full_disk_is_reported(small: Path) -> None:
    folder = OutputFolder(small)
    folder.prepare()
    folder.write("job.json", "whole")
    with pytest.raises(OutputError) as caught:
        folder.write("job.json", b"x" * 3_000_000)
    assert caught.value.code == ExitCode.DISK_FULL
    assert (small / "job.json").read_text() == "whole"
    assert [path.name for path in small.iterdir()] == ["job.json"]
    (small / "filler").write_bytes(b"x" * 1_500_000)
    assert failure(folder).code == ExitCode.DISK_FULL


async def test_the_local_forge_leaves_a_branch_and_a_file(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    store = GitStore(tmp_path / "mirror.git")
    store.ensure()
    patch = Patch(base=store.fetch(repository, "HEAD"), changes=(FileChange(path="a", mode="100644", content=b"a\n"),))
    commit = store.commit(
        patch, message="m", author=Person(name="b", email="b@c"), date=datetime(2026, 1, 1, tzinfo=UTC)
    )
    folder = OutputFolder(tmp_path / "out")
    folder.prepare()
    forge: Forge = LocalForge(repository, store, folder)
    wanted = NewPullRequest(branch="agent-fix/a", base="main", title="Fix: a", body="Text\n")
    for _ in range(2):
        assert await forge.ensure_branch("agent-fix/a", commit) == "agent-fix/a"
        assert await forge.ensure_pull_request(wanted) == str(folder.path / PULL_REQUEST)
    assert git(repository, "rev-parse", "agent-fix/a") == commit
    assert (folder.path / PULL_REQUEST).read_text() == "# Fix: a\n\nText\n"
