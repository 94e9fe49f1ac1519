"""The size of a change in lines, to prefer the smaller of two with equal verification."""

from collections import Counter

from app.core.patch import Patch
from app.core.tree import Tree
from app.verify.gates.candidate import CandidatePatch, as_text


def count_changed_lines(base: Tree, patch: Patch) -> int:
    """Added and removed lines; one for each file that is not text."""
    return sum(_lines(delta.old, delta.new) for delta in CandidatePatch(base, patch).deltas)


def _lines(old: bytes | None, new: bytes | None) -> int:
    sides = [b"" if content is None else content for content in (old, new)]
    texts = [as_text(content) for content in sides]
    if None in texts:
        return 1
    before, after = (Counter((text or "").splitlines()) for text in texts)
    return max((before - after).total() + (after - before).total(), 1)
