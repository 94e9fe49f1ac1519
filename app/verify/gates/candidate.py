"""The patch next to the base it changes: what every gate examines, without executing anything."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from app.core.patch import LINK, FileChange, Patch, Tree
from app.core.verification import GateResult

MAX_DETAILS = 20


@dataclass(frozen=True)
class ChangedPath:
    """One path before and after; None if there is no such file on that side."""

    path: str
    old_mode: str | None
    old: bytes | None
    mode: str
    new: bytes | None

    @property
    def created(self) -> bool:
        return self.old is None and self.new is not None

    @property
    def is_symlink_now(self) -> bool:
        return self.mode == LINK and self.new is not None

    @cached_property
    def text(self) -> str | None:
        """The new content as text; None if it is deleted, a link, or not text."""
        return None if self.is_symlink_now or self.new is None else as_text(self.new)

    @cached_property
    def old_text(self) -> str:
        return (as_text(self.old) or "") if self.old is not None and self.old_mode != LINK else ""

    @cached_property
    def added(self) -> tuple[tuple[int, str], ...]:
        """Lines (numbered from 1) that the old content does not have; a moved line is not an added one."""
        if self.text is None:
            return ()
        left = Counter(self.old_text.split("\n"))
        added = []
        for number, line in enumerate(self.text.split("\n"), start=1):
            if left[line] > 0:
                left[line] -= 1
            else:
                added.append((number, line))
        return tuple(added)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Lines of the old content that the new one does not have."""
        left = Counter((self.text or "").split("\n"))
        removed = []
        for line in self.old_text.split("\n"):
            if left[line] > 0:
                left[line] -= 1
            else:
                removed.append(line)
        return tuple(removed)


def as_text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class CandidatePatch:
    """A patch and its base; `deltas` leave out entries that change nothing."""

    base: Tree
    patch: Patch

    @cached_property
    def deltas(self) -> tuple[ChangedPath, ...]:
        before = self.base.read_many(change.path for change in self.patch.changes)
        entries = self.base.entries()
        found = []
        for change in self.patch.changes:
            entry, old = entries.get(change.path), before.get(change.path)
            delta = ChangedPath(change.path, entry.mode if entry else None, old, change.mode, change.content)
            if not _same(change, delta):
                found.append(delta)
        return tuple(found)

    @cached_property
    def modes(self) -> Mapping[str, str]:
        """Mode by path of the resulting tree."""
        modes = {path: entry.mode for path, entry in self.base.entries().items()}
        for change in self.patch.changes:
            if change.content is None:
                modes.pop(change.path, None)
            else:
                modes[change.path] = change.mode
        return modes


def _same(change: FileChange, delta: ChangedPath) -> bool:
    return delta.old == change.content and (change.content is None or delta.old_mode == change.mode)


def gate(name: str, *, blocked: list[str] | None = None, warned: list[str] | None = None) -> GateResult:
    """A gate's result: blocked if there are blocking findings, otherwise warned if there are others."""
    details = [*(blocked or ()), *(warned or ())]
    if len(details) > MAX_DETAILS:
        details = [*details[:MAX_DETAILS], f"and {len(details) - MAX_DETAILS} more"]
    outcome: Literal["blocked", "warned", "passed"] = "blocked" if blocked else "warned" if warned else "passed"
    return GateResult(name=name, outcome=outcome, details=tuple(details))


def displayed_path(path: str) -> str:
    """A printable path: invisible characters and invalid text are escaped."""
    return path if path.isprintable() else ascii(path)[1:-1]


def count_changed_lines(base: Tree, patch: Patch) -> int:
    """Added and removed lines; one for each file that is not text."""
    return sum(_changed_lines(delta.old, delta.new) for delta in CandidatePatch(base, patch).deltas)


def _changed_lines(old: bytes | None, new: bytes | None) -> int:
    sides = [b"" if content is None else content for content in (old, new)]
    texts = [as_text(content) for content in sides]
    if None in texts:
        return 1
    before, after = (Counter((text or "").splitlines()) for text in texts)
    return max((before - after).total() + (after - before).total(), 1)
