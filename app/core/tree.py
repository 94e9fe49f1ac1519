"""A read-only view of one commit's files, for code that reads the repository without a sandbox."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class TreeEntry(NamedTuple):
    """A file of the commit: git mode (`100644`, `100755`, `120000`), blob id (SHA-1, hex) and size in bytes."""

    mode: str
    oid: str
    size: int


class Tree(Protocol):
    """One commit's files as stored bytes: no filters, no work tree, nothing executed.

    Paths are text with surrogate escapes for bytes that are not UTF-8.
    """

    @property
    def commit(self) -> str: ...

    def entries(self) -> Mapping[str, TreeEntry]:
        """Every file and symlink by path, in git's order."""
        ...

    def gitlinks(self) -> Mapping[str, str]:
        """The submodules that the commit pins: the commit id of each, by path."""
        ...

    def read(self, path: str) -> bytes:
        """A file's bytes. Raises KeyError if there is no such file."""
        ...

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of several files; missing paths are left out."""
        ...
