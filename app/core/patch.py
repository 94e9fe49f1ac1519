"""The patch: changed files as bytes with modes against a base commit, never a git object the agent made."""

from typing import Literal

from app.core.record import Record

Mode = Literal["100644", "100755", "120000"]


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
