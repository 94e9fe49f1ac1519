"""The index of one commit: every file with its features, read again only for blobs not seen before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.core.tree import Tree, TreeEntry
from app.repo.index.feature_store import FeatureStore
from app.repo.index.features import EMPTY, FileFeatures, features_of, worth_reading
from app.repo.index.path_kinds import is_code
from app.repo.syntax import language_of

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
        path: entry for path, entry in entries.items() if entry.mode in _REGULAR and worth_reading(path, entry.size)
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
