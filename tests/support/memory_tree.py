"""A commit in memory: the `Tree` port over a dictionary of paths and bytes."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.core.patch import TreeEntry


def blob_oid(content: bytes) -> str:
    """The id git gives these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class MemoryTree:
    """Files by path; `modes` names the paths that are not plain files (`100755`, `120000`).

    `reads` lists every path that was read, so that a test can tell what was left alone.
    """

    files: Mapping[str, bytes]
    commit: str = "0" * 40
    modes: Mapping[str, str] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    submodules: Mapping[str, str] = field(default_factory=dict)

    def gitlinks(self) -> Mapping[str, str]:
        return self.submodules

    def entries(self) -> Mapping[str, TreeEntry]:
        ordered = sorted(self.files, key=lambda path: path.encode("utf-8", "surrogateescape"))
        return {path: self._entry(path) for path in ordered}

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return self.files[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        return {path: self.read(path) for path in paths if path in self.files}

    def _entry(self, path: str) -> TreeEntry:
        content = self.files[path]
        return TreeEntry(self.modes.get(path, "100644"), blob_oid(content), len(content))
