"""Edits of real files: a passage, the change that is meant, and what a model makes of it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

MOST_LINES = 9


@dataclass(frozen=True, slots=True)
class Source:
    """A file as text; bytes that are no UTF-8 are kept as surrogates."""

    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Without their ends."""
        return self.text.replace("\r\n", "\n").split("\n")


@dataclass(frozen=True, slots=True)
class IntendedEdit:
    """Lines `begin` to `end` of a source become `new`; the first and the last `around` of both are the same."""

    source: Source
    begin: int
    end: int
    new: list[str]
    around: tuple[int, int]
    sent: tuple[str, ...] = ()
    """The old lines as they were spoiled already."""

    @property
    def old(self) -> list[str]:
        return list(self.sent) or self.source.lines[self.begin : self.end]

    @property
    def text(self) -> str:
        """The file as it is to be."""
        lines = self.source.lines
        after = "\n".join([*lines[: self.begin], *self.new, *lines[self.end :]])
        return after.replace("\n", "\r\n") if "\r\n" in self.source.text else after


@dataclass(frozen=True, slots=True)
class Case:
    """An edit as it is sent, of `source` as it is by then, and the text it is to give; None where it has no place."""

    kind: str
    source: Source
    old: str
    new: str
    expected: str | None


def intended_edits(source: Source, random_: random.Random) -> IntendedEdit | None:
    """A change of one to three lines with lines around, at a passage that is there once."""
    lines = source.lines
    if len(lines) < 8:
        return None
    size = random_.randint(3, min(MOST_LINES, len(lines) - 2))
    begin = random_.randint(0, len(lines) - size - 1)
    before, after = random_.randint(1, size - 2), 0
    touched = random_.randint(1, min(3, size - before - 1))
    after = size - before - touched
    old = lines[begin : begin + size]
    middle = old[before : before + touched]
    if not any(len(line.strip()) > 8 for line in middle) or "\n".join(lines).count("\n".join(old)) != 1:
        return None
    new = [*old[:before], *_changed(middle, random_), *old[before + touched :]]
    return None if new == old else IntendedEdit(source, begin, begin + size, new, (before, after))


def _changed(lines: Sequence[str], random_: random.Random) -> list[str]:
    """What models do to lines: another word, a line more, a line less, a line deeper."""
    made = list(lines)
    index = random_.choice([i for i, line in enumerate(made) if len(line.strip()) > 8])
    indent = made[index][: len(made[index]) - len(made[index].lstrip())]
    match random_.randrange(4):
        case 0:
            made[index] = indent + made[index].strip().replace(" ", " renamed_", 1)
        case 1:
            made.insert(index, f"{indent}checked = renamed_{random_.randrange(1000)}(value)")
        case 2:
            deeper = "\t" if "\t" in indent else "    "
            made[index : index + 1] = [f"{indent}if renamed:", f"{indent}{deeper}{made[index].strip()}"]
        case _:
            made[index] = f"{indent}renamed_{random_.randrange(1000)} = compute(1, 2)"
    return made
