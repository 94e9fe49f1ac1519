"""Adapts a model's lines to the place they go to: the file's indentation, quotes and line ends."""

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

_CURLY = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_TYPED = _CURLY | str.maketrans({"\u00a0": " ", "\u2013": "-", "\u2014": "-", "\u2026": "..."})
_UNREADABLE = re.compile("[\udc80-\udcff\ufffd]+")
"""Bytes that are not UTF-8, as stored and as shown."""

Pairs = Sequence[tuple[str, str]]
"""Written lines, each with the file line that is meant."""


class WantedEdit(NamedTuple):
    """Whole lines to be replaced by whole lines."""

    old: list[str]
    new: list[str]


class LineChange(NamedTuple):
    """Lines `start` to `end` (exclusive, 0-based) of the file become `lines`."""

    start: int
    end: int
    lines: list[str]


class EditMatch(NamedTuple):
    """A place (its first line, 0-based) and the changes there."""

    place: int
    changes: list[LineChange]


class AmbiguousMatchError(Exception):  # a result, not a fault
    """More than one place matches; `places` are their first lines, 0-based."""

    def __init__(self, places: Sequence[int], how: str) -> None:
        super().__init__(how)
        self.places = places
        self.how = how


class NoMatchError(Exception):
    """The written indentation has no counterpart in the file, or the meant quotes are unclear."""


def straight_quotes(text: str) -> str:
    """The text with keyboard quotes, dashes and spaces."""
    return text.translate(_TYPED)


def normalized_line(line: str) -> str:
    """The part of a line that must match: without white space, kinds of quotes, or bytes that cannot be shown."""
    return " ".join(_UNREADABLE.sub("\ufffd", straight_quotes(line)).split())


def adapt_lines(lines: Sequence[str], pairs: Pairs) -> list[str]:
    """New lines with the indentation and quotes of the file's lines in `pairs`. Raises NoMatchError."""
    olds, haves = zip(*pairs, strict=True)
    end = "\r" if any(have.endswith("\r") for have in haves) else ""
    curly_by_mistake = sum(map(_count_curly, olds)) > sum(map(_count_curly, haves))
    if curly_by_mistake and any(map(_count_curly, haves)) and any(map(_count_curly, lines)):
        raise NoMatchError
    indents = _indents(pairs)
    made = []
    for line in lines:
        bare = (line.translate(_CURLY) if curly_by_mistake else line).removesuffix("\r")
        made.append((_indented(bare, indents) if bare.strip() else bare) + end)
    return made


def _count_curly(line: str) -> int:
    """The number of curly quotes in a line."""
    return sum(ord(character) in _CURLY for character in line)


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indents(pairs: Pairs) -> dict[str, str]:
    """Maps each written indentation to the file's. Raises NoMatchError if one maps to two."""
    found: dict[str, str] = {}
    for old, have in pairs:
        if old.strip() and found.setdefault(indent_of(old), indent_of(have)) != indent_of(have):
            raise NoMatchError
    return found


def _indented(line: str, indents: dict[str, str]) -> str:
    written = indent_of(line)
    if not indents or all(old == have for old, have in indents.items()):
        return line
    if written in indents:
        return indents[written] + line[len(written) :]
    before = [old for old in indents if written.startswith(old)]
    if before:
        nearest = max(before, key=len)
        return indents[nearest] + _converted(written[len(nearest) :], indents) + line[len(written) :]
    nearest = min(indents, key=len)
    if not nearest.startswith(written):
        raise NoMatchError
    less = _converted(nearest[len(written) :], indents)
    if not indents[nearest].endswith(less):
        raise NoMatchError
    return indents[nearest].removesuffix(less) + line[len(written) :]


def _converted(extra: str, indents: dict[str, str]) -> str:
    """Indentation beyond any known one, in the file's own units."""
    for old, have in _indent_pairs(indents):
        if old and extra == old * (len(extra) // len(old)):
            return have * (len(extra) // len(old))
    return extra


def _indent_pairs(indents: dict[str, str]) -> list[tuple[str, str]]:
    """Equivalent pieces of indentation, smallest first."""
    known = sorted(indents.items(), key=lambda item: len(item[0]))
    if "" not in indents:
        known = [*known, *((old, have) for old, have in known if {*old} == {" "} and {*have} == {"\t"})]
    steps = [
        (longer[len(old) :], more[len(have) :])
        for (old, have), (longer, more) in pairwise(known)
        if longer != old and longer.startswith(old) and more.startswith(have)
    ]
    steps += [
        _per_level(old, have)
        for old, have in known
        if old and have and len({*old}) == len({*have}) == 1 and {*old} != {*have}
    ]
    return sorted(steps, key=lambda step: len(step[0]))


def _per_level(old: str, have: str) -> tuple[str, str]:
    """One level in blanks and in tabs, if both are whole levels."""
    longer, shorter = (old, have) if len(old) >= len(have) else (have, old)
    size, rest = divmod(len(longer), len(shorter))
    if rest:
        return "", ""
    return (old[:size], have[:1]) if longer is old else (old[:1], have[:size])


def differences(wanted: WantedEdit) -> list[tuple[int, int, int, int]]:
    """What happens to the old lines: (begin, end) of them becomes (begin, end) of the new ones."""
    old, new = ([line.rstrip() for line in part] for part in wanted)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]


def changes(lines: Sequence[str], wanted: WantedEdit, aligned: dict[int, int]) -> list[LineChange]:
    """The changed lines only; all other lines keep the file's bytes."""
    pairs = [(wanted.old[index], lines[at]) for index, at in aligned.items() if wanted.old[index].strip()]
    made = []
    for begin, end, first, last in differences(wanted):
        start = aligned[begin] if begin in aligned else aligned[begin - 1] + 1
        new = adapt_lines(wanted.new[first:last], pairs or [("", lines[start - 1])])
        made.append(LineChange(start, start + end - begin, new))
    return made


def places(have: Sequence[str], want: Sequence[str]) -> Iterator[int]:
    """Places where the wanted lines are consecutive."""
    anchor = max(range(len(want)), key=lambda index: len(want[index]))
    for at in range(anchor, len(have) - len(want) + anchor + 1):
        if have[at] == want[anchor] and have[at - anchor : at - anchor + len(want)] == want:
            yield at - anchor
