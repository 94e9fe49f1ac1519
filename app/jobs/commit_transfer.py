"""Sends a base commit from the publisher to a worker on another machine, as packed chunks in the database.

    worker ─request─► wanted ─fill (publisher)─► there ─unpack_into─► the worker's own store
                        ▲                         │ damaged: requested again, three times
                        └─────────────────────────┘ too large, or three times not packed: refused, with the reason

Chunks are written one by one, so that nobody waits for two gigabytes to be committed. They become valid when the
commit's row refers to them. Chunks left behind by a killed publisher are never valid and are pruned.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.jobs.tables import insert_into, transfer_chunks, transfers, writing
from app.repo.git_store import GitError, GitStore

CHUNK: Final = 1 << 20
LARGEST: Final = 2 << 30
MAX_LOG_SIZE: Final = 4 << 20
MAX_FAILURES: Final = 3
PACK_AGAIN_AFTER: Final = timedelta(minutes=1)
"""git may only have been killed for lack of memory."""
ABANDONED: Final = timedelta(minutes=15)
"""Chunks that no commit refers to are deleted once their pack has not grown for this long."""


class CommitTransferError(AgentFixError):
    """A commit cannot be brought to this machine; the message says why."""

    exit_code = ExitCode.UNSUPPORTED_REPOSITORY


class _DamagedError(Exception):
    """The chunks differ from what was written; handled within this module."""


@dataclass(frozen=True, slots=True)
class WantedCommit:
    """A commit that a worker is waiting for."""

    repository: int
    commit: str
    since: datetime


class CommitTransfer:
    """Requests for packed commits, in short transactions on SQLite or Postgres, from any number of processes.

    Repositories are identified by GitHub's ids.
    """

    def __init__(self, engine: Engine, clock: Callable[[], datetime], *, largest: int = LARGEST) -> None:
        self.engine = engine
        self._clock = clock
        self._largest = largest

    def request(self, repository: int, commit: str) -> None:
        """Request a commit, or renew the request."""
        now = self._now()
        with writing(self.engine) as db:
            _insert(db, repository, commit, now)
            db.execute(transfers.update().where(_is(repository, commit)).values(used_at=now))

    def requested(self, limit: int = 100) -> list[WantedCommit]:
        """Requests that nobody has filled yet, oldest first; not those that could not be packed just now."""
        due = (transfers.c.state == "wanted", transfers.c.requested_at <= self._now())
        query = transfers.select().where(*due).order_by(transfers.c.requested_at).limit(limit)
        with self.engine.connect() as db:
            rows = db.execute(query).mappings().all()
        return [WantedCommit(row["repository"], row["commit_id"], moment(row["requested_at"])) for row in rows]

    def fill(self, repository: int, commit: str, chunks: Iterable[bytes], *, log: bytes = b"") -> None:
        """Store the output of `GitStore.pack` completely or not at all.

        Raises CommitTransferError and marks the request refused if the pack is too large. `log` is stored with it if
        the publisher has the commit's history (`GitStore.log`).
        """
        pack, complete = uuid4().hex, False
        try:
            count, digest = self._write(pack, commit, chunks)
            failpoint("transfer.written")
            stored_log = log if len(log) <= MAX_LOG_SIZE else None
            values = {"pack": pack, "chunks": count, "digest": digest, "log": stored_log}
            complete = self._close(repository, commit, values)
        except CommitTransferError as error:
            self.refuse(repository, commit, error.message, error.hint)
            raise
        finally:
            if not complete:
                self._forget(pack)

    def refuse(self, repository: int, commit: str, reason: str, hint: str = "") -> None:
        """Refuse a request, with a reason for whoever waits for the commit."""
        text = f"{reason}\n{hint}" if hint else reason
        with writing(self.engine) as db:
            _insert(db, repository, commit, self._now())
            waiting = transfers.update().where(_is(repository, commit), transfers.c.state == "wanted")
            db.execute(waiting.values(state="refused", reason=text))

    def pack_failed(self, repository: int, commit: str, reason: str) -> None:
        """Have a commit that could not be packed packed again later; after MAX_FAILURES it is refused instead."""
        later = {"failures": transfers.c.failures + 1, "requested_at": self._now() + PACK_AGAIN_AFTER.total_seconds()}
        waiting = transfers.update().where(_is(repository, commit), transfers.c.state == "wanted")
        with writing(self.engine) as db:
            failures = db.execute(waiting.values(later).returning(transfers.c.failures)).scalar() or 0
        if failures >= MAX_FAILURES:
            self.refuse(repository, commit, reason)

    def unpack_into(self, store: GitStore, repository: int, commit: str) -> bool:
        """Unpack a transferred commit into the store; False if it has not arrived and must be requested.

        Raises CommitTransferError if the request was refused, and forgets that: the next request is a new one.
        """
        store.ensure()
        if store.keeps(commit):
            return True
        this = _is(repository, commit)
        with writing(self.engine) as db:
            refused = transfers.delete().where(this, transfers.c.state == "refused").returning(transfers.c.reason)
            refusal = db.execute(refused).scalar()
            query = transfers.update().where(this).values(used_at=self._now()).returning(transfers)
            row = db.execute(query).mappings().first()
        if refusal is not None:
            reason, _, hint = refusal.partition("\n")
            raise CommitTransferError(reason, hint=hint)
        if row is None or row["state"] != "there":
            return False
        try:
            store.unpack(commit, self._read(row["pack"], row["chunks"], row["digest"]))
            if row["log"]:
                store.keep_log(commit, bytes(row["log"]))
        except (_DamagedError, GitError) as error:
            self._ask_again(row, str(error))
            return False
        return True

    def prune(self, older_than: timedelta) -> int:
        """Delete commits that nobody requested for that long, and invalid chunks; return the number of commits."""
        now = self._now()
        with writing(self.engine) as db:
            old = transfers.c.used_at < now - older_than.total_seconds()
            deleted = db.execute(transfers.delete().where(old)).rowcount
            newest = sa.func.max(transfer_chunks.c.written_at)
            counting = sa.select(transfers.c.pack)
            loose = sa.select(transfer_chunks.c.pack).where(transfer_chunks.c.pack.not_in(counting))
            dead = loose.group_by(transfer_chunks.c.pack).having(newest < now - ABANDONED.total_seconds())
            db.execute(transfer_chunks.delete().where(transfer_chunks.c.pack.in_(dead)))
        return deleted

    def _now(self) -> float:
        return self._clock().timestamp()

    def _write(self, pack: str, commit: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the chunks; return how many there are and their common digest."""
        digest, size, count = hashlib.sha256(), 0, 0
        for chunk in _cut(chunks):
            size += len(chunk)
            if size > self._largest:
                raise _too_large(commit, self._largest)
            digest.update(chunk)
            row = {"pack": pack, "number": count, "content": chunk, "written_at": self._now()}
            with writing(self.engine) as db:
                db.execute(transfer_chunks.insert().values(row))
            count += 1
            failpoint("transfer.chunk")
        return count, digest.hexdigest()

    def _close(self, repository: int, commit: str, values: dict[str, object]) -> bool:
        """Make these chunks the valid ones; False if another process's chunks already are."""
        with writing(self.engine) as db:
            _insert(db, repository, commit, self._now())
            waiting = transfers.update().where(_is(repository, commit), transfers.c.state != "there")
            return db.execute(waiting.values(state="there", reason="", used_at=self._now(), **values)).rowcount == 1

    def _forget(self, pack: str) -> None:
        with writing(self.engine) as db:
            db.execute(transfer_chunks.delete().where(transfer_chunks.c.pack == pack))

    def _read(self, pack: str, count: int, digest: str) -> Iterator[bytes]:
        received = hashlib.sha256()
        for number in range(count):
            this = (transfer_chunks.c.pack == pack) & (transfer_chunks.c.number == number)
            with self.engine.connect() as db:
                chunk = db.scalar(sa.select(transfer_chunks.c.content).where(this))
            if chunk is None:
                raise _DamagedError("a part of it is missing")
            received.update(chunk)
            yield bytes(chunk)
        if received.hexdigest() != digest:
            raise _DamagedError("it is not what was written")

    def _ask_again(self, row: sa.RowMapping, error: str) -> None:
        """Request a damaged commit again; another process may have done so, or pruned the row."""
        failures = row["failures"] + 1
        again: dict[str, object] = {"state": "wanted", "pack": "", "failures": failures, "requested_at": self._now()}
        if failures >= MAX_FAILURES:
            again |= {"state": "refused", "reason": f"Commit {row['commit_id'][:12]} cannot be unpacked: {error}."}
        same = _is(row["repository"], row["commit_id"]) & (transfers.c.pack == row["pack"])
        with writing(self.engine) as db:
            if db.execute(transfers.update().where(same).values(again)).rowcount:
                db.execute(transfer_chunks.delete().where(transfer_chunks.c.pack == row["pack"]))


def _is(repository: int, commit: str) -> sa.ColumnElement[bool]:
    return (transfers.c.repository == repository) & (transfers.c.commit_id == commit)


def _insert(db: Connection, repository: int, commit: str, now: float) -> None:
    """Insert a request unless there is a row."""
    row = {"repository": repository, "commit_id": commit, "state": "wanted", "requested_at": now, "used_at": now}
    db.execute(insert_into(db, transfers).values(row).on_conflict_do_nothing())


def _cut(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split the same bytes into pieces of at most a megabyte."""
    for chunk in chunks:
        for start in range(0, len(chunk), CHUNK):
            yield chunk[start : start + CHUNK]


def _too_large(commit: str, largest: int) -> CommitTransferError:
    return CommitTransferError(
        f"The files of commit {commit[:12]} take more than {largest / (1 << 30):.3g} GB packed: too much to send.",
        hint="Let a worker on the publisher's machine, with the same state directory, work on this repository.",
    )
