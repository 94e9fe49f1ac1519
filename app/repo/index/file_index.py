"""The index of one commit: every file with its features, read again only for blobs not seen before."""

import re
import sqlite3
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from app.core.patch import Tree, TreeEntry
from app.core.text import words
from app.repo.index.terms import count_terms, identifiers
from app.repo.syntax import language_of, symbols

_TEST_FOLDERS = words("test tests testing __tests__ __mocks__ spec specs testdata testcases fixture fixtures e2e")
_TEST_NAME = re.compile(
    r"test_.*|conftest\.py|.*_tests?\.[a-z]+|.*[.-](test|spec)(-d)?\.[a-z]+|.*Tests?\.(java|kt|cs|scala)|.*_spec\.rb|tests?\.[a-z]+"
)
_UNLIKELY_FOLDERS = words("""
    doc docs documentation example examples tutorial tutorials gallery galleries sample samples demo demos benchmark
    benchmarks bench asv_bench script scripts tool tools vendor vendored _vendor third_party third-party thirdparty
    node_modules extern external externals dist build locale locales static
""")
_UNLIKELY_NAME = re.compile(
    r".*\.min\..*|.*\.d\.[cm]?ts|.*\.pyi|(setup|setupext|noxfile|versioneer|fabfile)\.py|.*\.config\.[cm]?[jt]s"
    r"|(gulp|grunt)file\.js|build\.rs"
)
"""Minified code, declarations, and what only builds the project."""
_OTHER_CODE = words("""
    php cs kt kts swift scala m mm pyx pxd vue svelte lua pl pm ex exs erl hs ml clj dart r jl zig f90 groovy
""")
"""Suffixes of languages that we have no grammar of: words only, but a place for a fix all the same."""
_ROOT_STEMS = frozenset(("__init__", "__main__", "index", "mod", "main", "lib"))


@lru_cache(maxsize=100_000)
def is_test(path: str) -> bool:
    *folders, name = path.split("/")
    if is_test_name(name):
        return True
    test_folders = _TEST_FOLDERS.intersection(map(str.lower, folders))
    if name.endswith(".py"):
        test_folders -= {"test", "testing"}  # in Python the singular is often a package of test helpers
    return bool(test_folders)


def is_test_name(path: str) -> bool:
    return _TEST_NAME.fullmatch(path.rpartition("/")[2]) is not None


@lru_cache(maxsize=100_000)
def is_unlikely_place(path: str) -> bool:
    """True if a fix rarely goes there: documentation, examples, tools, declarations, vendored or generated code."""
    *folders, name = path.lower().split("/")
    return bool(_UNLIKELY_NAME.fullmatch(name)) or not (_UNLIKELY_FOLDERS | _TEST_FOLDERS).isdisjoint(folders)


def is_code(path: str) -> bool:
    return language_of(path) is not None or path.rpartition(".")[2].lower() in _OTHER_CODE


def is_source(path: str) -> bool:
    return is_code(path) and not is_test(path)


def stem(path: str) -> str:
    """The name a file is known by: `http/__init__.py` is http, `.travis.yml` is itself."""
    pure = PurePosixPath(path)
    name = pure.name if pure.name.startswith(".") else pure.name.partition(".")[0]
    return pure.parent.name if name in _ROOT_STEMS and pure.parent.name else name


def module_names(path: str) -> Iterator[str]:
    """The dotted names that a source file may have, longest first: `src/a/b.py` is a.b, and b."""
    pure = PurePosixPath(path)
    parts = [*pure.parent.parts, pure.name.partition(".")[0]]
    if parts[-1] in _ROOT_STEMS:
        parts.pop()
    parts = [part for part in parts if part not in {"src", "lib"}] or parts
    for start in range(len(parts)):
        yield ".".join(parts[start:])


VERSION = 1
"""Raise it with any change to what is kept or how words become terms: older caches are then ignored."""

MAX_SOURCE_BYTES = 500_000
MAX_PROSE_BYTES = 100_000
"""For files that are not code: a larger one is data, whose words say nothing about its purpose."""

_HEAD = struct.Struct("=IIII")
_MAX_COUNT = 0xFFFF


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Term ids in rising order with their counts: a dictionary at a tenth of its size."""

    ids: "array[int]"
    numbers: "array[int]"

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> "TermCounts":
        ordered = sorted(counts)
        return cls(array("I", ordered), array("H", [min(counts[each], _MAX_COUNT) for each in ordered]))

    def among(self, wanted: set[int]) -> Iterator[tuple[int, int]]:
        """Yield (term id, count) for the wanted terms that occur."""
        for term in wanted.intersection(self.ids):
            yield term, self.numbers[bisect_left(self.ids, term)]


@dataclass(frozen=True, slots=True)
class FileFeatures:
    """`length` is the number of terms in the text; `names` are the names that the file defines, in order."""

    length: int
    text: TermCounts
    defined: TermCounts
    names: tuple[str, ...]


EMPTY = FileFeatures(0, TermCounts.of({}), TermCounts.of({}), ())


def features_of(path: str, content: bytes) -> FileFeatures:
    """Extract a file's words and definitions; empty for binary files."""
    if b"\0" in content[:8_000]:
        return EMPTY
    counts = count_terms(identifiers(content.decode("utf-8", "replace")))
    names = tuple(dict.fromkeys(symbol.name for symbol in symbols(path, content)))
    return FileFeatures(sum(counts.values()), TermCounts.of(counts), TermCounts.of(count_terms(names)), names)


def pack(features: FileFeatures) -> bytes:
    """Compressed, in this machine's byte order; the checksum and the lengths show a record that is not ours."""
    parts = [features.text.ids, features.text.numbers, features.defined.ids, features.defined.numbers]
    names = "\n".join(features.names).encode("utf-8", "surrogatepass")
    head = _HEAD.pack(features.length, len(features.text.ids), len(features.defined.ids), len(names))
    return zlib.compress(head + b"".join(part.tobytes() for part in parts) + names, 1)


def unpack(record: bytes) -> FileFeatures:
    """Raises ValueError for anything that `pack` did not produce."""
    try:
        data = zlib.decompress(record)
        length, terms, defined, names_length = _HEAD.unpack_from(data)
    except (zlib.error, struct.error) as error:
        raise ValueError(str(error)) from None
    if len(data) != _HEAD.size + 6 * (terms + defined) + names_length:
        raise ValueError("a record of another length")
    columns, at = [], _HEAD.size
    for code, size in zip("IHIH", (terms, terms, defined, defined), strict=True):
        column = array(code)
        column.frombytes(data[at : at + size * column.itemsize])
        columns.append(column)
        at += size * column.itemsize
    names = data[at:].decode("utf-8", "surrogatepass")
    return FileFeatures(
        length, TermCounts(*columns[:2]), TermCounts(*columns[2:]), tuple(names.split("\n")) if names else ()
    )


_MAX_BYTES = 1 << 30
"""A cache that has grown beyond this is cleared."""
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


_REGULAR = {"100644", "100755"}
_FILES_PER_READ = 200
_MAX_FILES_READ = 20_000
"""Files of which the content is read; in larger repositories the rest, source last of all, is known by path only."""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """One file of the commit; `features` are empty if its content has no text to index (binary, data, links)."""

    path: str
    features: FileFeatures


@dataclass(frozen=True, slots=True)
class CodeIndex:
    """All files of a commit in git's order, and the tree to read them from."""

    tree: Tree
    files: tuple[IndexedFile, ...]

    @classmethod
    def build(cls, tree: Tree, cache: Path | None) -> "CodeIndex":
        """Build the index; `cache` is a directory shared by all repositories and commits, or None for no cache."""
        entries = tree.entries()
        keys = {path: _key(path, entry) for path, entry in _readable(entries).items()}
        store = FeatureStore(cache) if cache else None
        known = store.load(keys.values()) if store else {}
        fresh: dict[str, FileFeatures] = {}
        for path, content in _contents(tree, [path for path, key in keys.items() if key not in known]):
            fresh[keys[path]] = features_of(path, content)
        if store:
            store.save(fresh)
        known |= fresh
        return cls(tree, tuple(IndexedFile(path, known.get(keys.get(path, ""), EMPTY)) for path in entries))


def _readable(entries: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    readable = {
        path: entry
        for path, entry in entries.items()
        if entry.mode in _REGULAR and entry.size <= (MAX_SOURCE_BYTES if is_code(path) else MAX_PROSE_BYTES)
    }
    if len(readable) <= _MAX_FILES_READ:
        return readable
    kept = sorted(readable, key=lambda path: not is_code(path))[:_MAX_FILES_READ]
    return {path: readable[path] for path in kept}


def _key(path: str, entry: TreeEntry) -> str:
    """A blob's cache key. Includes the suffix, because the same bytes in another language define other names."""
    return f"{entry.oid}.{language_of(path) or ''}"


def _contents(tree: Tree, paths: list[str]) -> Iterator[tuple[str, bytes]]:
    for start in range(0, len(paths), _FILES_PER_READ):
        yield from tree.read_many(paths[start : start + _FILES_PER_READ]).items()
