"""Replaces one passage of a text: exactly, or at the only place that matches apart from negligible differences.

Three ways are tried: the passage exactly; all of its lines, apart from quotes, indentation and the like; and its lines
but for one that the file no longer has (stale context), if nothing else in the file could be meant.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import cached_property
from itertools import islice, pairwise
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


@dataclass(frozen=True)
class Alignment:
    """Normalized file lines and written lines that agree except for one changed, added or removed line."""

    have: Sequence[str]
    times: Counter[str]
    """How often each line occurs in the file."""
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
        once = [index for index in self.at if self.times[self.want[index]] == 1]
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
        if self._occurs_elsewhere(index) or _is_like_one(key, self.have, max(alike, _MIN_LIKENESS) + _LIKENESS_MARGIN):
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
            nearby = set[str]().union(*(words(line) for line in self.have[passage.start : passage.stop]))
            missing_words = words(self.want[index]) - nearby
            elsewhere = [words(line) & missing_words for at, line in enumerate(self.have) if at not in passage]
            limit = max(_RARE_LINES, _RARE_SHARE * len(self.have))
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
        return self.have[max(first, 0) : last + 1]

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
        if not (0 <= index < len(self.want) and 0 <= place < len(self.have)):
            return True
        if place in self.at.values() or not self.have[place]:
            return known or not self.want[index]
        return index not in self.at and likeness(self.want[index], self.have[place]) >= _MIN_LIKENESS


def alignments(
    have: Sequence[str], times: Counter[str], want: Sequence[str], touched: Sequence[int], anchor: int
) -> Iterator[Alignment]:
    """Places where the file has the written line `anchor` and all its surroundings except for one line."""
    for place in (at for at, key in enumerate(have) if key == want[anchor]):
        above = _match_side(want[:anchor][::-1], have[max(0, place - anchor - 1) : place][::-1])
        below = _match_side(want[anchor + 1 :], have[place + 1 : place + len(want) - anchor + 1])
        if above and below and (above[1] or below[1]):
            at = {anchor: place}
            at |= {anchor - 1 - index: place - 1 - found for index, found in above[0].items()}
            at |= {anchor + 1 + index: place + 1 + found for index, found in below[0].items()}
            yield Alignment(have, times, want, touched, at)


def _match_side(want: Sequence[str], have: Sequence[str]) -> tuple[dict[int, int], bool] | None:
    """The lines on one side of the anchor, outwards, and whether all are the same; they may differ by one line."""
    if list(have[: len(want)]) == list(want):
        return {index: index for index in range(len(want))}, True
    pairs = zip(want, have, strict=False)
    first = next((index for index, (key, there) in enumerate(pairs) if key != there), len(have))
    for index, at in ((first, first + 1), (first + 1, first + 1), (first + 1, first)):
        rest = list(want[index:])
        if list(have[at : at + len(rest)]) == rest:
            known = {step: step for step in range(first)}
            return known | {index + step: at + step for step in range(len(rest))}, False
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


_MAX_CANDIDATES = 300


def with_stale_context(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """The only possible place of the change. Raises AmbiguousMatchError if there are several."""
    have, want, new = (list(map(normalized_line, part)) for part in (lines, *wanted))
    times = Counter(have)
    if new and any(True for _ in places(have, new)):
        return None  # the edit was made before
    touched = _touched(wanted)
    agreeing: list[Alignment] = []
    space = _MAX_CANDIDATES
    for anchor in sorted(touched, key=lambda index: times[want[index]]):  # the rarest lines first
        space -= times[want[anchor]]
        if space < 0:
            break
        agreeing += (found for found in alignments(have, times, want, touched, anchor) if found.agrees)
    if not agreeing:
        return None
    others = [alignment for alignment in agreeing if alignment.contradicts(agreeing[0])]
    if others:
        raise AmbiguousMatchError(
            sorted({agreeing[0].place, *(alignment.place for alignment in others)}), "stale context"
        )
    if not agreeing[0].missing_line_is_clear:
        return None
    for begin, end, _, _ in differences(wanted):
        if not (agreeing[0].replaced(begin, end) if end > begin else agreeing[0].inserted(begin)):
            return None
    try:
        merged = changes(lines, wanted, agreeing[0].at)
    except NoMatchError:
        return None
    return (EditMatch(agreeing[0].place, merged), "stale context") if merged else None


def _touched(wanted: WantedEdit) -> list[int]:
    """Old lines that are removed, and those next to new ones."""
    touched: set[int] = set()
    for begin, end, _, _ in differences(wanted):
        touched |= set(range(begin, end)) if end > begin else {begin - 1, begin}
    return sorted(index for index in touched if 0 <= index < len(wanted.old) and wanted.old[index].strip())


_NUMBER = re.compile(r"^\s*(\d+)([\t:|→])(?:(?<=[:|]) )?")


def recover(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """The only match, and the differences that were ignored. Raises AmbiguousMatchError or NoMatchError."""
    found = _whole(lines, wanted)
    if found is None and (bare := _without_numbers(wanted)) is not None:
        wanted = bare
        found = _whole(lines, bare)
        found = (found[0], "line numbers") if found else None
    return found or with_stale_context(lines, wanted)


def _whole(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """A match in which every line is present and consecutive."""
    for key, how in _KEYS:
        want = [key(line) for line in wanted.old]
        found = list(places([key(line) for line in lines], want))
        if len(found) > 1:
            raise AmbiguousMatchError(found, how)
        if found:
            place = found[0]
            pairs = list(enumerate(range(place, place + len(want))))
            return EditMatch(place, changes(lines, wanted, dict(pairs))), how
    return None


_KEYS: tuple[tuple[Callable[[str], str], str], ...] = (
    (str.rstrip, "white space at line ends"),
    (lambda line: straight_quotes(line.rstrip()), "curly quotes"),
    (lambda line: line.strip(), "indentation"),
    (normalized_line, "white space"),
)


def _without_numbers(wanted: WantedEdit) -> WantedEdit | None:
    """The edit without a view's line numbers, if every line was copied with its own number."""
    found = [_NUMBER.match(line) for line in wanted.old if line.strip()]
    numbers = [int(match[1]) for match in found if match]
    ends = {match[2] for match in found if match}
    if not numbers or len(numbers) < len(found) or numbers != sorted(set(numbers)) or len(ends) > 1:
        return None
    known = range(numbers[0], numbers[-1] + len(wanted.new) + 1)

    def bare(line: str) -> str:
        """A new line without the number that it may start with."""
        match = _NUMBER.match(line)
        return line[match.end() :] if match and {match[2]} == ends and int(match[1]) in known else line

    return WantedEdit([_NUMBER.sub("", line, count=1) for line in wanted.old], [bare(line) for line in wanted.new])


_SHOWN_PLACES = 10
_SEARCHED_LINES = 20_000


class EditError(Exception):
    """The edit was not made; the message tells the model why and where to look."""


@dataclass(frozen=True, slots=True)
class EditResult:
    """The text after the edit; lines `first` to `last` are the replacement (`last < first`: lines were removed).

    `how` names the differences that were ignored; empty for an exact match.
    """

    text: str
    first: int
    last: int
    how: str = ""


def replace(text: str, old: str, new: str) -> EditResult:
    """Replace the only passage `old` in `text` by `new`. Raises EditError if the place is not unique.

    Line ends stay: in a file with CRLF, `old` and `new` may be written with LF.
    """
    if not old.strip():
        raise EditError("old_text is empty. Give the lines to replace, or use write for a new file.")
    crlf = "\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
    body = _lf(text) if crlf else text
    if crlf or ("\r\n" in old and "\r" not in text):
        old, new = _lf(old), _lf(new)
    edited = _exactly(body, old, new) or _by_lines(body, old, new)
    if edited is None:
        raise EditError(_not_found(body, old, new))
    if edited.text == body:
        raise EditError("new_text is what is already there: the edit would change nothing.")
    return with_changes(edited, text=edited.text.replace("\n", "\r\n")) if crlf else edited


def numbered(text: str, first: int, last: int) -> str:
    """The existing lines from `first` to `last`, with their numbers."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first, last = max(first, 1), min(last, len(lines))
    width = len(str(last))
    return "\n".join(f"{n:>{width}}\t{lines[n - 1]}" for n in range(first, last + 1))


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _exactly(text: str, old: str, new: str) -> EditResult | None:
    places = list(islice(_occurrences(text, old), _SHOWN_PLACES + 1))
    if not places:
        return None
    if len(places) > 1:
        raise EditError(_several([text.count("\n", 0, place) + 1 for place in places], ""))
    start = places[0]
    first = text.count("\n", 0, start) + 1
    last = first + new.removesuffix("\n").count("\n") if new else first - 1
    return EditResult(text[:start] + new + text[start + len(old) :], first, last)


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Every position of `part`, including overlapping ones: `aa` is in `aaa` twice."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def _by_lines(text: str, old: str, new: str) -> EditResult | None:
    """The only place where the lines match apart from negligible differences."""
    lines = text.split("\n")
    end = [lines.pop()] if lines[-1] == "" else []
    try:
        recovered = recover(lines, _wanted(old, new))
    except AmbiguousMatchError as several:
        raise EditError(_several([place + 1 for place in several.places], f" ({several.how} overlooked)")) from None
    except NoMatchError:
        raise EditError(
            "The indentation or the quotes of old_text and new_text differ from the file's. "
            "View the lines and try again."
        ) from None
    if recovered is None:
        return None
    found, how = recovered
    if not found.changes:
        return EditResult(text, found.place + 1, found.place + 1, how)
    for change in reversed(found.changes):
        lines[change.start : change.end] = change.lines
    first = found.changes[0].start + 1
    grown = sum(len(change.lines) - (change.end - change.start) for change in found.changes)
    return EditResult("\n".join([*lines, *end]), first, found.changes[-1].end + grown, how)


def _wanted(old: str, new: str) -> WantedEdit:
    if not old.endswith("\n"):
        return WantedEdit(old.split("\n"), new.split("\n"))
    return WantedEdit(old[:-1].split("\n"), new.removesuffix("\n").split("\n") if new else [])


def _several(places: Sequence[int], how: str) -> str:
    shown = ", ".join(str(line) for line in places[:_SHOWN_PLACES])
    more = " and more" if len(places) > _SHOWN_PLACES else ""
    return f"old_text is there more than once{how}: at lines {shown}{more}. Add lines around it until it is unique."


def _not_found(text: str, old: str, new: str) -> str:
    message = "old_text is not in the file."
    if new.strip() and len(new) > 20 and new in text:
        line = text.count("\n", 0, text.find(new)) + 1
        message += f" new_text is already there, at line {line}: perhaps this edit was made before."
    near = _nearest(text, old)
    if near is None:
        return f"{message} No line is like it; view the file first."
    size = min(old.count("\n") + 1, 20)
    return f"{message} The nearest lines are:\n{numbered(text, near - 2, near + size + 1)}"


def _nearest(text: str, old: str) -> int | None:
    """The first line (1-based) of the passage most like `old`, or None."""
    wanted = [line.strip() for line in old.split("\n")]
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor][:400])
    best, found = 0.6, None
    for number, line in enumerate(text.split("\n")[:_SEARCHED_LINES], start=1):
        matcher.set_seq1(line.strip()[:400])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, number
    return None if found is None else max(found - anchor, 1)
