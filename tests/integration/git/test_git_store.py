"""The mirror, with real git: what comes in, what goes out, and that the same input makes the same commit."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.errors import ExitCode, OutputError, RepositoryError
from app.core.patch import FileChange, Mode, Patch
from app.core.task import Person
from app.repo.git_command import ATTRIBUTES, Git
from app.repo.git_store import GitError, GitStore, UnsafePathError
from tests.support.repositories import commit_files, git, make_repository, snapshot
from tests.support.small_disk import tiny_disk

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.example")
WHEN = datetime(2026, 11, 3, 12, 30, tzinfo=UTC)
FILES: Mapping[str, str | bytes] = {
    "README.md": "# Sample\n",
    "app/main.py": "print('hello')\n",
    "data/binary.bin": bytes(range(256)),
    "naïve/ünïcode.txt": "ok\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES)


@pytest.fixture
def store(tmp_path: Path) -> GitStore:
    made = GitStore(tmp_path / "state" / "mirror.git")
    made.ensure()
    return made


@pytest.fixture
def base(store: GitStore, source: Path) -> str:
    return store.fetch(source, "main")


def change(path: str, content: bytes | None, mode: Mode = "100644") -> FileChange:
    return FileChange(path=path, mode=mode, content=content)


def commit(store: GitStore, base: str, *changes: FileChange, message: str = "fix it\n") -> str:
    return store.commit(Patch(base=base, changes=changes), message=message, author=BOT, date=WHEN)


def test_a_commit_without_its_contents_is_a_clear_error(tmp_path: Path, source: Path) -> None:
    """`git ls-tree -l` writes BAD in the place of their size, and succeeds."""
    git(source, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{source}", "partial")
    for key in ("remote.origin.promisor", "remote.origin.partialclonefilter"):
        git(tmp_path / "partial", "config", "--unset", key)
    tree = GitStore(tmp_path / "partial").tree(git(source, "rev-parse", "HEAD"))
    with pytest.raises(RepositoryError, match=r"^The contents of 4 files of commit [0-9a-f]{10} are missing") as caught:
        tree.entries()
    assert "mirrors" in caught.value.hint


def test_ensure_is_safe_to_say_twice_and_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mirror.git"
    leftover = path.with_name(".mirror.git.new")
    (leftover / "objects").mkdir(parents=True)
    (leftover / "config.lock").write_text("a process died here")
    GitStore(path).ensure()
    GitStore(path).ensure()
    assert (path / "info" / "attributes").read_text() == ATTRIBUTES
    assert not leftover.exists()
    assert not (path / "hooks").exists()


def test_fetch_resolves_names_and_leaves_history_behind(store: GitStore, source: Path) -> None:
    first = git(source, "rev-parse", "HEAD")
    second = commit_files(source, {"new.txt": "new\n"})
    git(source, "tag", "-a", "v1", "-m", "annotated", first)
    assert store.fetch(source, "main") == second
    assert store.fetch(source, "v1") == first
    assert store.fetch(source, second[:10]) == second
    assert git(store.path, "rev-list", "--count", second) == "1"


def test_a_stored_commit_needs_no_source(store: GitStore, base: str, tmp_path: Path) -> None:
    assert store.fetch(tmp_path / "gone", base) == base


def test_fetch_of_an_unknown_name_says_so(store: GitStore, source: Path) -> None:
    with pytest.raises(GitError, match="rev-parse"):
        store.fetch(source, "no-such-branch")
    with pytest.raises(GitError):
        store.fetch(source, "--upload-pack=touch /tmp/x")


def test_leftovers_of_a_killed_fetch_do_not_block_the_next(store: GitStore, source: Path) -> None:
    head = git(source, "rev-parse", "HEAD")
    pack = store.path / "objects" / "pack" / "tmp_pack_x"
    pack.parent.mkdir(parents=True, exist_ok=True)
    (store.path / "refs" / "agent-fix" / "base").mkdir(parents=True)
    for left in (pack, store.path / "shallow.lock", store.path / "refs" / "agent-fix" / "base" / f"{head}.lock"):
        left.write_text("")
    assert store.fetch(source, head) == head
    assert not pack.exists()


def test_two_processes_fetch_at_once(store: GitStore, source: Path) -> None:
    ids = [commit_files(source, {f"{number}.txt": "x\n"}) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda commit: GitStore(store.path).fetch(source, commit), ids)) == ids
    assert all(store.tree(commit).entries() for commit in ids)


def test_fetch_works_from_a_linked_worktree_and_a_detached_head(store: GitStore, source: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(source, "worktree", "add", "-q", "--detach", str(linked))
    head = commit_files(linked, {"only-here.txt": "x\n"})
    assert store.fetch(linked, "HEAD") == head


def test_tree_reads_bytes_modes_and_names(store: GitStore, source: Path) -> None:
    (source / "script.sh").write_text("#!/bin/sh\n")
    (source / "script.sh").chmod(0o755)
    (source / "link").symlink_to("README.md")
    Path(os.fsdecode(os.fsencode(source) + b"/latin-\xe9.txt")).write_text("odd\n")
    (source / "line\nbreak").write_text("odd\n")
    tree = store.tree(store.fetch(source, commit_files(source, {})))
    entries = tree.entries()
    assert entries["script.sh"].mode == "100755"
    assert entries["link"].mode == "120000"
    assert entries["data/binary.bin"].size == 256
    assert tree.read("link") == b"README.md"
    assert tree.read("latin-\udce9.txt") == b"odd\n"
    assert tree.read("line\nbreak") == b"odd\n"
    assert tree.read_many(["README.md", "absent", "data/binary.bin", "README.md"]) == {
        "README.md": b"# Sample\n",
        "data/binary.bin": bytes(range(256)),
    }
    assert tree.read_many([]) == {}
    with pytest.raises(KeyError):
        tree.read("absent")


def test_submodules_are_not_files(store: GitStore, source: Path) -> None:
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(source, "commit", "-q", "-m", "a submodule")
    tree = store.tree(store.fetch(source, "HEAD"))
    assert tree.gitlinks() == {"vendor/lib": "1" * 40}
    assert "vendor/lib" not in tree.entries()


def test_checkout_gives_exactly_the_stored_bytes(store: GitStore, source: Path, tmp_path: Path) -> None:
    stored: dict[str, bytes] = {
        "crlf.txt": b"one\r\ntwo\r\n",
        "lf.txt": b"one\ntwo\n",
        "ident.txt": b"$Id$\n",
        "utf16.txt": b"text\n",
        "export.txt": b"$Format:%H$\n",
        "ignored.txt": b"still here\n",
        "filtered.txt": b"raw\n",
    }
    attributes = (
        b"[attr]trick filter=evil ident text eol=crlf\n* trick\nident.txt ident\n"
        b"utf16.txt working-tree-encoding=UTF-16\n"
        b"lf.txt text eol=crlf\nexport.txt export-subst\nignored.txt export-ignore\nfiltered.txt filter=evil\n"
    )
    for name, content in {**stored, ".gitattributes": attributes}.items():
        oid = git(source, "hash-object", "-w", "--no-filters", "--stdin", stdin=content)
        git(source, "update-index", "--add", "--cacheinfo", f"100644,{oid},{name}")
    git(source, "commit", "-q", "-m", "attributes")
    target = tmp_path / "out"
    target.mkdir()
    store.checkout(store.fetch(source, "HEAD"), target)
    assert {name: (target / name).read_bytes() for name in stored} == stored


def test_checkout_keeps_modes_and_links_and_leaves_no_git(store: GitStore, source: Path, tmp_path: Path) -> None:
    (source / "script.sh").write_text("#!/bin/sh\n")
    (source / "script.sh").chmod(0o755)
    (source / "outside").symlink_to("/etc/passwd")
    (source / "dangling").symlink_to("nowhere")
    target = tmp_path / "out"
    target.mkdir()
    store.checkout(store.fetch(source, commit_files(source, {})), target)
    assert (target / "outside").readlink() == Path("/etc/passwd")
    assert (target / "dangling").readlink() == Path("nowhere")
    assert (target / "script.sh").stat().st_mode & 0o111
    assert not (target / "README.md").stat().st_mode & 0o111
    assert not (target / ".git").exists()
    assert (target / "data/binary.bin").read_bytes() == bytes(range(256))
    with pytest.raises(ValueError, match="not empty"):
        store.checkout(store.fetch(source, "HEAD"), target)


def test_checkout_writes_changes_with_the_rest_and_keeps_nothing_of_them(
    store: GitStore, source: Path, tmp_path: Path
) -> None:
    (source / "link").symlink_to("/etc")
    target, objects = tmp_path / "out", store.path / "objects"
    target.mkdir()
    fetched = store.fetch(source, commit_files(source, {"gone.txt": b"x", "data/x.txt": b"x"}))
    before = sorted(objects.rglob("*"))
    changes = (
        FileChange(path="gone.txt", mode="100644", content=None),
        FileChange(path="new/script.sh", mode="100755", content=b"#!/bin/sh\n"),
        FileChange(path="link/x", mode="100644", content=b"beside /etc\n"),
        FileChange(path="data/x.txt/y", mode="100644", content=b"a directory now\n"),
    )
    store.checkout(fetched, target, changes)
    assert not (target / "gone.txt").exists()
    assert (target / "new/script.sh").stat().st_mode & 0o111
    assert (target / "link").is_dir()
    assert not (target / "link").is_symlink()
    assert (target / "data/x.txt/y").read_bytes() == b"a directory now\n"
    assert sorted(objects.rglob("*")) == before
    (tmp_path / "other").mkdir()
    with pytest.raises(UnsafePathError):
        store.checkout(fetched, tmp_path / "other", [FileChange(path="../x", mode="100644", content=b"")])


def test_commit_is_the_patch_and_nothing_else(store: GitStore, base: str) -> None:
    made = commit(
        store,
        base,
        change("app/main.py", b"print('fixed')\r\n"),
        change("app/new.sh", b"#!/bin/sh\n", "100755"),
        change("latest", b"app/new.sh", "120000"),
        change("README.md", None),
        change("odd\nname\udcff", b"bytes\n"),
    )
    tree = store.tree(made)
    assert set(tree.entries()) == {*FILES, "app/new.sh", "latest", "odd\nname\udcff"} - {"README.md"}
    assert tree.read("app/main.py") == b"print('fixed')\r\n"
    assert [tree.entries()[name].mode for name in ("app/new.sh", "latest")] == ["100755", "120000"]
    assert git(store.path, "log", "-1", "--format=%an|%ae|%cn|%aI|%cI|%P|%B", made) == (
        f"agent-fix|{BOT.email}|agent-fix|2026-11-03T12:30:00+00:00|2026-11-03T12:30:00+00:00|{base}|fix it\n"
    )
    git(store.path, "fsck", "--strict", "--no-dangling")


def test_the_same_patch_is_the_same_commit(store: GitStore, base: str, tmp_path: Path, source: Path) -> None:
    changes = (change("b.txt", b"b\n"), change("a.txt", b"a\n"))
    other = GitStore(tmp_path / "other.git")
    other.ensure()
    other.fetch(source, base)
    ids = {commit(store, base, *changes), commit(store, base, *reversed(changes)), commit(other, base, *changes)}
    assert len(ids) == 1


def test_bytes_are_committed_as_they_are_whatever_the_attributes_say(store: GitStore, base: str) -> None:
    content = b"line\r\n$Id: x$\r\n"
    attributes = b"*.txt text eol=crlf ident working-tree-encoding=UTF-16 filter=evil\n"
    made = commit(store, base, change("a.txt", content), change(".gitattributes", attributes))
    assert store.tree(made).read("a.txt") == content


def test_a_file_can_become_a_directory_and_back(store: GitStore, base: str) -> None:
    deeper = commit(store, base, change("README.md", None), change("README.md/part.md", b"x\n"))
    assert "README.md/part.md" in store.tree(deeper).entries()
    back = commit(store, deeper, change("README.md", b"y\n"), change("README.md/part.md", None))
    assert store.tree(back).read("README.md") == b"y\n"


def test_an_inconsistent_patch_is_refused(store: GitStore, base: str) -> None:
    with pytest.raises(GitError):
        commit(store, base, change("README.md/part.md", b"README.md is still a file\n"))


UNSAFE = [
    "",
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "a//b",
    "./a",
    "a/",
    "nul\0byte",
    ".git/hooks/pre-commit",
    ".GIT/config",
    "sub/.Git/config",
    ".g\u200cit/hooks/x",
    ".gi\ufe0ft/config",
    "\uff0egit/config",
    ".git./config",
    ".git /config",
    ".git::$INDEX_ALLOCATION/config",
    "git~1/config",
    "GIT~1/config",
    "a\\.git\\config",
    ".git",
    "x" * 256,
    "/".join(["x" * 200] * 30),
]


@pytest.mark.parametrize("path", UNSAFE)
def test_paths_that_git_must_never_get(store: GitStore, base: str, path: str) -> None:
    with pytest.raises(UnsafePathError):
        commit(store, base, change(path, b"x"))


@pytest.mark.parametrize(
    "path", [".github/workflows/ci.yml", ".gitignore", "git/x", "a:b", "CON", "-rf", "é\u0301.txt"]
)
def test_paths_that_only_look_odd_are_carried_exactly(store: GitStore, base: str, path: str) -> None:
    assert store.tree(commit(store, base, change(path, b"x"))).read(path) == b"x"


def test_diff_cannot_be_hidden_or_executed(store: GitStore, base: str) -> None:
    attributes = b"*.py -diff\n*.md diff=evil binary\n"
    made = commit(store, base, change("app/main.py", b"print('fixed')\n"), change(".gitattributes", attributes))
    diff = store.diff(base, made)
    assert "-print('hello')\n+print('fixed')\n" in diff
    assert ".gitattributes" not in store.diff(base, made, paths=["app/main.py"])
    assert store.diff(base, made, paths=["*.py"]) == "", "a path is a name and no pattern"


def test_diff_stat_counts_lines_and_shows_modes(store: GitStore, base: str) -> None:
    made = commit(
        store,
        base,
        change("app/main.py", b"print('hello')\nprint('more')\n", "100755"),
        change("data/binary.bin", b"\0\1\2" * 50),
        change("README.md", None),
        change("docs/README.md", b"# Sample\n"),
        change("new.txt", b"1\n2\n3\n"),
        change("odd\t\n\udcff.txt", b"1\n"),
    )
    stat = {one.path: one for one in store.diff_stat(base, made)}
    main = stat["app/main.py"]
    assert (main.status, main.old_mode, main.mode, main.added, main.deleted) == ("modified", "100644", "100755", 1, 0)
    assert (stat["data/binary.bin"].added, stat["data/binary.bin"].status) == (None, "modified")
    assert (stat["docs/README.md"].status, stat["docs/README.md"].old_path) == ("renamed", "README.md")
    assert (stat["new.txt"].status, stat["new.txt"].added) == ("added", 3)
    assert stat["odd\t\n\\xff.txt"].model_dump_json()


def test_deliver_leaves_a_branch_and_touches_nothing_else(store: GitStore, source: Path, base: str) -> None:
    (source / "README.md").write_text("uncommitted work\n")
    (source / "untracked.txt").write_text("mine\n")
    before, head = snapshot(source), git(source, "rev-parse", "HEAD")
    made = commit(store, base, change("app/main.py", b"print('fixed')\n"))
    assert store.deliver(source, "agent-fix/greeting", made) == "agent-fix/greeting"
    assert git(source, "rev-parse", "agent-fix/greeting") == made
    assert git(source, "rev-parse", "HEAD") == head
    after = snapshot(source)
    assert {name for name in before if after.get(name) != before[name]} == set()
    new = {name.removeprefix(".git/").split("/")[0] for name in after.keys() - before.keys()}
    assert new == {"objects", "refs", "logs"}
    git(source, "fsck", "--strict")


def test_deliver_again_changes_nothing(store: GitStore, source: Path, base: str) -> None:
    made = commit(store, base, change("a.txt", b"a\n"))
    name = store.deliver(source, "agent-fix/a", made)
    before = snapshot(source)
    assert store.deliver(source, "agent-fix/a", made) == name
    assert snapshot(source) == before


def test_a_taken_name_gets_a_number(store: GitStore, source: Path, base: str) -> None:
    git(source, "branch", "agent-fix/a")
    made = commit(store, base, change("a.txt", b"a\n"))
    other = commit(store, base, change("a.txt", b"other\n"))
    assert store.deliver(source, "agent-fix/a", made) == "agent-fix/a-2"
    assert store.deliver(source, "agent-fix/a", other) == "agent-fix/a-3"
    git(source, "branch", "-D", "agent-fix/a")
    assert store.deliver(source, "agent-fix/a", other) == "agent-fix/a-3", "its branch is there already"
    assert git(source, "branch", "--list", "agent-fix/a", "agent-fix/a-3").split() == ["agent-fix/a-3"]


@pytest.mark.parametrize(("taken", "expected"), [("agent-fix", "agent-fix-a"), ("agent-fix/a/b", "agent-fix/a-2")])
def test_a_name_that_git_cannot_hold_beside_another(
    store: GitStore, source: Path, base: str, taken: str, expected: str
) -> None:
    git(source, "branch", taken)
    assert store.deliver(source, "agent-fix/a", commit(store, base, change("a.txt", b"a\n"))) == expected


class RacedStore(GitStore):
    """Another process creates branches in the user's repository while the commit is copied there."""

    def __init__(self, path: Path, branches: Iterator[list[str]]) -> None:
        super().__init__(path)
        self._branches = branches
        self.copied = 0

    def _transfer(self, commit: str, theirs: Git) -> str:
        self.copied += 1
        for branch in next(self._branches, []):
            theirs("branch", branch)
        return super()._transfer(commit, theirs)


def test_a_commit_is_copied_once_before_its_branch_is_created(store: GitStore, source: Path, base: str) -> None:
    made = commit(store, base, change("a.txt", b"a\n"))
    raced = RacedStore(store.path, iter([["agent-fix/a", "agent-fix/a-2"]]))
    assert raced.deliver(source, "agent-fix/a", made) == "agent-fix/a-3"
    assert raced.copied == 1


def test_a_branch_that_cannot_be_created_is_not_tried_again(store: GitStore, source: Path, base: str) -> None:
    refused = RacedStore(store.path, iter([]))
    lock = source / ".git" / "refs" / "heads" / "a.lock"
    lock.touch()
    with pytest.raises(OutputError, match=r"a\.lock"):
        refused.deliver(source, "a", commit(store, base, change("a.txt", b"a\n")))
    assert refused.copied == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_repository_is_reported(store: GitStore, source: Path, base: str) -> None:
    made = commit(store, base, change("a.txt", b"a\n"))
    (source / ".git" / "objects").chmod(0o500)
    try:
        with pytest.raises(OutputError, match="insufficient permission"):
            store.deliver(source, "agent-fix/a", made)
    finally:
        (source / ".git" / "objects").chmod(0o700)


@pytest.mark.parametrize("name", ["HEAD", "main", "--help", "0" * 39, "g" * 40])
def test_only_full_ids_name_commits_inside_the_mirror(store: GitStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="full commit id"):
        store.tree(name)
    with pytest.raises(ValueError, match="full commit id"):
        store.checkout(name, tmp_path / "state")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own files of two users")
@pytest.mark.parametrize(("reachable", "owner"), [(True, 65_534), (False, 0)])
def test_files_written_by_root_get_an_owner_who_can_reach_them(store: GitStore, reachable: bool, owner: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        theirs = make_repository(Path(folder) / "theirs", FILES)
        for path in [theirs, *theirs.rglob("*")]:
            os.chown(path, 65_534, 65_534, follow_symlinks=False)
        Path(folder).chmod(0o755 if reachable else 0o700)
        before = set(theirs.rglob("*"))
        base = store.fetch(theirs, "HEAD")
        name = store.deliver(theirs, "agent-fix/a", commit(store, base, change("a.txt", b"a\n")))
        assert git(theirs, "cat-file", "-p", f"{name}:a.txt") == "a"
        assert {path.lstat().st_uid for path in set(theirs.rglob("*")) - before} == {owner}


def test_a_full_disk_is_reported_and_stored_data_stays_intact(source: Path, tmp_path: Path) -> None:
    commit_files(source, {"large.bin": os.urandom(3_000_000)})
    with tiny_disk(tmp_path / "tiny") as place:
        small = GitStore(place / "mirror.git")
        small.ensure()
        first = small.fetch(source, "HEAD~1")
        with pytest.raises(OutputError) as caught:
            small.fetch(source, "HEAD")
        assert (caught.value.code, bool(caught.value.hint)) == (ExitCode.DISK_FULL, True)
        with pytest.raises(OutputError):
            commit(small, first, change("large.bin", os.urandom(3_000_000)))
        assert small.fetch(source, first) == first
        assert small.tree(first).read("README.md") == b"# Sample\n"
