"""The tree as it will be: a commit with a patch on top, without writing either anywhere."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from app.patch import Patch
from app.tree import Entry, Tree


class Overlay:
    """Base plus patch behind the `Tree` port; changed entries have no blob id yet."""

    def __init__(self, base: Tree, patch: Patch) -> None:
        self._base = base
        self._changed = {change.path: change for change in patch.changes}

    @property
    def commit(self) -> str:
        return self._base.commit

    @cached_property
    def _entries(self) -> Mapping[str, Entry]:
        entries = dict(self._base.entries())
        for path, change in self._changed.items():
            if change.content is None:
                entries.pop(path, None)
            else:
                entries[path] = Entry(change.mode, "", len(change.content))
        return dict(sorted(entries.items()))

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

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
