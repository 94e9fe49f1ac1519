"""Every kind of repository a user may name: what works, and the message and exit code of what does not."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ExitCode, RepositoryError
from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.repo.git_command import Git
from app.repo.git_store import GitStore
from app.repo.inspection import branch_ref, inspect, note_about, notes_about_contents, origin_url, slug
from tests.support.repositories import commit_files, git, make_repository, snapshot

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


@pytest.fixture
def store(tmp_path: Path) -> GitStore:
    return GitStore(tmp_path / "state" / "mirror.git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", {"README.md": "# Sample\n", "src/a.py": "x = 1\n"})


def refusal(path: Path, store: GitStore, base: str | None = None) -> RepositoryError:
    with pytest.raises(RepositoryError) as caught:
        inspect(path, base, store)
    assert caught.value.hint
    assert caught.value.message.endswith(".")
    return caught.value


def test_a_plain_repository(repository: Path, store: GitStore) -> None:
    before = snapshot(repository)
    seen = inspect(repository, None, store)
    assert (seen.root, seen.base_commit) == (repository, git(repository, "rev-parse", "HEAD"))
    assert (seen.base_ref, origin_url(Git("-C", str(repository)))) == ("refs/heads/main", "")
    assert (seen.dirty, seen.notes) == (0, ())
    assert seen.tree.read("src/a.py") == b"x = 1\n"
    assert snapshot(repository) == before


def test_uncommitted_changes_are_counted_and_left_alone(repository: Path, store: GitStore) -> None:
    (repository / "README.md").write_text("changed\n")
    (repository / "staged.txt").write_text("new\n")
    git(repository, "add", "staged.txt")
    (repository / "untracked dir").mkdir()
    (repository / "untracked dir" / "a\nb").write_text("1")
    (repository / "ignored.log").write_text("1")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    before = snapshot(repository)
    seen = inspect(repository, None, store)
    assert seen.dirty == 3
    assert seen.notes == (f"3 uncommitted changes in {repository} are neither used nor changed.",)
    assert seen.tree.read("README.md") == b"# Sample\n"
    assert snapshot(repository) == before


def test_a_broken_index_does_not_matter(repository: Path, store: GitStore) -> None:
    (repository / ".git" / "index").write_bytes(b"not an index")
    seen = inspect(repository, None, store)
    assert seen.dirty is None
    assert "neither used nor changed" in seen.notes[0]


def test_a_subdirectory_means_the_whole_repository(repository: Path, store: GitStore) -> None:
    seen = inspect(repository / "src", None, store)
    assert seen.root == repository
    assert seen.notes == (
        f"{repository / 'src'} is inside the repository {repository}; agent-fix uses the whole repository.",
    )


def test_a_linked_worktree_and_a_detached_head(repository: Path, store: GitStore, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    head = commit_files(tmp_path / "linked", {"only-here.txt": "x\n"})
    seen = inspect(tmp_path / "linked", None, store)
    assert (seen.root, seen.base_commit, seen.base_ref) == (tmp_path / "linked", head, "HEAD")
    assert "only-here.txt" in seen.tree.entries()


def test_every_way_to_name_a_base(repository: Path, store: GitStore) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "-a", "v1", "-m", "annotated")
    git(repository, "branch", "-M", "weird/nåme")
    git(repository, "update-ref", "refs/heads/-main", "HEAD")
    second = commit_files(repository, {"b.txt": "b\n"})
    assert inspect(repository, None, store).base_ref == "refs/heads/weird/nåme"
    expected = {
        "v1": (first, "refs/tags/v1"),
        "HEAD~1": (first, "HEAD~1"),
        second[:9]: (second, second[:9]),
        second: (second, second),
        "weird/nåme": (second, "refs/heads/weird/nåme"),
        "-main": (first, "refs/heads/-main"),
    }
    found = {base: inspect(repository, base, store) for base in expected}
    assert {base: (seen.base_commit, seen.base_ref) for base, seen in found.items()} == expected


@pytest.mark.parametrize("other", ["tags", "remotes"])
def test_a_name_with_two_meanings_is_refused_with_both(repository: Path, store: GitStore, other: str) -> None:
    git(repository, "update-ref", f"refs/{other}/o/v1", "HEAD")
    git(repository, "branch", "o/v1", commit_files(repository, {"b.txt": "b\n"}))
    error = refusal(repository, store, "o/v1")
    assert error.code == ExitCode.UNKNOWN_BASE
    assert {f"refs/{other}/o/v1", "refs/heads/o/v1"} <= set(error.message.replace(",", "").split())
    assert error.hint is not None
    chosen = error.hint.rpartition(" ")[2]
    assert inspect(repository, chosen, store).base_ref == chosen
    assert inspect(repository, "heads/o/v1", store).base_ref == "refs/heads/o/v1"


def test_a_tag_and_a_branch_at_the_same_commit_are_not_ambiguous(repository: Path, store: GitStore) -> None:
    git(repository, "tag", "-a", "v1", "-m", "annotated")
    git(repository, "branch", "v1")
    assert inspect(repository, "v1", store).base_commit == git(repository, "rev-parse", "HEAD")


def test_branch_of_a_configuration_is_a_branch_here_or_at_the_origin(repository: Path) -> None:
    git(repository, "tag", "develop")
    with pytest.raises(RepositoryError, match=r"base.* is the branch develop, which is not in"):
        branch_ref(repository, "develop")
    git(repository, "update-ref", "refs/remotes/origin/develop", "HEAD")
    assert branch_ref(repository, "develop") == "refs/remotes/origin/develop"
    git(repository, "update-ref", "refs/heads/develop", "HEAD")
    assert branch_ref(repository, "develop") == "refs/heads/develop"


def test_credentials_in_the_address_of_the_origin_are_left_out(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://user:secret@forge.example/o/r.git")
    assert origin_url(Git("-C", str(repository))) == "https://forge.example/o/r.git"


@pytest.mark.parametrize("url", ["git@forge.example:o/r.git", "/srv/git/r.git", "https://forge.example/o/r@2"])
def test_an_address_without_credentials_is_shown_as_it_is(repository: Path, url: str) -> None:
    git(repository, "remote", "add", "origin", url)
    assert origin_url(Git("-C", str(repository))) == url


def test_no_repository(tmp_path: Path, repository: Path, store: GitStore) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    messages = {
        refusal(path, store).message
        for path in (tmp_path / "absent", tmp_path / "file", tmp_path / "empty", repository / ".git")
    }
    assert messages == {
        f"{tmp_path}/absent does not exist.",
        f"{tmp_path}/file is a file, not a repository.",
        f"{tmp_path}/empty is not a git repository.",
        f"{repository}/.git is inside a .git directory.",
    }
    assert refusal(tmp_path / "empty", store).code == ExitCode.NOT_A_REPOSITORY
    assert not store.path.exists(), "nothing is made for a repository that cannot be used"


def test_no_commits(tmp_path: Path, store: GitStore) -> None:
    (tmp_path / "fresh").mkdir()
    git(tmp_path / "fresh", "init", "-q")
    assert refusal(tmp_path / "fresh", store).code == ExitCode.NO_COMMITS


def test_an_unborn_branch_beside_others(repository: Path, store: GitStore) -> None:
    git(repository, "symbolic-ref", "HEAD", "refs/heads/unborn")
    assert refusal(repository, store).code == ExitCode.UNKNOWN_BASE
    assert inspect(repository, "main", store).base_ref == "refs/heads/main"


def test_bare(repository: Path, tmp_path: Path, store: GitStore) -> None:
    git(repository, "clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert refusal(tmp_path / "bare.git", store).code == ExitCode.BARE_REPOSITORY


def test_shallow(repository: Path, tmp_path: Path, store: GitStore) -> None:
    commit_files(repository, {"b.txt": "b\n"})
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(tmp_path / "shallow"))
    error = refusal(tmp_path / "shallow", store)
    assert (error.code, "`git fetch --unshallow`" in error.hint) == (ExitCode.SHALLOW_REPOSITORY, True)


def test_a_partial_clone_is_refused_only_where_files_of_the_base_are_missing(
    repository: Path, tmp_path: Path, store: GitStore
) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    source, clone = f"file://{repository}", tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", source, str(clone))
    error = refusal(clone, store)
    assert (error.code, "is incomplete" in error.message) == (ExitCode.UNSUPPORTED_REPOSITORY, True)
    git(clone, "checkout", "-q", "HEAD")  # brings them
    assert inspect(clone, None, store).base_commit == git(repository, "rev-parse", "HEAD")


def test_sha256(tmp_path: Path, store: GitStore) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q", "--object-format=sha256")
    commit_files(tmp_path / "new", {"a": "b"})
    error = refusal(tmp_path / "new", store)
    assert (error.code, "sha256" in error.message) == (ExitCode.UNSUPPORTED_REPOSITORY, True)


def test_submodules_stay_as_they_are_pinned(repository: Path, store: GitStore, tmp_path: Path) -> None:
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(repository, "commit", "-q", "-m", "a submodule")
    inspected = inspect(repository, None, store)
    (note,) = notes_about_contents(inspected.tree)
    assert "vendor/lib" in note
    work = tmp_path / "work"
    work.mkdir()
    store.checkout(inspected.base_commit, work)
    assert [*(work / "vendor/lib").iterdir()] == []
    change = FileChange(path="a.txt", mode="100644", content=b"a")
    made = store.commit(
        Patch(base=inspected.base_commit, changes=(change,)),
        message="m",
        author=Person(name="a", email="a@b.test"),
        date=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert store.tree(made).gitlinks() == {"vendor/lib": "1" * 40}


def test_lfs_pointers_are_reported(repository: Path, store: GitStore) -> None:
    commit_files(repository, {"tests/data/pointer.bin": LFS_POINTER})
    assert notes_about_contents(inspect(repository, None, store).tree) == ()  # as test data it is just a file
    commit_files(repository, {"assets/.gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    (note,) = notes_about_contents(inspect(repository, None, store).tree)
    assert "1 file in Git LFS (tests/data/pointer.bin)" in note


def test_lfs_attributes_without_pointers_are_fine(repository: Path, store: GitStore) -> None:
    commit_files(repository, {".gitattributes": "# *.bin filter=lfs\n*.psd filter=lfs -text\n"})
    assert inspect(repository, None, store).dirty == 0


@pytest.mark.parametrize(
    "base", ["nope", "", "-x", "--help", "main..main", "a b", "x\x1b]52;c;x", "a\0b", "HEAD:README.md"]
)
def test_unknown_base(repository: Path, store: GitStore, base: str) -> None:
    error = refusal(repository, store, base)
    assert error.code == ExitCode.UNKNOWN_BASE
    assert error.message.isprintable()


def test_an_unknown_base_names_its_neighbours(repository: Path, store: GitStore) -> None:
    for name in ("release-1.2", "release-1.3"):
        git(repository, "branch", name)
    git(repository, "update-ref", "refs/remotes/origin/feature", "HEAD")
    assert "release-1.2" in refusal(repository, store, "relase-1.2").hint
    assert refusal(repository, store, "feature").hint == "Did you mean origin/feature?"


def test_a_broken_git_configuration_shows_gits_message(repository: Path, store: GitStore) -> None:
    (repository / ".git" / "config").write_text("[core\nrepositoryformatversion = 0\n")
    error = refusal(repository, store)
    assert (error.code, "bad config line 1" in error.message) == (ExitCode.UNSUPPORTED_REPOSITORY, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_another_users_repository_can_be_read(repository: Path, store: GitStore) -> None:
    for path in [repository, *repository.rglob("*")]:
        os.chown(path, 65_534, 65_534, follow_symlinks=False)
    assert inspect(repository, None, store).dirty == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_entered(repository: Path, store: GitStore) -> None:
    repository.chmod(0)
    try:
        assert refusal(repository, store).code == ExitCode.NOT_A_REPOSITORY
    finally:
        repository.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_repository_that_refuses_branches_is_reported(repository: Path, store: GitStore) -> None:
    (repository / ".git" / "objects").chmod(0o500)
    try:
        error = refusal(repository, store)
        assert (error.code, "cannot be written" in error.message) == (ExitCode.UNSUPPORTED_REPOSITORY, True)
    finally:
        (repository / ".git" / "objects").chmod(0o700)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Crash when the file is empty", "crash-when-the-file-is-empty"),
        ("Größe wird nicht übernommen!", "grosse-wird-nicht-ubernommen"),
        ("don't drop `--flag` (v2.0)", "dont-drop-flag-v2-0"),
        ("修正", "issue"),
        ("", "issue"),
        ("../../etc/passwd; rm -rf $(id) @{-1} .lock", "etc-passwd-rm-rf-id-1-lock"),
        ("x" * 100, "x" * 40),
        ("a very long title that has to be cut somewhere sensible please", "a-very-long-title-that-has-to-be-cut"),
        ("refs/heads/main\n::set-output", "refs-heads-main-set-output"),
        ("\u202egnp.exe", "gnp-exe"),
    ],
)
def test_slug(title: str, expected: str) -> None:
    assert slug(title) == expected


@given(st.text())
def test_a_slug_is_always_safe(title: str) -> None:
    name = slug(title)
    assert 1 <= len(name) <= 40
    assert name.replace("-", "").isalnum()
    assert name.isascii()
    assert name == name.lower().strip("-")


def test_a_state_directory_inside_the_repository_is_reported(tmp_path: Path) -> None:
    assert note_about(tmp_path / "repo" / "out", tmp_path / "repo").endswith("git will show it as untracked.")
    assert note_about(tmp_path / "out", tmp_path / "repo") == ""
