"""Where two versions of a file differ, line by line."""

from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

_MAX_PAIRS = 2_000_000
"""Equal lines on both sides; the matcher's time grows with them, and a file may repeat a single line."""


class Hunk(NamedTuple):
    """Lines [old_start, old_end) of the old version became lines [new_start, new_end) of the new one; from 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """The differences in order. If they would take too long to find, one hunk covers them all."""
    before, after = old.split(b"\n"), new.split(b"\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    before, after = before[start : len(before) - tail], after[start : len(after) - tail]
    if not before and not after:
        return []
    left, right = Counter(before), Counter(after)
    if sum(count * right[line] for line, count in left.items()) > _MAX_PAIRS:
        return [Hunk(start, start + len(before), start, start + len(after))]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        Hunk(start + old_start, start + old_end, start + new_start, start + new_end)
        for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def added_rows(old: bytes, new: bytes) -> set[int]:
    """Rows of the new version, from 0, that were added or changed."""
    return {row for hunk in hunks(old, new) for row in range(hunk.new_start, hunk.new_end)}
