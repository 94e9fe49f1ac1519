"""Caches file features between jobs, by blob id, in one SQLite file that may be deleted at any time."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from app.repo.index.features import VERSION, FileFeatures, pack, unpack

_MAX_BYTES = 1 << 30
"""A cache that has grown beyond this is begun anew."""
_KEYS_PER_QUERY = 500


class FeatureStore:
    """A cache only: whatever is wrong with the file, it returns fewer features and never raises."""

    def __init__(self, directory: Path, *, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self._path = directory / f"features-{VERSION}.sqlite3"

    def load(self, keys: Iterable[str]) -> dict[str, FileFeatures]:
        """The features stored under these keys."""
        if not self._path.is_file():
            return {}
        try:
            with closing(self._connect()) as connection:
                return _read(connection, list(keys))
        except sqlite3.DatabaseError as error:
            self._forget_if_damaged(error)
            return {}

    def save(self, found: Mapping[str, FileFeatures]) -> None:
        """Store features in one transaction, so that a crash stores none of them."""
        if not found:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.is_file() and self._path.stat().st_size > _MAX_BYTES:
                self._forget()
            with closing(self._connect()) as connection, connection:
                connection.execute("CREATE TABLE IF NOT EXISTS blob (key TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID")
                rows = ((key, pack(features)) for key, features in found.items())
                connection.executemany("INSERT OR REPLACE INTO blob VALUES (?, ?)", rows)
        except sqlite3.DatabaseError as error:
            self._forget_if_damaged(error)
        except OSError:
            return  # a full or read-only disk only makes the next start slower

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def _forget_if_damaged(self, error: sqlite3.DatabaseError) -> None:
        """Delete a damaged file. Locked, full and read-only are `OperationalError` and pass by themselves."""
        if not isinstance(error, sqlite3.OperationalError):
            self._forget()

    def _forget(self) -> None:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _read(connection: sqlite3.Connection, keys: list[str]) -> dict[str, FileFeatures]:
    found = {}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT key, record FROM blob WHERE key IN ({marks})", some)  # noqa: S608 - only marks
        for key, record in rows:
            with suppress(ValueError):
                found[key] = unpack(record)
    return found
