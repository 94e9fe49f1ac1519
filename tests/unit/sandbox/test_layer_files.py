"""What a set-up has created is found, moved out of its tree, and put into another one."""

import os
import subprocess
from pathlib import Path

import pytest

from app.sandbox import layer_files
from app.sandbox.base import LIST_COMMAND


class FilledTree:
    """A tree with tracked files, before a set-up runs in it."""

    def __init__(self, root: Path) -> None:
        self.tree, self.home, self.layer = root / "work", root / "home", root / "layer"
        for path in ("src/a.c", "src/deep/b.c", "README.md"):
            self.write(path)
        self.home.mkdir()
        (self.tree / "submodule").mkdir()
        self.listing = subprocess.run(LIST_COMMAND, cwd=self.tree, capture_output=True, check=True).stdout

    def write(self, path: str, text: str = "made") -> None:
        (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / path).write_text(text)

    def keep(self) -> tuple[list[str], str]:
        return layer_files.keep(str(self.tree), str(self.home), self.listing, str(self.layer))

    def kept(self) -> list[str]:
        tree = self.layer / "tree"
        return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir())


@pytest.fixture
def filled(tmp_path: Path) -> FilledTree:
    return FilledTree(tmp_path)


def test_new_directories_are_whole_and_new_files_beside_tracked_ones_single(filled: FilledTree) -> None:
    for path in ("build/x/y.o", "src/a.o", "src/deep/gen/c.h", "submodule/file", ".git/config", "vendor/b/.git/config"):
        filled.write(path)
    filled.write("README.md", "changed by the set-up")
    (filled.tree / "empty").mkdir()
    (filled.tree / "link").symlink_to("/etc/passwd")
    os.mkfifo(filled.tree / "fifo")
    assert filled.keep() == (["build/", "link", "src/a.o", "src/deep/gen/", "submodule/", "vendor/"], "")
    assert filled.kept() == [
        *("build/x/y.o", "link", "src/a.o", "src/deep/gen/c.h", "submodule/file", "vendor/b/.git/config"),
    ]
    assert (filled.layer / "tree" / "empty").is_dir()


def test_a_directory_that_became_a_link_and_a_closed_one_are_no_trouble(filled: FilledTree, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.c").touch()
    subprocess.run(["rm", "-r", filled.tree / "src"], check=True)
    (filled.tree / "src").symlink_to(tmp_path / "outside")
    filled.write("closed/x")
    (filled.tree / "closed").chmod(0)
    assert filled.keep() == (["closed/", "src"], "")
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["a.c"]


def test_too_many_paths_are_not_kept_and_counted(filled: FilledTree) -> None:
    (filled.tree / "submodule").rmdir()
    for number in range(layer_files.MAX_PATHS + 1):
        (filled.tree / f"{number}.o").touch()
    assert filled.keep() == (
        [],
        "the set-up left 10,001 paths beside the sources; the limit is 10,000: none is kept",
    )


def test_too_many_bytes_are_not_kept_and_counted(filled: FilledTree) -> None:
    filled.write("build/small")
    assert layer_files.keep(str(filled.tree), str(filled.home), filled.listing, str(filled.layer), most=1)[0] == []
    assert filled.kept() == []


def test_a_copy_adds_what_is_missing_and_changes_nothing_else(filled: FilledTree, tmp_path: Path) -> None:
    for path in ("build/x/y.o", "build/x/z.o", "src/a.o", "taken/x"):
        filled.write(path)
    filled.keep()
    target = tmp_path / "other"
    (target / "build" / "x").mkdir(parents=True)
    (target / "build" / "x" / "y.o").write_text("the change's own")
    (target / "src").mkdir()
    (target / "taken").symlink_to(tmp_path)
    os.utime(target / "src", (5, 5))
    layer_files.put(str(filled.layer / "tree"), str(target))
    assert (target / "build/x/y.o").read_text() == "the change's own"
    assert [(target / path).read_text() for path in ("build/x/z.o", "src/a.o")] == ["made", "made"]
    assert (target / "taken").is_symlink()
    assert not (tmp_path / "x").exists()
    assert (target / "src").stat().st_mtime == 5
