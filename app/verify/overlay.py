"""Commits with a patch on top, in memory; and the patch that makes one tree another."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import cast

from app.core.patch import FileChange, Mode, Patch, Tree, TreeEntry


def difference(base: Tree, other: Tree) -> Patch:
    """The changes that make the files of `base` those of `other`."""
    before, after = base.entries(), other.entries()
    changed = [path for path, entry in after.items() if path not in before or _differs(before[path], entry)]
    contents, old = other.read_many(changed), base.read_many(path for path in changed if path in before)
    changes = [
        FileChange(path=path, mode=cast("Mode", after[path].mode), content=contents[path])
        for path in changed
        if path not in before or (before[path].mode, old[path]) != (after[path].mode, contents[path])
    ]
    gone = [path for path in before if path not in after]
    changes += [FileChange(path=path, mode=cast("Mode", before[path].mode), content=None) for path in gone]
    return Patch(base=base.commit, changes=tuple(sorted(changes, key=lambda change: change.path)))


def apply_patch(before: Patch | None, patch: Patch | None) -> Patch | None:
    """Two patches of one base as one; the second wins if both change a path, or need it as a file and a directory."""
    if before is None or patch is None:
        return patch or before
    there = [change.path for change in patch.changes if not change.deleted]
    kept = (
        change for change in before.changes if change.deleted or not any(_excludes(change.path, it) for it in there)
    )
    changes = {change.path: change for change in (*kept, *patch.changes)}
    return patch.model_copy(update={"changes": tuple(changes[path] for path in sorted(changes))})


def _excludes(one: str, other: str) -> bool:
    """True if one path is a parent directory of the other."""
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _differs(before: TreeEntry, after: TreeEntry) -> bool:
    if not before.oid or not after.oid:  # of an overlay: only the contents tell
        return True
    return (before.mode, before.oid) != (after.mode, after.oid)


class Overlay:
    """Base plus patch as a `Tree`; changed entries have no blob id yet."""

    def __init__(self, base: Tree, patch: Patch) -> None:
        self._base = base
        self._changed = {change.path: change for change in patch.changes}

    @property
    def commit(self) -> str:
        return self._base.commit

    @cached_property
    def _entries(self) -> Mapping[str, TreeEntry]:
        entries = dict(self._base.entries())
        for path, change in self._changed.items():
            if change.content is None:
                entries.pop(path, None)
            else:
                entries[path] = TreeEntry(change.mode, "", len(change.content))
        return dict(sorted(entries.items()))

    def entries(self) -> Mapping[str, TreeEntry]:
        return self._entries

    def gitlinks(self) -> Mapping[str, str]:
        return self._base.gitlinks()

    def read(self, path: str) -> bytes:
        change = self._changed.get(path)
        if change is None:
            return self._base.read(path)
        if change.content is None:
            raise KeyError(path)
        return change.content

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        wanted = list(paths)
        found = self._base.read_many(path for path in wanted if path not in self._changed)
        for path in wanted:
            change = self._changed.get(path)
            if change is not None and change.content is not None:
                found[path] = change.content
        return found
