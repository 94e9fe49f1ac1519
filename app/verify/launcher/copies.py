"""Copies of tests that must pass, or must fail, whenever the original passes: what all languages have in common."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Generic, Literal, NamedTuple, TypeVar

from tree_sitter import Node

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


def written(path: str, content: bytes | None) -> FileChange:
    return FileChange(path=path, mode="100644", content=content)


_ALTERED_COPIES = 2
"""Maximum number of altered copies of one test."""
T = TypeVar("T")


class LocatedTest(NamedTuple, Generic[T]):
    """A test in a file: its bytes with what belongs to it, the bytes of its name, and what its language knows of it."""

    path: str
    start: int
    end: int
    name: tuple[int, int]
    inner: T


class CopiesOfTests(ABC, Generic[T]):
    """Makes copies of chosen tests. `contents` has the files that may contain them."""

    between = b"\n\n"
    """What separates two tests."""
    moves = False
    """The file with the copies takes the place of the original."""

    def __init__(self, contents: Mapping[str, bytes], random: Random, taken: Iterable[str] = ()) -> None:
        self.contents = contents
        self.random = random
        self.names = CopyNames(random, taken)

    @abstractmethod
    def locate(self, name: str) -> LocatedTest[T] | None:
        """Where the test of an id is written."""

    @abstractmethod
    def notices(self, path: str, tests: Sequence[LocatedTest[T]]) -> bool:
        """True if a test of the file may notice its own name, its file's, or its text: then it is not renamed."""

    @abstractmethod
    def renamed_id(self, original: str, test: LocatedTest[T], path: str, name: str) -> str: ...

    @abstractmethod
    def fresh_name(self, test: LocatedTest[T]) -> str: ...

    @abstractmethod
    def fresh_path(self, path: str) -> str:
        """Another name for the file of the copies; the same name if they have to stay where they are."""

    @abstractmethod
    def alterations(self, test: LocatedTest[T]) -> Iterator[Alteration]: ...

    @abstractmethod
    def failing_end(self, test: LocatedTest[T]) -> ByteEdit: ...

    @abstractmethod
    def plain_failure(self, ids: Sequence[str]) -> CopiedTests:
        """A new file with a test that fails."""

    def made(self, ids: Sequence[str], *, in_place: bool) -> CopiedTests:
        """Renamed copies, unchanged and altered, unless the test may notice its name; or altered ones `in_place`."""
        files: dict[str, dict[int, tuple[LocatedTest[T], list[str]]]] = {}
        for name in ids:  # several may be one function with other parameters
            if test := self.locate(name):
                files.setdefault(test.path, {}).setdefault(test.start, (test, []))[1].append(name)
        copies = [self.plain_failure(ids)]
        for path, by_start in files.items():
            tests = list(by_start.values())
            stay = in_place or self.notices(path, [test for test, _ in tests])
            copies.append(self._in_place(path, tests) if stay else self._elsewhere(path, tests))
        return CopiedTests(
            files=tuple(file for one in copies for file in one.files),
            same={copy: original for one in copies for copy, original in one.same.items()},
            altered={copy: original for one in copies for copy, original in one.altered.items()},
            failing=tuple(name for one in copies for name in one.failing),
        )

    def _elsewhere(self, path: str, tests: Sequence[tuple[LocatedTest[T], list[str]]]) -> CopiedTests:
        content, fresh = self.contents[path], self.fresh_path(path)
        edits: list[ByteEdit] = []
        same, altered = dict[str, str](), dict[str, str]()
        for test, originals in tests:
            for change in self._changes(test)[:_ALTERED_COPIES]:
                name = self.fresh_name(test)
                renamed = [*change, ByteEdit(*test.name, name.encode())]
                text = apply_edits(content, renamed, test.start, test.end)
                at = self.random.choice((test.start, test.end))
                edits.append(ByteEdit(at, at, text + self.between if at == test.start else self.between + text))
                altered |= {self.renamed_id(one, test, fresh, name): one for one in originals}
            name = self.fresh_name(test)
            edits.append(ByteEdit(*test.name, name.encode()))
            same |= {self.renamed_id(one, test, fresh, name): one for one in originals}
        gone = [written(path, None)] if self.moves and fresh != path else []
        return CopiedTests(files=(written(fresh, apply_edits(content, edits)), *gone), same=same, altered=altered)

    def _in_place(self, path: str, tests: Sequence[tuple[LocatedTest[T], list[str]]]) -> CopiedTests:
        edits = [edit for test, _ in tests for edit in self._changes(test)[0]]
        altered = {name: name for _, originals in tests for name in originals}
        return CopiedTests(files=(written(path, apply_edits(self.contents[path], edits)),), altered=altered)

    def _changes(self, test: LocatedTest[T]) -> list[list[ByteEdit]]:
        """In random order, values first, because an object that equals everything passes a negated comparison too."""
        found = list(self.alterations(test))
        mixed = sorted(self.random.sample(found, len(found)), key=lambda one: one.kind != "value")
        return [one.edits for one in mixed] or [[self.failing_end(test)]]


def always_reached(block: Node, endings: frozenset[str], functions: frozenset[str]) -> Iterator[Node]:
    """Statements that are always executed, as far as that is certain."""

    def inside(node: Node) -> Iterator[Node]:
        yield node
        for child in node.named_children:
            if child.type not in functions:
                yield from inside(child)

    for statement in block.named_children:
        if any(node.type in endings for node in inside(statement)):
            return
        yield statement
