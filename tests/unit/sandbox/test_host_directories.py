"""The host side of a sandbox: filled once whatever crashes, and never led astray by a link inside the tree."""

import os
from pathlib import Path

import pytest

from app.sandbox.base import SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.host_directories import HostDirectory, make_mount_point, plain_path, remove_tree
from tests.support.sandboxes import filler, opened, shell

FILES = {"a": b"1", "d/b": b"2"}


class CrashError(Exception):
    """Stands for a process that dies at this point."""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_filling_starts_from_nothing_after_a_crash(tmp_path: Path) -> None:
    host_directory = HostDirectory(tmp_path, "job")

    def crashing(directory: Path) -> None:
        (directory / "half").mkdir()
        raise CrashError

    for _ in range(2):
        with pytest.raises(CrashError):
            host_directory.prepare(crashing)
        assert not host_directory.tree.exists()
    host_directory.prepare(filler(FILES))
    assert names(host_directory.tree) == ["a", "d"]
    host_directory.prepare(crashing)  # never called: the tree is there
    assert names(host_directory.tree) == ["a", "d"]


async def test_a_crash_before_the_listing_is_kept_is_repaired(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
    async with opened(provider, SandboxSpec("job", filler(FILES))) as sandbox:
        before = await shell(sandbox, "cat /run/filled | tr '\\0' '\\n'")
        await sandbox.close()
        (tmp_path / "jobs" / "job" / "filled").rename(tmp_path / "jobs" / "job" / "filled.partial")
        async with opened(provider, SandboxSpec("job", filler(FILES))) as again:
            assert await shell(again, "cat /run/filled | tr '\\0' '\\n'") == before


def test_private_to_the_caller(tmp_path: Path) -> None:
    host_directory = HostDirectory(tmp_path, "job")
    host_directory.prepare(filler(FILES))
    assert host_directory.path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_everything_belongs_to_the_sandboxs_user(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    host_directory = HostDirectory(tmp_path / "jobs", "job", owner=64321)
    host_directory.prepare(filler({**FILES, "link": str(outside).encode()}, {"link": "120000"}))
    paths = [
        host_directory.tree,
        *host_directory.tree.rglob("*"),
        host_directory.path / "tmp",
        host_directory.path / "home",
    ]
    assert {path.lstat().st_uid for path in paths} == {64321}
    assert outside.stat().st_uid == 0


def test_removal_that_crashed_half_way_is_finished_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".gone-abc" / "tree"
    left.mkdir(parents=True)
    HostDirectory(tmp_path, "job").remove()
    assert list(tmp_path.iterdir()) == []


def test_removal_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    remove_tree(tree)
    assert (outside / "kept").exists()
    (tmp_path / "link").symlink_to(outside)
    remove_tree(tmp_path / "link")
    assert (outside / "kept").exists()


@pytest.mark.parametrize(
    "relative", ["", "/", "..", "../x", "a/..", "./d", "d/", "/etc", "d//b", "link", "link/x", "no", "a/b"]
)
def test_paths_that_are_not_plain(tmp_path: Path, relative: str) -> None:
    filler({"a": b"", "d/b": b"", "link": str(tmp_path).encode(), "x": b""}, {"link": "120000"})(tmp_path)
    assert plain_path(tmp_path, relative) is None


@pytest.mark.parametrize("relative", ["a", "d", "d/b", "d/e"])
def test_paths_that_are_plain(tmp_path: Path, relative: str) -> None:
    filler({"a": b"", "d/b": b"", "d/e/f": b""})(tmp_path)
    assert plain_path(tmp_path, relative) == tmp_path / relative


def test_mount_points_are_made_beside_and_never_through_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = tmp_path / "tree"
    filler({"d/x": b"", "link": str(outside).encode(), "taken": b"file"}, {"link": "120000"})(tree)
    file = tree / "d" / "x"
    for relative in ("d/new", "new", "link", "link/new", "taken", "absent/new", "../up"):
        make_mount_point(tree, relative, tree / "d", None)
    make_mount_point(tree, "d/file", file, None)
    assert names(tree) == ["d", "link", "new", "taken"]
    assert names(tree / "d") == ["file", "new", "x"]
    assert (tree / "d" / "file").is_file()
    assert names(outside) == []
    assert names(tmp_path) == ["outside", "tree"]
