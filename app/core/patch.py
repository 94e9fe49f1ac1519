"""A read-only view of one commit's files, and the patch: changed files as bytes against it, never a git object."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from app.core.record import Record


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


Mode = Literal["100644", "100755", "120000"]
LINK: Mode = "120000"


class FileChange(Record):
    """The new state of one path.

    `content` is None if the file is deleted; for mode 120000 it is the link's target.
    """

    path: str
    mode: Mode
    content: bytes | None

    @property
    def deleted(self) -> bool:
        return self.content is None


class RefusedFile(Record):
    """A path in the work tree that cannot be part of a patch, and why (a device, 10 GB, an odd name)."""

    path: str
    reason: str


class Patch(Record):
    """All changes of a work tree against commit `base`, sorted by path, and the files that were refused."""

    base: str
    changes: tuple[FileChange, ...] = ()
    refusals: tuple[RefusedFile, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.changes and not self.refusals

    def paths(self) -> tuple[str, ...]:
        return tuple(change.path for change in self.changes)


class FileStat(Record):
    """One changed file of a diff; line counts are None for binary content. Odd bytes in names are shown as `\\xNN`."""

    path: str
    status: Literal["added", "modified", "deleted", "renamed"]
    mode: str
    old_mode: str
    added: int | None = None
    deleted: int | None = None
    old_path: str = ""


class KeptChange(Record):
    """A change that is kept for people: the digest of its diff, which is among the job's blobs, and its files."""

    diff: str = ""
    changes: tuple[FileStat, ...] = ()
