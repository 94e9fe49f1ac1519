"""Merges of three commits without history: what both sides did is there, and what cannot be decided is said."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.repo.git_store import GitError, GitStore
from app.repo.merge import MAX_MERGED_SIZE, MergeResult, SideNames, markers_left, merge
from tests.support.repositories import commit_files, git, make_repository

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.example")
WHEN = datetime(2026, 11, 3, 12, 30, tzinfo=UTC)
LINES = [f"line {number}\n" for number in range(20)]
Files = Mapping[str, str | bytes | None]


@dataclass
class DivergedRepository:
    """A repository whose `main` and `branch` part at `base`, and a store that has nothing of it yet."""

    source: Path
    store: GitStore
    base: str

    def side(self, branch: str, files: Files, *, links: Mapping[str, str] | None = None) -> str:
        """A commit on the base; None removes a file."""
        git(self.source, "checkout", "-q", "-B", branch, self.base)
        for name in [name for name, content in files.items() if content is None]:
            (self.source / name).unlink()
        for name, target in (links or {}).items():
            (self.source / name).unlink(missing_ok=True)
            (self.source / name).symlink_to(target)
        return commit_files(self.source, {name: content for name, content in files.items() if content is not None})

    def merge(self, ours: str, theirs: str) -> MergeResult:
        for commit in (self.base, ours, theirs):
            self.store.fetch(self.source, commit)
        return merge(
            self.store,
            base=self.base,
            ours=ours,
            theirs=theirs,
            identity=BOT,
            date=WHEN,
            message="Merge\n",
            names=SideNames("topic", "main"),
        )

    def files(self, merged: MergeResult) -> dict[str, bytes]:
        tree = self.store.tree(merged.commit)
        return tree.read_many(tree.entries())


def diverged(tmp_path: Path, files: Mapping[str, str | bytes]) -> DivergedRepository:
    source = make_repository(tmp_path / "source", files)
    store = GitStore(tmp_path / "state" / "mirror.git")
    store.ensure()
    return DivergedRepository(source, store, git(source, "rev-parse", "HEAD"))


@pytest.fixture
def fake_github(tmp_path: Path) -> DivergedRepository:
    return diverged(tmp_path, {"a.txt": "".join(LINES), "b.txt": "b\n", "data.bin": b"\0\1\2", "docs/x.md": "x\n"})


def with_lines(changes: Mapping[int, str]) -> str:
    return "".join(changes.get(number, line) for number, line in enumerate(LINES))


def test_changes_far_apart_come_together(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": with_lines({1: "ours\n"}), "new-ours.txt": "1\n", "docs/x.md": None})
    theirs = fake_github.side("theirs", {"a.txt": with_lines({18: "theirs\n"}), "b.txt": "B\n", "deep/new.txt": "2\n"})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == ()
    assert fake_github.files(merged) == {
        "a.txt": with_lines({1: "ours\n", 18: "theirs\n"}).encode(),
        "b.txt": b"B\n",
        "data.bin": b"\0\1\2",
        "deep/new.txt": b"2\n",
        "new-ours.txt": b"1\n",
    }
    assert git(fake_github.store.path, "log", "-1", "--format=%P|%an|%ce|%cI|%B", merged.commit, check=False) == (
        f"{ours} {theirs}|agent-fix|{BOT.email}|2026-11-03T12:30:00+00:00|Merge\n"
    )
    assert fake_github.store.keeps(merged.commit)
    git(fake_github.store.path, "fsck", "--strict", "--no-dangling")


def test_the_same_merge_is_the_same_commit(fake_github: DivergedRepository, tmp_path: Path) -> None:
    ours, theirs = fake_github.side("ours", {"b.txt": "ours\n"}), fake_github.side("theirs", {"b.txt": "theirs\n"})
    elsewhere = GitStore(tmp_path / "elsewhere.git")
    elsewhere.ensure()
    other = DivergedRepository(fake_github.source, elsewhere, fake_github.base)
    assert fake_github.merge(ours, theirs) == fake_github.merge(ours, theirs) == other.merge(ours, theirs)


def test_a_conflict_is_marked_and_resolved_by_a_patch_on_it(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": with_lines({5: "ours\n", 19: "ours\n"})})
    theirs = fake_github.side("theirs", {"a.txt": with_lines({5: "theirs\n", 0: "theirs\n"})})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == ("a.txt: both sides changed the same lines, in 1 place",)
    assert merged.paths == ("a.txt",)
    marked = "<<<<<<< topic\nours\n||||||| base\nline 5\n=======\ntheirs\n>>>>>>> main\n"
    content = fake_github.files(merged)["a.txt"]
    assert content == with_lines({0: "theirs\n", 5: marked, 19: "ours\n"}).encode()
    assert markers_left({"a.txt": content}) == ("a.txt:6",)
    resolved = FileChange(path="a.txt", mode="100644", content=b"both\n")
    final = fake_github.store.commit(
        Patch(base=merged.commit, changes=(resolved,)), message="Merge\n", author=BOT, date=WHEN, parents=(ours, theirs)
    )
    assert git(fake_github.store.path, "log", "-1", "--format=%P", final) == f"{ours} {theirs}"
    assert fake_github.store.tree(final).read("a.txt") == b"both\n"
    assert fake_github.store.tree(final).read("b.txt") == b"b\n"


def test_several_places_are_counted(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": with_lines({2: "o\n", 15: "o\n"})})
    theirs = fake_github.side("theirs", {"a.txt": with_lines({2: "t\n", 15: "t\n"})})
    assert fake_github.merge(ours, theirs).conflicts == ("a.txt: both sides changed the same lines, in 2 places",)


def test_a_change_is_kept_where_the_other_side_deleted(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": "mine\n", "b.txt": None})
    theirs = fake_github.side("theirs", {"a.txt": None, "b.txt": "theirs\n"})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == (
        "a.txt: changed on the branch, deleted on the other side: the changed version is kept",
        "b.txt: deleted on the branch, changed on the other side: the changed version is kept",
    )
    assert {name: fake_github.files(merged)[name] for name in ("a.txt", "b.txt")} == {
        "a.txt": b"mine\n",
        "b.txt": b"theirs\n",
    }


def test_a_file_added_on_both_sides_is_merged_from_an_empty_base(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"new.txt": "same\nours\n", "equal.txt": "e\n"})
    theirs = fake_github.side("theirs", {"new.txt": "same\ntheirs\n", "equal.txt": "e\n"})
    merged = fake_github.merge(ours, theirs)
    assert merged.paths == ("new.txt",)
    content = fake_github.files(merged)["new.txt"]
    assert content.startswith(b"same\n<<<<<<< topic\nours\n")
    assert content.endswith(b"=======\ntheirs\n>>>>>>> main\n")
    assert fake_github.files(merged)["equal.txt"] == b"e\n"


@pytest.mark.parametrize("content", [b"\0ours", b"\0theirs"])
def test_binary_files_are_never_mixed(fake_github: DivergedRepository, content: bytes) -> None:
    ours, theirs = (
        fake_github.side("ours", {"data.bin": content}),
        fake_github.side("theirs", {"data.bin": b"\0\1\2\3"}),
    )
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == ("data.bin: binary, and changed on both sides: the branch's version is kept",)
    assert fake_github.files(merged)["data.bin"] == content


def test_a_huge_file_is_not_merged_line_by_line(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": "x\n" * (MAX_MERGED_SIZE // 2 + 1)})
    theirs = fake_github.side("theirs", {"a.txt": "theirs\n"})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == ("a.txt: too large to merge, and changed on both sides: the branch's version is kept",)
    assert fake_github.store.tree(merged.commit).entries()["a.txt"].size > MAX_MERGED_SIZE


def test_mode_and_content_are_merged_by_themselves(fake_github: DivergedRepository) -> None:
    git(fake_github.source, "update-index", "--chmod=+x", "b.txt")
    git(fake_github.source, "commit", "-q", "-m", "executable")
    ours = git(fake_github.source, "rev-parse", "HEAD")
    git(fake_github.source, "reset", "-q", "--hard", fake_github.base)
    theirs = fake_github.side("theirs", {"b.txt": "theirs\n"})
    for one, other in ((ours, theirs), (theirs, ours)):
        merged = fake_github.merge(one, other)
        assert merged.conflicts == ()
        entry = fake_github.store.tree(merged.commit).entries()["b.txt"]
        assert (entry.mode, fake_github.files(merged)["b.txt"]) == ("100755", b"theirs\n")


def test_links_are_never_mixed(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {}, links={"new": "here", "b.txt": "a.txt"})
    theirs = fake_github.side("theirs", {"b.txt": "theirs\n"}, links={"new": "/etc/passwd"})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == (
        "b.txt: a symbolic link on the branch, a file on the other side: the branch's version is kept",
        "new: a symbolic link with different targets: the branch's version is kept",
    )
    assert [fake_github.files(merged)[name] for name in ("b.txt", "new")] == [b"a.txt", b"here"]
    assert fake_github.store.tree(merged.commit).entries()["new"].mode == "120000"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_file_and_a_folder_of_one_name(fake_github: DivergedRepository, swapped: bool) -> None:
    file = fake_github.side("file", {"lib": "a file\n"})
    folder = fake_github.side("folder", {"lib/one.txt": "1\n", "lib/two.txt": "2\n"})
    merged = fake_github.merge(folder, file) if swapped else fake_github.merge(file, folder)
    files = {name for name in fake_github.files(merged) if name.startswith("lib")}
    assert files == ({"lib/one.txt", "lib/two.txt"} if swapped else {"lib"})
    lost = ("lib",) if swapped else ("lib/one.txt", "lib/two.txt")
    assert merged.conflicts == tuple(f"{path}: left out: a folder on one side, a file on the other" for path in lost)


def test_a_file_that_became_a_folder_on_one_side_only(fake_github: DivergedRepository) -> None:
    git(fake_github.source, "checkout", "-q", "-B", "folder", fake_github.base)
    (fake_github.source / "b.txt").unlink()
    theirs = commit_files(fake_github.source, {"b.txt/part.txt": "1\n"})
    assert fake_github.merge(fake_github.side("ours", {"a.txt": "ours\n"}), theirs).conflicts == ()
    merged = fake_github.merge(fake_github.side("changed", {"b.txt": "changed\n"}), theirs)
    assert merged.paths == ("b.txt", "b.txt/part.txt")
    assert fake_github.files(merged)["b.txt"] == b"changed\n"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_follows_a_file_that_the_other_side_renamed(fake_github: DivergedRepository, swapped: bool) -> None:
    moved = fake_github.side("moved", {"a.txt": None, "lib/moved.txt": with_lines({18: "moved\n"})})
    changed = fake_github.side("changed", {"a.txt": with_lines({1: "changed\n"})})
    merged = fake_github.merge(changed, moved) if swapped else fake_github.merge(moved, changed)
    assert merged.conflicts == ()
    assert "a.txt" not in fake_github.files(merged)
    assert fake_github.files(merged)["lib/moved.txt"] == with_lines({1: "changed\n", 18: "moved\n"}).encode()


def test_a_change_of_a_renamed_file_can_conflict(fake_github: DivergedRepository) -> None:
    moved = fake_github.side("moved", {"a.txt": None, "moved.txt": with_lines({3: "moved\n"})})
    merged = fake_github.merge(fake_github.side("changed", {"a.txt": with_lines({3: "changed\n"})}), moved)
    assert merged.conflicts == ("moved.txt: both sides changed the same lines, in 1 place",)


def test_conflicting_renames_and_deletions_are_reported(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": None, "one.txt": "".join(LINES), "docs/x.md": None})
    theirs = fake_github.side("theirs", {"a.txt": None, "two.txt": "".join(LINES), "docs/x.md": None, "x.md": "x\n"})
    merged = fake_github.merge(ours, theirs)
    apart = "renamed from a.txt on one side, and to another name on the other: both are kept"
    assert merged.conflicts == (
        f"one.txt: {apart}",
        f"two.txt: {apart}",
        "x.md: deleted on one side, renamed on the other: the renamed file is kept",
    )
    assert {"one.txt", "two.txt", "x.md"} < fake_github.files(merged).keys()


def test_submodules_are_never_mixed(fake_github: DivergedRepository) -> None:
    def pinned(branch: str, digit: str) -> str:
        git(fake_github.source, "checkout", "-q", "-B", branch, fake_github.base)
        git(fake_github.source, "update-index", "--add", "--cacheinfo", f"160000,{digit * 40},vendor")
        git(fake_github.source, "commit", "-q", "-m", "pin")
        made = git(fake_github.source, "rev-parse", "HEAD")
        git(fake_github.source, "reset", "-q", "--hard", fake_github.base)
        return made

    merged = fake_github.merge(pinned("ours", "1"), pinned("theirs", "2"))
    assert merged.conflicts == ("vendor: a submodule with different targets: the branch's version is kept",)
    assert fake_github.store.tree(merged.commit).gitlinks().keys() == {"vendor"}


def test_no_attribute_and_no_driver_of_a_tree_is_obeyed(fake_github: DivergedRepository, tmp_path: Path) -> None:
    attributes = "* merge=evil\n*.txt merge=union conflict-marker-size=30 -text\na.txt binary\n"
    fired = tmp_path / "fired"
    (fake_github.store.path / "config").open("a").write(f'[merge "evil"]\n\tdriver = touch {fired}\n')
    ours = fake_github.side("ours", {"a.txt": with_lines({5: "ours\n"}), ".gitattributes": attributes})
    theirs = fake_github.side("theirs", {"a.txt": with_lines({5: "theirs\n"}), ".gitattributes": attributes})
    merged = fake_github.merge(ours, theirs)
    assert merged.paths == ("a.txt",)
    assert b"\n<<<<<<< topic\n" in fake_github.files(merged)["a.txt"]
    assert not fired.exists()


def test_line_ends_and_a_missing_last_one_are_kept(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"a.txt": "ours\r\n" + "".join(LINES)})
    theirs = fake_github.side("theirs", {"a.txt": "".join(LINES) + "no end"})
    merged = fake_github.merge(ours, theirs)
    assert merged.conflicts == ()
    assert fake_github.files(merged)["a.txt"] == ("ours\r\n" + "".join(LINES) + "no end").encode()


def test_odd_names_are_kept_exactly_and_shown_on_one_line(fake_github: DivergedRepository) -> None:
    name = "odd\n\tname\udcff \u202e.txt"
    ours, theirs = fake_github.side("ours", {name: "ours\n"}), fake_github.side("theirs", {name: "theirs\n"})
    merged = fake_github.merge(ours, theirs)
    assert merged.paths == (name,)
    assert merged.conflicts[0].startswith("odd\\n\\tname\\xff \\u202e.txt: ")
    assert name in fake_github.files(merged)


def test_a_tree_that_git_would_not_check_out_is_not_merged(fake_github: DivergedRepository) -> None:
    blob = git(fake_github.source, "hash-object", "-w", "--stdin", stdin=b"evil")
    inner = git(fake_github.source, "mktree", stdin=f"100755 blob {blob}\tpost-checkout\n".encode())
    tree = git(fake_github.source, "mktree", stdin=f"040000 tree {inner}\t.git\n".encode())
    hostile = git(fake_github.source, "commit-tree", tree, "-m", "hostile", "-p", fake_github.base)
    git(fake_github.source, "branch", "hostile", hostile)
    with pytest.raises(GitError, match="invalid path"):
        fake_github.merge(fake_github.side("ours", {"b.txt": "ours\n"}), hostile)


def test_only_commits_that_are_there_can_be_merged(fake_github: DivergedRepository) -> None:
    ours = fake_github.side("ours", {"b.txt": "ours\n"})
    fake_github.store.fetch(fake_github.source, ours)
    with pytest.raises(GitError, match="is not in"):
        merge(fake_github.store, base=fake_github.base, ours=ours, theirs=ours, identity=BOT, date=WHEN, message="m")
    with pytest.raises(ValueError, match="full commit id"):
        merge(fake_github.store, base="main", ours=ours, theirs=ours, identity=BOT, date=WHEN, message="m")


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b"a\n<<<<<<< ours\n", ("f:2",)),
        (b"<<<<<<<\r\nx", ("f:1",)),
        (b"x\ny\n>>>>>>> theirs", ("f:3",)),
        (b"||||||| base\n", ("f:1",)),
        (b"Heading\n=======\n", ()),
        (b"  <<<<<<< quoted\n", ()),
        (b"<<<<<<<<\n>>>>>> x\n", ()),
        (b"cat <<<<<<< x\n", ()),
        (b"\xff\n<<<<<<< \xfe\n", ("f:2",)),
        (b"", ()),
    ],
)
def test_a_marker_is_one_at_the_beginning_of_a_line(content: bytes, left: tuple[str, ...]) -> None:
    assert markers_left({"f": content}) == left


def random_side(rng: random.Random, files: dict[str, list[str]]) -> Files:
    made: dict[str, str | bytes | None] = {}
    for name, lines in files.items():
        match rng.randrange(6):
            case 0:
                made[name] = None
            case 1 | 2:
                changed = list(lines)
                for _ in range(rng.randrange(1, 4)):
                    changed[rng.randrange(len(changed))] = f"{rng.random()}\n"
                made[name] = "".join(changed)
            case 3:
                made[name], made[f"renamed/{name}"] = None, "".join([*lines[:-1], f"{rng.random()}\n"])
    return made


@pytest.mark.parametrize("seed", range(12))
def test_git_itself_merges_to_the_same_tree(tmp_path: Path, seed: int) -> None:
    """Against git's own strategy, which the git that this needs at least does not offer without a work tree."""
    rng = random.Random(seed)
    files = {f"{number}.txt": [f"{number} {rng.random()}\n" for _ in range(30)] for number in range(8)}
    fake_github = diverged(tmp_path, {"keep.txt": "k\n", **{name: "".join(lines) for name, lines in files.items()}})
    ours, theirs = (fake_github.side(side, random_side(rng, files)) for side in ("ours", "theirs"))
    merged = fake_github.merge(ours, theirs)
    git(fake_github.source, "checkout", "-q", "ours")
    git(fake_github.source, "merge", "-q", "--no-edit", "-s", "recursive", "theirs", check=False)
    unmerged = git(fake_github.source, "diff", "--name-only", "--diff-filter=U").split()
    assert bool(merged.conflicts) == bool(unmerged), (merged.conflicts, unmerged)
    if not unmerged:
        theirs_tree = git(fake_github.source, "rev-parse", "HEAD^{tree}")
        assert git(fake_github.store.path, "rev-parse", f"{merged.commit}^{{tree}}") == theirs_tree
