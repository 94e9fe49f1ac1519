"""Commits travel through the database whole or not at all, from one store to another, on both databases."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.jobs.commit_transfer import (
    ABANDONED,
    CHUNK,
    MAX_FAILURES,
    MAX_LOG_SIZE,
    CommitTransfer,
    CommitTransferError,
    WantedCommit,
)
from app.jobs.tables import metadata, transfer_chunks, transfers
from app.repo.git_command import Git
from app.repo.git_store import GitError, GitStore, log
from app.repo.index.ranking import read_log
from tests.support.clock import START, SettableClock
from tests.support.databases import DIALECTS, database
from tests.support.repositories import commit_files, git, make_repository

REPOSITORY = 5_000_000_000
BOT = Person(name="agent-fix", email="agent-fix@users.noreply.example")


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=DIALECTS)
def post(request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock) -> Iterator[CommitTransfer]:
    with database(request.param, tmp_path) as engine:
        metadata.create_all(engine)
        yield CommitTransfer(engine, clock)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two commits, the second with a file of two and a half chunks that no zip makes smaller."""
    made = make_repository(tmp_path / "source", {"README.md": "# Sample\n", "gone.txt": "x\n"})
    (made / "gone.txt").unlink()
    commit_files(made, {"large.bin": os.urandom(CHUNK * 5 // 2), "app/main.py": "print('hello')\n"})
    return made


@pytest.fixture
def ours(tmp_path: Path, source: Path) -> GitStore:
    """The publisher's store."""
    made = GitStore(tmp_path / "publisher" / "mirror.git")
    made.ensure()
    return made


@pytest.fixture
def theirs(tmp_path: Path) -> GitStore:
    """The store of a worker on another machine; nothing is there, not even its directory."""
    return GitStore(tmp_path / "worker" / "mirror.git")


@pytest.fixture
def commit(ours: GitStore, source: Path) -> str:
    return ours.fetch(source, "HEAD")


def kept_chunks(post: CommitTransfer) -> int:
    with post.engine.connect() as db:
        return db.scalar(sa.select(sa.func.count()).select_from(transfer_chunks)) or 0


def test_transferred_commit_is_unchanged(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, source: Path, commit: str
) -> None:
    assert not post.unpack_into(theirs, REPOSITORY, commit)
    post.request(REPOSITORY, commit)
    assert post.requested() == [WantedCommit(REPOSITORY, commit, START)]
    assert not post.unpack_into(theirs, REPOSITORY, commit)
    post.fill(REPOSITORY, commit, ours.pack(commit))
    assert post.requested() == []
    assert kept_chunks(post) == 3
    assert post.unpack_into(theirs, REPOSITORY, commit)
    assert theirs.keeps(commit)
    assert theirs.tree(commit).read("large.bin") == (source / "large.bin").read_bytes()
    assert set(theirs.tree(commit).entries()) == {"README.md", "app/main.py", "large.bin"}
    assert git(theirs.path, "rev-list", "--count", commit) == "1", "without history"
    git(theirs.path, "fsck", "--strict")
    assert not list((theirs.path / "objects" / "pack").glob("tmp_*"))


def test_transferred_commit_can_be_built_on(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, source: Path, commit: str
) -> None:
    post.fill(REPOSITORY, commit, ours.pack(commit))
    post.unpack_into(theirs, REPOSITORY, commit)
    change = FileChange(path="app/main.py", mode="100644", content=b"print('fixed')\n")
    patch = Patch(base=commit, changes=(change,))
    assert theirs.commit(patch, message="Fix\n", author=BOT, date=START) == (
        ours.commit(patch, message="Fix\n", author=BOT, date=START)
    )
    assert theirs.fetch(source, "HEAD~1") == git(source, "rev-parse", "HEAD~1"), "git accepts what we wrote beside it"
    newer = commit_files(source, {"more.txt": "more\n"})
    post.fill(REPOSITORY, newer, ours.pack(ours.fetch(source, newer)))
    assert post.unpack_into(theirs, REPOSITORY, newer)
    assert theirs.fetch(Path("/nowhere"), newer) == newer
    git(theirs.path, "fsck", "--strict", "--no-dangling")


def test_own_commit_is_packed_without_its_base(ours: GitStore, theirs: GitStore, commit: str) -> None:
    change = FileChange(path="new.txt", mode="100644", content=b"new\n")
    made = ours.commit(Patch(base=commit, changes=(change,)), message="m\n", author=BOT, date=START)
    theirs.ensure()
    theirs.unpack(made, ours.pack(made))
    assert theirs.tree(made).read("new.txt") == b"new\n"
    assert not theirs.keeps(commit)
    theirs.unpack(commit, ours.pack(commit))
    theirs.unpack(commit, iter(()))
    assert git(theirs.path, "rev-list", "--count", commit) == "1"


def test_commit_log_is_transferred_with_the_commit(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, source: Path, commit: str
) -> None:
    told = log(Git("-C", str(source)), commit, 100)
    assert [change.subject for change in read_log(told)] == ["change"]
    post.fill(REPOSITORY, commit, ours.pack(commit), log=told)
    post.unpack_into(theirs, REPOSITORY, commit)
    assert theirs.log(commit, 100) == told
    newer = ours.fetch(source, commit_files(source, {"more.txt": "more\n"}))
    post.fill(REPOSITORY, newer, ours.pack(newer), log=b"x" * (MAX_LOG_SIZE + 1))
    assert post.unpack_into(theirs, REPOSITORY, newer)
    assert theirs.log(newer, 100) == b"", "a log that is too long is done without"
    assert theirs.fetch(source, "HEAD~2") == git(source, "rev-parse", "HEAD~2")
    git(theirs.path, "fsck", "--strict", "--no-dangling")


def test_commit_already_present_is_not_read_again(post: CommitTransfer, ours: GitStore, commit: str) -> None:
    post.refuse(REPOSITORY, commit, "no")
    assert post.unpack_into(ours, REPOSITORY, commit)


@pytest.mark.parametrize("cut", [0, 1, 30, 2 * CHUNK])
def test_an_incomplete_pack_is_rejected(ours: GitStore, theirs: GitStore, commit: str, cut: int) -> None:
    whole = b"".join(ours.pack(commit))
    theirs.ensure()
    with pytest.raises(GitError, match="index-pack"):
        theirs.unpack(commit, [whole[:cut]])
    assert not theirs.keeps(commit)
    theirs.unpack(commit, [whole])
    assert theirs.keeps(commit)


def test_pack_of_another_commit_is_rejected(ours: GitStore, theirs: GitStore, source: Path, commit: str) -> None:
    other = ours.fetch(source, "HEAD~1")
    theirs.ensure()
    with pytest.raises(GitError):
        theirs.unpack(commit, ours.pack(other))
    assert not theirs.keeps(commit)
    assert not (theirs.path / "shallow").exists()


def test_pack_with_a_missing_file_is_rejected(ours: GitStore, theirs: GitStore, commit: str) -> None:
    names = git(ours.path, "rev-list", "--objects", "--no-walk", commit).splitlines()
    lacking = [name for name in names if not name.endswith("main.py")]
    place = ours.path.parent / "lacking"
    git(ours.path, "pack-objects", "-q", str(place), stdin="\n".join([*lacking, ""]).encode())
    (pack,) = ours.path.parent.glob("lacking-*.pack")
    theirs.ensure()
    with pytest.raises(GitError, match="rev-list"):
        theirs.unpack(commit, [pack.read_bytes()])
    assert not theirs.keeps(commit)


def test_repeated_requests_count_once_and_the_oldest_comes_first(post: CommitTransfer, clock: SettableClock) -> None:
    first, second = "1" * 40, "2" * 40
    post.request(REPOSITORY, second)
    clock.passes(timedelta(minutes=1))
    post.request(7, first)
    clock.passes(timedelta(minutes=1))
    post.request(REPOSITORY, second)
    assert [(effect.repository, effect.commit) for effect in post.requested()] == [(REPOSITORY, second), (7, first)]
    assert len(post.requested(limit=1)) == 1


def test_same_commit_in_two_repositories_is_two_transfers(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str
) -> None:
    post.fill(1, commit, ours.pack(commit))
    assert not post.unpack_into(theirs, 2, commit), "who may read one repository may not read the other"


def test_aborted_upload_leaves_no_chunks(post: CommitTransfer, ours: GitStore, commit: str) -> None:
    def broken() -> Iterator[bytes]:
        yield next(ours.pack(commit))
        raise GitError("the disk is gone")

    post.request(REPOSITORY, commit)
    with pytest.raises(GitError, match="gone"):
        post.fill(REPOSITORY, commit, broken())
    assert kept_chunks(post) == 0
    assert len(post.requested()) == 1


def test_concurrent_uploads_of_a_commit_keep_one(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str
) -> None:
    post.request(REPOSITORY, commit)

    def overtaken() -> Iterator[bytes]:
        pieces = ours.pack(commit)
        yield next(pieces)
        post.fill(REPOSITORY, commit, ours.pack(commit))
        yield from pieces

    post.fill(REPOSITORY, commit, overtaken())
    assert kept_chunks(post) == 3
    assert post.unpack_into(theirs, REPOSITORY, commit)


def test_too_large_commit_is_refused_and_reported_to_the_worker(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str, clock: SettableClock
) -> None:
    small = CommitTransfer(post.engine, clock, largest=2 * CHUNK)
    small.request(REPOSITORY, commit)
    with pytest.raises(CommitTransferError, match=r"more than 0\.00195 GB"):
        small.fill(REPOSITORY, commit, ours.pack(commit))
    assert kept_chunks(post) == 0
    assert post.requested() == []
    with pytest.raises(CommitTransferError, match="too much to send") as caught:
        post.unpack_into(theirs, REPOSITORY, commit)
    assert "state directory" in caught.value.hint
    assert not post.unpack_into(theirs, REPOSITORY, commit), "the next job does not meet the old refusal"
    post.request(REPOSITORY, commit)
    assert [effect.commit for effect in post.requested()] == [commit], "asked for again, it is tried again"


@pytest.mark.parametrize("harm", ["lost", "changed"])
def test_a_damaged_transfer_is_requested_again_and_finally_refused(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str, harm: str
) -> None:
    for _ in range(MAX_FAILURES):
        post.fill(REPOSITORY, commit, ours.pack(commit))
        with post.engine.begin() as db:
            second = transfer_chunks.c.number == 1
            if harm == "lost":
                db.execute(transfer_chunks.delete().where(second))
            else:
                db.execute(transfer_chunks.update().where(second).values(content=b"x" * CHUNK))
        assert not post.unpack_into(theirs, REPOSITORY, commit)
        assert not theirs.keeps(commit)
        assert kept_chunks(post) == 0
    with pytest.raises(CommitTransferError, match="cannot be unpacked"):
        post.unpack_into(theirs, REPOSITORY, commit)


def test_unneeded_transfers_are_pruned(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str, clock: SettableClock
) -> None:
    change = FileChange(path="new.txt", mode="100644", content=b"new\n")
    old = ours.commit(Patch(base=commit, changes=(change,)), message="m\n", author=BOT, date=START)
    for each in (old, commit):
        post.fill(REPOSITORY, each, ours.pack(each))
    clock.passes(timedelta(days=2))
    post.unpack_into(theirs, REPOSITORY, commit)
    assert post.prune(timedelta(days=1)) == 1
    assert kept_chunks(post) == 3
    assert not post.unpack_into(theirs, REPOSITORY, old)
    with post.engine.connect() as db:
        assert [row.commit_id for row in db.execute(transfers.select())] == [commit]


def test_chunks_of_a_dead_publisher_are_pruned_but_not_of_a_slow_one(
    post: CommitTransfer, ours: GitStore, commit: str, clock: SettableClock
) -> None:
    def slow() -> Iterator[bytes]:
        for piece in ours.pack(commit):
            clock.passes(ABANDONED - timedelta(seconds=1))
            assert post.prune(timedelta(days=9)) == 0
            yield piece

    dead = {"pack": "f", "number": 0, "content": b"x", "written_at": START.timestamp()}
    with post.engine.begin() as db:
        db.execute(transfer_chunks.insert().values(dead))
    post.fill(REPOSITORY, commit, slow())
    assert kept_chunks(post) == 3


def test_a_transfer_removed_while_it_is_read_counts_as_missing(
    post: CommitTransfer, ours: GitStore, theirs: GitStore, commit: str, clock: SettableClock
) -> None:
    post.fill(REPOSITORY, commit, ours.pack(commit))

    class Pruning(GitStore):
        def unpack(self, commit: str, pieces: object) -> None:
            assert isinstance(pieces, Iterator)
            first = next(pieces)
            clock.passes(timedelta(days=9))
            assert post.prune(timedelta(days=1)) == 1
            super().unpack(commit, [first, *pieces])

    assert not post.unpack_into(Pruning(theirs.path), REPOSITORY, commit)
    assert not theirs.keeps(commit)
    assert post.requested() == []
