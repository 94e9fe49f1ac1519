"""Edits of a test's text, replacements for literal values, and neutral names for copies of tests."""

import re
from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal, NamedTuple

from app.core.patch import FileChange
from app.verify.launcher.base import CopiedTests

_WORDS = re.findall(
    r"\w+",
    """
    amount average balance basic border branch bulk cached case chain column config count created cycle date
    default detail digits draft edge empty entry event exact field filter final first flags format group header
    index inner input item kept label large last layout length level limit line list long lookup margin marks
    match merged middle mixed model month names narrow nested next number offset option order other outer output
    pages pair parts path plain point price prior query quote range record repeat report result rounded rows
    sample scale second segment short simple single sorted source span spread state steps sums table tail third
    title total trail types unit update usage value views whole width window words year zero zone
    """,
)


class CopyNames:
    """Fresh names from a seeded source; never repeated, and none of `taken`."""

    def __init__(self, random: Random, taken: Iterable[str] = ()) -> None:
        self._random = random
        self._taken = set(taken)

    def fresh(self, separator: str = "_") -> str:
        while True:
            name = separator.join(self._random.sample(_WORDS, 3))
            if name not in self._taken:
                self._taken.add(name)
                return name


class ByteEdit(NamedTuple):
    """Bytes from `start` to `end` become `text`."""

    start: int
    end: int
    text: bytes


class Alteration(NamedTuple):
    """`value`: the compared value is replaced; `inverse`: the assertion is negated."""

    kind: Literal["value", "inverse"]
    edits: list[ByteEdit]


def apply_edits(content: bytes, edits: Sequence[ByteEdit], start: int = 0, end: int | None = None) -> bytes:
    """The bytes of a range with the edits applied."""
    text, at = b"", start
    for edit in sorted(edits):
        text += content[at : edit.start] + edit.text
        at = edit.end
    return text + content[at : len(content) if end is None else end]


def different_number(value: float, random: Random) -> float:
    """Another number of the same kind, as plausible as the first."""
    if isinstance(value, int):
        return value + random.choice((-2, -1, 1, 2, 3, 10))
    other = value + random.choice((-1.0, -0.5, 0.5, 1.0))
    return other if other != value else value / 2 if value / 2 != value else 1.5


_SIGNS = frozenset(" -_.,:;/+")


def different_text(text: str, random: Random) -> str:
    """The text with one letter or digit changed, or one sign doubled or removed: cheating code may ignore signs."""
    places = [at for at, letter in enumerate(text) if letter in _SIGNS or (letter.isascii() and letter.isalnum())]
    if not places:
        return text + random.choice("aeost")
    at = random.choice(places)
    if text[at] in _SIGNS:
        return text[:at] + random.choice(("", 2 * text[at])) + text[at + 1 :]
    kind = "0123456789" if text[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    letter = random.choice([one for one in kind if one != text[at].lower()])
    return text[:at] + (letter.upper() if text[at].isupper() else letter) + text[at + 1 :]


def chosen(found: Sequence[Alteration], random: Random) -> list[list[ByteEdit]]:
    """In random order, values first, because an object that equals everything passes a negated comparison too."""
    mixed = random.sample(list(found), len(found))
    return [one.edits for one in sorted(mixed, key=lambda one: one.kind != "value")]


def written(path: str, content: bytes | None) -> FileChange:
    return FileChange(path=path, mode="100644", content=content)


def joined(copies: Sequence[CopiedTests]) -> CopiedTests:
    return CopiedTests(
        files=tuple(file for one in copies for file in one.files),
        same={copy: original for one in copies for copy, original in one.same.items()},
        altered={copy: original for one in copies for copy, original in one.altered.items()},
        failing=tuple(name for one in copies for name in one.failing),
    )
