"""Commits over real git and HTTP: heads of forks, history without files, and nothing asked that is there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.repo.git_command import Git, GitError, identity_variables
from app.repo.git_store import GitStore
from app.repo.index.ranking import CommitChange, read_log
from app.repo.remote import HISTORY_SPAN, Remote, RemoteError, branch_tips, fetch, fetch_history, push
from tests.support.loopback import git_over_http, listening, serving
from tests.support.repositories import commit_files, git, make_repository

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.example")
WHEN = datetime(2026, 11, 3, tzinfo=UTC)
BEGAN = datetime(2023, 11, 14, tzinfo=UTC)
LONG_AGO = datetime(2023, 1, 1, tzinfo=UTC)
PULL = "refs/pull/7/head"


class Forge:
    """One repository that everybody may read and write, and what was asked of it."""

    def __init__(self, directory: Path) -> None:
        self.work = make_repository(directory / "work", {"README.md": "# Sample\n", "app/main.py": "print('hello')\n"})
        self.path = directory / "forge.git"
        git(directory, "clone", "-q", "--bare", "--template=", str(self.work), str(self.path))
        git(self.path, "config", "http.receivepack", "true")
        git(self.path, "config", "uploadpack.allowFilter", "true")
        self.asked: list[str] = []
        self.protocol = "version=2"
        self.only_by = ""
        """A ref without whose name no commit is given."""

    def app(self) -> Starlette:
        async def answer(request: Request) -> Response:
            self.asked.append(request.path_params["rest"])
            if self._refuses(await request.body()):
                return Response(
                    b"0025ERR upload-pack: not our ref 1234", media_type="application/x-git-upload-pack-result"
                )
            if not self.protocol:
                request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"git-protocol"]
            return await git_over_http(request, self.path, request.path_params["rest"])

        return Starlette(routes=[Route("/ada/sample.git/{rest:path}", answer, methods=["GET", "POST"])])

    def _refuses(self, body: bytes) -> bool:
        if self.only_by.encode() in body:
            self.only_by = ""
        return bool(self.only_by) and b"command=fetch" in body

    def push(self, ref: str, commit: str) -> str:
        git(self.work, "push", "-q", "-f", str(self.path), f"{commit}:{ref}")
        return commit


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path)


@pytest.fixture
def remote(forge: Forge) -> Iterator[Remote]:
    with listening() as listener, serving(forge.app(), listener) as address:
        yield Remote(f"{address}/ada/sample.git", "token")


@pytest.fixture
def store(tmp_path: Path) -> GitStore:
    made = GitStore(tmp_path / "state" / "mirror.git")
    made.ensure()
    return made


def test_a_commit_is_fetched_once_with_its_files(forge: Forge, remote: Remote, store: GitStore) -> None:
    commit = forge.push("refs/heads/main", commit_files(forge.work, {"new.txt": "new\n"}))
    fetch(store, remote, commit, ref="refs/heads/main")
    assert store.tree(commit).read("new.txt") == b"new\n"
    assert git(store.path, "rev-list", "--count", commit) == "1"
    forge.asked.clear()
    fetch(store, remote, commit, ref="refs/heads/main")
    assert forge.asked == [], "nothing is asked where it is there"


def test_several_processes_fetch_at_once(forge: Forge, remote: Remote, store: GitStore) -> None:
    commits = [commit_files(forge.work, {f"{number}.txt": "x\n"}) for number in range(5)]
    forge.push("refs/heads/main", commits[-1])
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda commit: fetch(GitStore(store.path), remote, commit), commits * 2))
    assert [len(store.tree(commit).entries()) for commit in commits] == [3, 4, 5, 6, 7]
    git(store.path, "fsck", "--strict")


def test_the_head_of_a_fork_comes_by_its_ref(forge: Forge, remote: Remote, store: GitStore) -> None:
    head = forge.push(PULL, commit_files(forge.work, {"fork.txt": "theirs\n"}))
    forge.only_by = PULL
    with pytest.raises(RemoteError, match="not our ref"):
        fetch(store, remote, head)
    assert not store.keeps(head)
    fetch(store, remote, head, ref=PULL)
    assert store.tree(head).read("fork.txt") == b"theirs\n"
    assert git(store.path, "for-each-ref", "--format=%(refname)") == f"refs/agent-fix/base/{head}"


def test_an_old_server_gives_only_what_a_ref_shows(forge: Forge, remote: Remote, store: GitStore) -> None:
    forge.protocol = ""
    earlier = commit_files(forge.work, {"fork.txt": "1\n"})
    tip = forge.push(PULL, commit_files(forge.work, {"fork.txt": "2\n"}))
    with pytest.raises(RemoteError, match=f"has moved to {tip}"):
        fetch(store, remote, earlier, ref=PULL)
    fetch(store, remote, tip, ref=PULL)
    assert store.tree(tip).read("fork.txt") == b"2\n"


def test_a_moved_ref_gives_no_other_commit(forge: Forge, remote: Remote, store: GitStore) -> None:
    head = commit_files(forge.work, {"fork.txt": "theirs\n"})
    git(forge.work, "commit", "-q", "--amend", "-m", "forced")
    tip = forge.push(PULL, git(forge.work, "rev-parse", "HEAD"))
    with pytest.raises(RemoteError, match=f"{PULL} has moved to {tip}"):
        fetch(store, remote, head, ref=PULL)
    assert git(store.path, "for-each-ref") == ""
    assert not store.keeps(head)
    assert not store.keeps(tip), "it was not asked for by anybody"


def test_git_reaches_the_remote_through_the_operators_proxy(forge: Forge, store: GitStore) -> None:
    commit = git(forge.work, "rev-parse", "HEAD")
    with listening() as listener, serving(forge.app(), listener) as proxy:
        remote = Remote("http://forge.invalid/ada/sample.git", "token", {"http_proxy": proxy})
        fetch(store, remote, commit)
        assert store.keeps(commit)
        assert push(store, remote, "topic", commit, expected=None).refused == ""
        assert branch_tips(store, remote, "topic") == {"topic": commit}
    assert set(forge.asked) == {"info/refs", "git-upload-pack", "git-receive-pack"}


REFS = ("--upload-pack=touch x", "main", "+x/y", "refs/pull/7/head:refs/heads/main", "refs/../x", "refs/*", "refs/a b")


@pytest.mark.parametrize("ref", REFS)
def test_a_ref_is_a_ref(forge: Forge, remote: Remote, store: GitStore, ref: str) -> None:
    with pytest.raises((ValueError, GitError), match=r"full name of a ref|check-ref-format"):
        fetch(store, remote, "1" * 40, ref=ref)
    assert forge.asked == []


def test_our_ref_with_a_different_commit_is_not_trusted(forge: Forge, remote: Remote, store: GitStore) -> None:
    first = git(forge.work, "rev-parse", "HEAD")
    fetch(store, remote, first)
    commit = forge.push("refs/heads/main", commit_files(forge.work, {"new.txt": "new\n"}))
    git(store.path, "update-ref", f"refs/agent-fix/base/{commit}", first)
    fetch(store, remote, commit)
    assert store.tree(commit).read("new.txt") == b"new\n"


def test_leftovers_of_a_killed_fetch_do_not_block_the_next(forge: Forge, remote: Remote, store: GitStore) -> None:
    commit = git(forge.work, "rev-parse", "HEAD")
    pack = store.path / "objects" / "pack" / "tmp_pack_x"
    (store.path / "refs" / "agent-fix" / "base").mkdir(parents=True)
    for left in (pack, store.path / "shallow.lock", store.path / "refs" / "agent-fix" / "base" / f"{commit}.lock"):
        left.write_text("")
    fetch(store, remote, commit)
    assert store.keeps(commit)
    assert not pack.exists()


def test_the_lock_stays_held_until_a_dead_processs_git_has_ended(store: GitStore) -> None:
    """The lock is let go here as it is in a kill, while a git that holds it lives: it is told to end by its input."""
    import fcntl
    import subprocess

    with store.lock("fetch") as held:
        orphan = subprocess.Popen(["git", "hash-object", "--stdin"], stdin=subprocess.PIPE, pass_fds=(held,))
    with (store.path.parent / ".mirror.git.fetch.lock").open("w") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        orphan.communicate(b"")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_git_holds_the_lock_that_it_is_given(store: GitStore) -> None:
    with store.lock("fetch") as held:
        listing = Git("-c", f"alias.fds=!readlink /proc/self/fd/{held}").text
        status, output, _ = Git("-c", f"alias.fds=!readlink /proc/self/fd/{held}").attempt("fds", holding=held)
        assert (status, output.decode().strip()) == (0, str(store.path.parent / ".mirror.git.fetch.lock"))
        with pytest.raises(GitError):
            listing("fds")


def past(forge: Forge, count: int) -> list[str]:
    """Commits on `main`, a day apart."""
    made: list[str] = []
    for number in range(count):
        commit_files(forge.work, {f"src{number}.py": f"{number}\n" * 5_000})
        tree, parent = git(forge.work, "rev-parse", "HEAD^{tree}", made[-1] if made else "HEAD~").split()
        dated = identity_variables(BOT, BEGAN + timedelta(days=number))
        words = ("commit-tree", tree, "-p", parent, "-m", f"Fix number {number}")
        made.append(Git("-C", str(forge.work))(*words, env=dated).decode().strip())
    forge.push("refs/heads/main", made[-1])
    return made


def test_history_comes_without_a_single_file_and_beside_the_store(
    forge: Forge, remote: Remote, store: GitStore
) -> None:
    *_, newest = past(forge, 5)
    before = sorted(path for path in store.path.rglob("*") if path.is_file())
    assert store.log(newest, 100) == b""
    assert fetch_history(store, remote, newest, since=LONG_AGO)
    changes = list(read_log(store.log(newest, 100)))
    assert changes[:2] == [CommitChange("Fix number 4", ("src4.py",)), CommitChange("Fix number 3", ("src3.py",))]
    assert len(changes) == 5, "what the first commit of all brought says nothing"
    assert len(list(read_log(store.log(newest, 2)))) == 2
    kinds = git(store.history.path, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
    assert set(kinds) == {"commit", "tree"}
    assert sorted(path for path in store.path.rglob("*") if path.is_file()) == before, "the store is as it was"
    forge.asked.clear()
    assert fetch_history(store, remote, newest, since=LONG_AGO)
    assert forge.asked == []
    fetch(store, remote, newest)
    assert store.tree(newest).read("src4.py").startswith(b"4\n")


def test_history_is_cut_by_its_date(forge: Forge, remote: Remote, store: GitStore) -> None:
    *_, newest = past(forge, 6)
    assert fetch_history(store, remote, newest, since=BEGAN + timedelta(days=2))
    subjects = [change.subject for change in read_log(store.log(newest, 100))]
    assert subjects == ["Fix number 5", "Fix number 4", "Fix number 3"], "of the one where it is cut nothing is known"


def test_history_begins_two_years_before_the_commit(forge: Forge, remote: Remote, store: GitStore) -> None:
    *_, newest = past(forge, 3)
    date = identity_variables(BOT, BEGAN + HISTORY_SPAN + timedelta(days=1))
    words = ("commit-tree", f"{newest}^{{tree}}", "-p", newest, "-m", "Much later")
    later = forge.push("refs/heads/main", Git("-C", str(forge.work))(*words, env=date).decode().strip())
    fetch(store, remote, later)
    assert store.date(later) == BEGAN + HISTORY_SPAN + timedelta(days=1)
    assert fetch_history(store, remote, later)
    assert git(store.history.path, "log", "--format=%s", later).splitlines() == [
        *("Much later", "Fix number 2", "Fix number 1")
    ]


def test_history_that_cannot_be_had_is_done_without(forge: Forge, remote: Remote, store: GitStore) -> None:
    newest = forge.push("refs/heads/main", commit_files(forge.work, {"new.txt": "new\n"}))
    assert not fetch_history(store, remote, "1" * 40, since=LONG_AGO)
    assert not fetch_history(store, remote, newest, since=datetime(2027, 1, 1, tzinfo=UTC)), "all of it is older"
    assert store.log(newest, 100) == b""


def test_a_merge_of_two_shallow_commits_is_pushed(forge: Forge, remote: Remote, store: GitStore) -> None:
    """Its second parent is no tip of the forge by then: the forge has it all the same."""
    base = git(forge.work, "rev-parse", "HEAD")
    theirs = forge.push("refs/heads/main", commit_files(forge.work, {"theirs.txt": "1\n"}))
    git(forge.work, "checkout", "-q", "--detach", base)
    ours = forge.push("refs/heads/topic", commit_files(forge.work, {"ours.txt": "1\n"}))
    for commit in (ours, theirs):
        fetch(store, remote, commit)
    change = FileChange(path="theirs.txt", mode="100644", content=b"1\n")
    patch = Patch(base=ours, changes=(change,))
    merged = store.commit(patch, message="Merge\n", author=BOT, date=WHEN, parents=(ours, theirs))
    git(forge.work, "checkout", "-q", "--detach", theirs)
    forge.push("refs/heads/main", commit_files(forge.work, {"later.txt": "1\n"}))
    assert push(store, remote, "topic", merged, expected=ours).refused == ""
    assert git(forge.path, "log", "-1", "--format=%P", "topic") == f"{ours} {theirs}"
    git(forge.path, "fsck", "--strict")
    assert not (forge.path / "shallow").exists()
