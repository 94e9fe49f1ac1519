"""A change as people take it home: what `git apply` makes of the diff is what the patch says, byte for byte."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.repo.git_store import GitError, GitStore
from tests.support.repositories import git, make_repository

FILES: dict[str, str | bytes] = {
    "money.py": "half = 0.5\n" * 30,
    "latin.txt": b"caf\xe9\n",
    "logo.bin": b"\x00\x01\xff" * 50,
    "gone.txt": "gone\n",
    "old/name.py": "same = 1\n" * 20,
    'odd ü "name".txt': "odd\n",
}


def change(path: str, content: bytes | None, mode: str = "100644") -> FileChange:
    return FileChange.model_validate({"path": path, "mode": mode, "content": content})


@pytest.fixture
def store(tmp_path: Path) -> GitStore:
    store = GitStore(tmp_path / "store.git")
    store.ensure()
    return store


def test_git_makes_of_it_what_the_patch_says(store: GitStore, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "theirs", FILES)
    base = store.fetch(repository, "main")
    patch = Patch(
        base=base,
        changes=(
            change("latin.txt", b"caf\xe9 au lait\n"),
            change("logo.bin", b"\x00\x02\xfe" * 60),
            change("gone.txt", None),
            change("old/name.py", None),
            change("new/name.py", b"same = 1\n" * 20),
            change("run.sh", b"#!/bin/sh\n", "100755"),
            change("link", b"money.py", "120000"),
            change('odd ü "name".txt', b"even\n"),
            change("no-end.txt", b"no newline"),
        ),
    )
    diff = store.patch_diff(patch)
    (tmp_path / "change.patch").write_bytes(diff)
    git(repository, "apply", "--index", str(tmp_path / "change.patch"))
    author, date = Person(name="a", email="a@b"), datetime(2026, 1, 1, tzinfo=UTC)
    ours = store.commit(patch, message="x", author=author, date=date)
    assert git(repository, "write-tree") == git(store.path, "rev-parse", f"{ours}^{{tree}}")


def test_a_diff_against_another_commit(store: GitStore, tmp_path: Path) -> None:
    """Conflicts are resolved on a merge that nobody has; people compare with their branch."""
    repository = make_repository(tmp_path / "theirs", {"a.py": "a = 1\n"})
    first = store.fetch(repository, "main")
    (repository / "b.py").write_text("b = 1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    second = store.fetch(repository, "main")
    patch = Patch(base=second, changes=(change("a.py", b"a = 2\n"),))
    assert b"b.py" not in store.patch_diff(patch)
    assert b"+b = 1" in store.patch_diff(patch, base=first)


def test_a_diff_has_as_many_lines_around_as_are_wanted(store: GitStore, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(30)]
    base = store.fetch(make_repository(tmp_path / "theirs", {"a.txt": "\n".join(lines)}), "main")
    lines[15] = "other"
    patch = Patch(base=base, changes=(change("a.txt", "\n".join(lines).encode()),))
    for context in (3, 10):
        shown = store.patch_diff(patch, context=context).decode().splitlines()
        assert sum(line.startswith(" line") for line in shown) == 2 * context


def test_paths_inside_git_directories_make_no_diff(store: GitStore, tmp_path: Path) -> None:
    base = store.fetch(make_repository(tmp_path / "theirs", {"a.py": "a = 1\n"}), "main")
    with pytest.raises(GitError):
        store.patch_diff(Patch(base=base, changes=(change(".git/hooks/pre-commit", b"#!/bin/sh\n"),)))
