"""Decides whether a written passage matches a place in a file except for one line."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_MIN_LIKENESS = 0.6
"""Minimum share of the written lines that must exist, and minimum likeness of a changed line to its original."""
_MIN_LIKENESS_ALONE = 0.75
"""Minimum likeness if nothing but the changed lines is left to compare."""
_LIKENESS_MARGIN = 0.1
"""How much more alike another line of the file may be than the one at this place."""
_SEARCHED_AROUND = 3
"""Lines around a passage to search for a changed first or last line."""
_MIN_LETTERS = 4
"""Minimum letters and digits of a line that identifies a place; a bracket alone does not."""
_MIN_UNIQUE_LETTERS = 12
"""Minimum letters and digits that occur only once in the file, if few lines identify the place."""
_RARE_LINES, _RARE_SHARE = 10, 0.05
"""A word on more lines, or on a larger share of them, does not identify a place."""
_DEFINITION = re.compile(
    r"\b(?:def|class|func(?:\s*\([^)]*\))?|function|fn|interface|trait|impl|module|type)\s+(\w+)"
    r"|\b(?:struct|enum|union)\s+(\w+)\s*(?:[{:<]|$)"
    r"|^(?!(?:catch|elif|for|if|switch|while|with)\b)(?:[\w:<>,\[\]]+[\s*&]+)*(\w+)\([^();]*\)[\w\s]*\{$"
)
"""A definition; for languages without a keyword, a line that starts a body."""
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]{3,}")
"""One part of a compound name."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


class FileLines:
    """A file's normalized lines, and how often each occurs."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.times = Counter(lines)


@dataclass(frozen=True)
class Alignment:
    """Normalized file lines and written lines that agree except for one changed, added or removed line."""

    have: FileLines
    want: Sequence[str]
    touched: Sequence[int]
    """Written lines that are removed, and those next to new ones."""
    at: dict[int, int]
    """The file line of each written line."""

    @property
    def place(self) -> int:
        """The first matching file line."""
        return min(self.at.values())

    def contradicts(self, other: "Alignment") -> bool:
        """True if another alignment puts a written line at another file line."""
        return not self.at.keys() & other.at.keys() or any(self.at[i] != other.at.get(i, self.at[i]) for i in self.at)

    @property
    def agrees(self) -> bool:
        """True if enough written lines exist and identify the place."""
        written = [index for index, key in enumerate(self.want) if key]
        found = [index for index in written if index in self.at]
        identifying = sum(is_distinctive(self.want[index]) for index in found)
        unmoved = len({self.at[index] - index for index in found}) == 1
        if len(found) >= _MIN_LIKENESS * len(written) and identifying >= (2 if unmoved else 3):
            return True
        has_context = any(_letters(self.want[index]) for index in found if index not in self.touched)
        return self._is_known(_MIN_UNIQUE_LETTERS) and (has_context or self._missing_likeness >= _MIN_LIKENESS_ALONE)

    def _is_known(self, least: int) -> bool:
        """True if the changed lines occur nowhere else, and enough of the passage occurs nowhere else."""
        once = [index for index in self.at if self.have.times[self.want[index]] == 1]
        letters = sum(_letters(self.want[index]) for index in once)
        return letters >= least and any(is_distinctive(self.want[index]) for index in once if index in self.touched)

    @cached_property
    def _missing(self) -> int | None:
        """The written line that the file does not have, if any."""
        return next((index for index, key in enumerate(self.want) if key and index not in self.at), None)

    @cached_property
    def _missing_likeness(self) -> float:
        """The likeness of the missing line to what is in its place; 0 for a line that identifies nothing."""
        if self._missing is None or not _letters(self.want[self._missing]):
            return 0.0
        return max((likeness(self.want[self._missing], line) for line in self._around(self._missing)), default=0.0)

    @property
    def missing_line_is_clear(self) -> bool:
        """True if nothing else in the file resembles the missing line, and part of it is left or its place is
        certain."""
        if self._missing is None:
            return True
        index, key = self._missing, self.want[self._missing]
        alike = max((_alike(key, line) for line in self._around(index)), default=0.0)
        if not _letters(key):
            return alike >= _MIN_LIKENESS
        if self._occurs_elsewhere(index) or _is_like_one(
            key, self.have.lines, max(alike, _MIN_LIKENESS) + _LIKENESS_MARGIN
        ):
            return False
        return self._missing_likeness >= _MIN_LIKENESS or (not self._defines(index) and self._is_sure_without(index))

    def _is_sure_without(self, index: int) -> bool:
        """True if the lines around the missing one leave no doubt."""
        if 0 < index < len(self.want) - 1 and self._is_known(2 * _MIN_UNIQUE_LETTERS):
            return True
        sure = [other for other in self.at if is_distinctive(self.want[other])]
        return any(other < self.touched[0] for other in sure) and any(other > self.touched[-1] for other in sure)

    def _occurs_elsewhere(self, index: int) -> bool:
        """True if a word that is missing here occurs elsewhere in the file, so that a similar passage may be meant."""
        passage = range(max(self.place - 1, 0), max(self.at.values()) + 2)
        for words in (_words, _parts):
            nearby = set[str]().union(*(words(line) for line in self.have.lines[passage.start : passage.stop]))
            missing_words = words(self.want[index]) - nearby
            elsewhere = [words(line) & missing_words for at, line in enumerate(self.have.lines) if at not in passage]
            limit = max(_RARE_LINES, _RARE_SHARE * len(self.have.lines))
            if any(0 < sum(word in line for line in elsewhere) <= limit for word in missing_words):
                return True
        return False

    def _defines(self, index: int) -> bool:
        """True if the line names the definition with the change: no other definition is nearer to the change."""
        first, last = self.touched[0], self.touched[-1]
        nearer = range(index + 1, first + 1) if index < first else range(last, index)
        return bool(names(self.want[index])) and not any(
            other in self.at and names(self.want[other]) for other in nearer
        )

    def _around(self, index: int) -> Sequence[str]:
        """File lines between the neighbours of a written line."""
        before, after = self.at.get(index - 1), self.at.get(index + 1)
        first = self.place - _SEARCHED_AROUND if before is None else before
        last = max(self.at.values()) + _SEARCHED_AROUND if after is None else after
        return self.have.lines[max(first, 0) : last + 1]

    def replaced(self, begin: int, end: int) -> bool:
        """True if the removed lines are consecutive in the file, with nothing new directly next to them."""
        places = [self.at.get(index) for index in range(begin, end)]
        first = places[0]
        if first is None or places != list(range(first, first + len(places))):
            return False
        return self._joins(begin - 1, first - 1) and self._joins(end, first + len(places))

    def inserted(self, index: int) -> bool:
        """True if new lines before this one have one place: between two lines that are still neighbours."""
        before, after = self.at.get(index - 1), self.at.get(index)
        if before is not None and after is not None:
            return after == before + 1
        if before is not None:
            return self._joins(index, before + 1, known=False)
        return after is not None and self._joins(index - 1, after - 1, known=False)

    def _joins(self, index: int, place: int, *, known: bool = True) -> bool:
        """True if the file's line there is blank, also written, or a changed version of the written line `index`."""
        if not (0 <= index < len(self.want) and 0 <= place < len(self.have.lines)):
            return True
        if place in self.at.values() or not self.have.lines[place]:
            return known or not self.want[index]
        return index not in self.at and likeness(self.want[index], self.have.lines[place]) >= _MIN_LIKENESS


def alignments(have: FileLines, want: Sequence[str], touched: Sequence[int], anchor: int) -> Iterator[Alignment]:
    """Places where the file has the written line `anchor` and all its surroundings except for one line."""
    lines = have.lines
    for place in (at for at, key in enumerate(lines) if key == want[anchor]):
        above = _match_side(want[:anchor][::-1], lines[max(0, place - anchor - 1) : place][::-1])
        below = _match_side(want[anchor + 1 :], lines[place + 1 : place + len(want) - anchor + 1])
        if above and below and (above.same or below.same):
            at = {anchor: place}
            at |= {anchor - 1 - index: place - 1 - found for index, found in above.at.items()}
            at |= {anchor + 1 + index: place + 1 + found for index, found in below.at.items()}
            yield Alignment(have, want, touched, at)


@dataclass(frozen=True, slots=True)
class _AlignmentSide:
    at: dict[int, int]
    same: bool


def _match_side(want: Sequence[str], have: Sequence[str]) -> _AlignmentSide | None:
    """The lines on one side of the anchor, outwards: all the same, or the same except for one."""
    if list(have[: len(want)]) == list(want):
        return _AlignmentSide({index: index for index in range(len(want))}, same=True)
    pairs = zip(want, have, strict=False)
    first = next((index for index, (key, there) in enumerate(pairs) if key != there), len(have))
    for index, at in ((first, first + 1), (first + 1, first + 1), (first + 1, first)):
        rest = list(want[index:])
        if list(have[at : at + len(rest)]) == rest:
            known = {step: step for step in range(first)}
            return _AlignmentSide(known | {index + step: at + step for step in range(len(rest))}, same=False)
    return None


def is_distinctive(key: str) -> bool:
    """True if a line identifies a place."""
    return _letters(key) >= _MIN_LETTERS


def _letters(key: str) -> int:
    return sum(character.isalnum() for character in key)


def _words(key: str) -> set[str]:
    return {word for word in _WORD.findall(key) if len(word) > 2}


def _parts(key: str) -> set[str]:
    return set(_PART.findall(key))


def names(key: str) -> list[str]:
    """The names that a line defines."""
    return [next(filter(None, match.groups())) for match in _DEFINITION.finditer(key)]


def likeness(key: str, there: str) -> float:
    """From 0 to 1. Definitions of different names have likeness 0, however similar they read."""
    for one, other in ((key, there), (there, key)):
        if not set(names(one)) <= set(names(other) or _WORD.findall(other)):
            return 0.0
    return _alike(key, there)


def _alike(key: str, there: str) -> float:
    """By letters or by words, whichever is more alike."""
    letters = difflib.SequenceMatcher(None, key, there, autojunk=False).ratio()
    tokens = difflib.SequenceMatcher(None, _TOKEN.findall(key), _TOKEN.findall(there), autojunk=False).ratio()
    return max(letters, tokens)


def _is_like_one(key: str, lines: Sequence[str], least: float) -> bool:
    """True if a line equals or closely resembles one of the lines, by letters."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key)
    for line in lines:
        matcher.set_seq1(line)
        if line == key or all(how() >= least for how in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)):
            return True
    return False
