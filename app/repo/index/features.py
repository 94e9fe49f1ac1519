"""The features of one file in the index: its terms with their counts, and the names it defines."""

import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from sys import byteorder

from app.repo.index.path_kinds import is_code
from app.repo.index.terms import count_terms, identifiers
from app.repo.syntax import symbols

VERSION = 1
"""Raise it with any change to what is kept or how words become terms: older caches are then ignored."""

MAX_SOURCE_BYTES = 500_000
MAX_PROSE_BYTES = 100_000
"""Of files that are no code: what is larger is data, whose words say nothing of its purpose."""

_HEAD = struct.Struct("<IIII")
_MAX_COUNT = 0xFFFF


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Term ids in rising order with their counts: a dictionary at a tenth of its size."""

    ids: "array[int]"
    numbers: "array[int]"

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> "TermCounts":
        ordered = sorted(counts)
        return cls(array("I", ordered), array("H", [min(counts[each], _MAX_COUNT) for each in ordered]))

    def among(self, wanted: set[int]) -> Iterator[tuple[int, int]]:
        """Yield (term id, count) for the wanted terms that occur."""
        for term in wanted.intersection(self.ids):
            yield term, self.numbers[bisect_left(self.ids, term)]


@dataclass(frozen=True, slots=True)
class FileFeatures:
    """`length` is the number of terms in the text; `names` are the names that the file defines, in order."""

    length: int
    text: TermCounts
    defined: TermCounts
    names: tuple[str, ...]


EMPTY = FileFeatures(0, TermCounts.of({}), TermCounts.of({}), ())


def worth_reading(path: str, size: int) -> bool:
    return size <= (MAX_SOURCE_BYTES if is_code(path) else MAX_PROSE_BYTES)


def features_of(path: str, content: bytes) -> FileFeatures:
    """Extract a file's words and definitions; empty for binary files."""
    if b"\0" in content[:8_000]:
        return EMPTY
    counts = count_terms(identifiers(content.decode("utf-8", "replace")))
    names = tuple(dict.fromkeys(symbol.name for symbol in symbols(path, content)))
    return FileFeatures(sum(counts.values()), TermCounts.of(counts), TermCounts.of(count_terms(names)), names)


def pack(features: FileFeatures) -> bytes:
    """Little-endian and compressed; the compression's checksum detects a damaged record."""
    parts = [features.text.ids, features.text.numbers, features.defined.ids, features.defined.numbers]
    names = "\n".join(features.names).encode("utf-8", "surrogatepass")
    head = _HEAD.pack(features.length, len(features.text.ids), len(features.defined.ids), len(names))
    return zlib.compress(head + b"".join(map(_little_endian, parts)) + names, 1)


def unpack(record: bytes) -> FileFeatures:
    """Raises ValueError for anything that `pack` did not produce."""
    try:
        data = zlib.decompress(record)
        length, terms, defined, names_length = _HEAD.unpack_from(data)
    except (zlib.error, struct.error) as error:
        raise ValueError(str(error)) from None
    if len(data) != _HEAD.size + 6 * (terms + defined) + names_length:
        raise ValueError("a record of another length")
    cuts = [_HEAD.size]
    for size in (4 * terms, 2 * terms, 4 * defined, 2 * defined):
        cuts.append(cuts[-1] + size)
    names = data[cuts[4] :].decode("utf-8", "surrogatepass")
    return FileFeatures(
        length,
        TermCounts(_array("I", data[cuts[0] : cuts[1]]), _array("H", data[cuts[1] : cuts[2]])),
        TermCounts(_array("I", data[cuts[2] : cuts[3]]), _array("H", data[cuts[3] : cuts[4]])),
        tuple(names.split("\n")) if names else (),
    )


def _little_endian(values: "array[int]") -> bytes:
    if byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _array(code: str, data: bytes) -> "array[int]":
    values = array(code)
    values.frombytes(data)
    if byteorder == "big":
        values.byteswap()
    return values
