"""An edit whose context is out of date: what it changes is there as it was written, what is around it only mostly."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.agent.fitting import Change, Found, Several, UnfitError, Wanted, changes, differences, loose, places

_MOST_CANDIDATES = 300
_SLACK = 3
"""Lines that a file may have more or less than were written, before and after what is changed."""
_AGREEING = 0.6
"""The share of the written lines that have to be there, and how alike a line is to what it was before."""
_RESEMBLING = 0.75
"""How alike a line is beside which new ones come."""
_DEFINITION = re.compile(r"\b(?:def|class|func|function|fn|struct|enum|interface|trait|impl|module|type)\s+(\w+)")
_TELLING = 4
"""Letters and digits of a line that says something about its place; a bracket alone says nothing."""


def with_stale_context(lines: Sequence[str], wanted: Wanted) -> tuple[Found, str] | None:
    """The only place where the change can be meant; raises Several."""
    have, want = [loose(line) for line in lines], [loose(line) for line in wanted.old]
    touched = _touched(wanted)
    anchors = [index for index in touched if want[index] in have]
    made_before = bool(wanted.new) and any(True for _ in places(have, [loose(line) for line in wanted.new]))
    if not anchors or made_before:
        return None
    anchor = min(anchors, key=lambda index: (have.count(want[index]), -len(want[index])))
    if have.count(want[anchor]) > _MOST_CANDIDATES:
        return None
    at = (index for index, key in enumerate(have) if key == want[anchor])
    every = [_Alignment(have, want, _aligned(have, want, anchor, place)) for place in at]
    agreeing = [seen for seen in every if seen.agrees]
    if len(agreeing) > 1:
        raise Several([min(seen.at.values()) for seen in agreeing], "stale context")
    if not agreeing or not agreeing[0].knows_the_rest(touched):
        return None
    merged = _merged(lines, wanted, agreeing[0])
    return (Found(min(agreeing[0].at.values()), merged), "stale context") if merged else None


def _touched(wanted: Wanted) -> list[int]:
    """Old lines that go, and those beside which new ones come."""
    touched: set[int] = set()
    for begin, end, _, _ in differences(wanted):
        touched |= set(range(begin, end)) if end > begin else {begin - 1, begin}
    return sorted(index for index in touched if 0 <= index < len(wanted.old) and wanted.old[index].strip())


def _aligned(have: Sequence[str], want: Sequence[str], anchor: int, place: int) -> dict[int, int]:
    """Which line of the file each written line is, the anchor being at `place`; near the anchor first."""
    found = {anchor: place}
    before = have[max(0, place - anchor - _SLACK) : place]
    for block in _blocks(want[:anchor][::-1], before[::-1]):
        found |= {anchor - 1 - block.a - step: place - 1 - block.b - step for step in range(block.size)}
    after = have[place + 1 : place + len(want) - anchor + _SLACK]
    for block in _blocks(want[anchor + 1 :], after):
        found |= {anchor + 1 + block.a + step: place + 1 + block.b + step for step in range(block.size)}
    return found


def _blocks(want: Sequence[str], have: Sequence[str]) -> list[difflib.Match]:
    return difflib.SequenceMatcher(None, want, have, autojunk=False).get_matching_blocks()


@dataclass(frozen=True, slots=True)
class _Alignment:
    """Lines of a file and written ones, loosely, and `at` which line of the file each written line is found."""

    have: Sequence[str]
    want: Sequence[str]
    at: dict[int, int]

    @property
    def agrees(self) -> bool:
        """Enough of what was written is there, and says something about the place."""
        written = [index for index, key in enumerate(self.want) if key]
        there = [index for index in written if index in self.at]
        telling = sum(_tells(self.want[index]) for index in there)
        unmoved = len({self.at[index] - index for index in there}) == 1
        return len(there) >= _AGREEING * len(written) and telling >= (2 if unmoved else 3)

    def knows_the_rest(self, touched: Sequence[int]) -> bool:
        """A line that is not here is nowhere, and resembles one in its place, or is the only one and in the middle."""
        for index in (index for index, key in enumerate(self.want) if _tells(key) and index not in self.at):
            if self.want[index] in self.have:
                return False
            if not any(_likeness(self.want[index], line) >= _AGREEING for line in self._around(index)):
                sure = [other for other in self.at if _tells(self.want[other])]
                both_sides = any(other < touched[0] for other in sure) and any(other > touched[-1] for other in sure)
                return both_sides and self._missing == 1 and not _DEFINITION.search(self.want[index])
        return True

    def _around(self, index: int) -> Sequence[str]:
        """Lines of the file between those that stand before and after a written line."""
        at = self.at
        before = max((at[other] for other in at if other < index), default=min(at.values()) - _SLACK)
        after = min((at[other] for other in at if other > index), default=max(at.values()) + _SLACK)
        return self.have[max(before, 0) : after + 1]

    def replaced(self, begin: int, end: int) -> bool:
        """Whether the lines that go are there one after the other, and nothing new stands right beside them."""
        places = [self.at.get(index) for index in range(begin, end)]
        first = places[0]
        if first is None or places != list(range(first, first + len(places))):
            return False
        return self._joins(begin - 1, first - 1) and self._joins(end, first + len(places))

    def inserted(self, index: int) -> bool:
        """Whether new lines before this one have one place: between two lines that are still neighbours."""
        before, after = self.at.get(index - 1), self.at.get(index)
        if before is not None and after is not None:
            return after == before + 1
        if self._missing > 1:
            return False
        if before is not None:
            return self._joins(index, before + 1, known=False)
        return after is not None and self._joins(index - 1, after - 1, known=False)

    @property
    def _missing(self) -> int:
        """Written lines that are not here."""
        return sum(bool(key) and index not in self.at for index, key in enumerate(self.want))

    def _joins(self, index: int, place: int, *, known: bool = True) -> bool:
        """The file's line there is blank, written too, or what somebody made of the written line `index`."""
        if not (0 <= index < len(self.want) and 0 <= place < len(self.have)):
            return True
        if place in self.at.values() or not self.have[place]:
            return known or not self.want[index]
        least = _AGREEING if known else _RESEMBLING
        return index not in self.at and _likeness(self.want[index], self.have[place]) >= least


def _tells(key: str) -> bool:
    return sum(character.isalnum() for character in key) >= _TELLING


def _likeness(key: str, there: str) -> float:
    """From 0 to 1; a definition of another name is another thing, however alike it reads."""
    if [match[1] for match in _DEFINITION.finditer(key)] != [match[1] for match in _DEFINITION.finditer(there)]:
        return 0.0
    return difflib.SequenceMatcher(None, key, there, autojunk=False).ratio()


def _merged(lines: Sequence[str], wanted: Wanted, seen: _Alignment) -> list[Change]:
    """The changes, if every line that goes is there and every new one has one place; else none."""
    for begin, end, _, _ in differences(wanted):
        if not (seen.replaced(begin, end) if end > begin else seen.inserted(begin)):
            return []
    try:
        return changes(lines, wanted, seen.at)
    except UnfitError:
        return []
