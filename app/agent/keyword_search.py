"""Searches for a description: files with the rarest of its words, and their most relevant lines.

file = kind * sum over words of rarity * (occurrences / (occurrences + 2) + 1 if the path has the word)

The kinds are those of `app.repo.index.ranking`: tests, documentation and files that are not source count less.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from app.repo.index.query import STOP_WORDS
from app.repo.index.ranking import kind_of
from app.repo.index.terms import identifiers, terms

MAX_WORDS = 10
MAX_FILES = 30
"""Files whose lines are searched."""
SHOWN_FILES = 10
SHOWN_LINES = 3
_MIN_WORD_LENGTH = 3
_DEFINES = re.compile(
    r"^\s*(?:export |default |public |private |protected |static |abstract |async |pub(?:\([^)]*\))? )*"
    r"(?:def|class|function\*?|func|fn|struct|enum|interface|type|trait|impl|module)\b"
)


class FoundLine(NamedTuple):
    """A line of a file that has one of the words."""

    path: str
    number: int
    text: str


def words_of(query: str) -> tuple[str, ...]:
    """The search words, without endings, with names split into parts and without stop words."""
    found = [part for word in identifiers(query) for part in (terms(word)[1:] or terms(word))]
    informative = [word for word in dict.fromkeys(found) if len(word) >= _MIN_WORD_LENGTH and word not in STOP_WORDS]
    return tuple(informative[:MAX_WORDS])


def word_rarity(having: Mapping[str, Sequence[str]], files: int) -> dict[str, float]:
    """The weight of each word: the fewer files have it, the more it weighs."""
    return {word: log(1 + files / (1 + len(paths))) for word, paths in having.items() if paths}


def best_files(having: Mapping[str, Sequence[str]], rare: Mapping[str, float]) -> list[str]:
    """Files with at least two of the words, best first."""
    shared: dict[str, list[str]] = {}
    for word in rare:
        for path in having[word]:
            shared.setdefault(path, []).append(word)
    worth = {
        path: kind_of(path) * sum(rare[word] * (1 + (word in path.lower())) for word in words)
        for path, words in shared.items()
        if len(words) > 1
    }
    return sorted(worth, key=lambda path: (-worth[path], path))[:MAX_FILES]


def best_lines(lines: Iterable[FoundLine], rare: Mapping[str, float]) -> list[FoundLine]:
    """The lines to show: those of the best files, each with its best lines in order."""
    by_file: dict[str, list[FoundLine]] = {}
    for line in lines:
        by_file.setdefault(line.path, []).append(line)
    worth = {path: _worth(path, of_file, rare) for path, of_file in by_file.items()}
    best = sorted(by_file, key=lambda path: (-worth[path], path))[:SHOWN_FILES]
    return [line for path in best for line in sorted(_best(by_file[path], rare), key=lambda each: each.number)]


def _worth(path: str, lines: Sequence[FoundLine], rare: Mapping[str, float]) -> float:
    total = 0.0
    lowered = [line.text.lower() for line in lines]
    for word, rarity in rare.items():
        number = sum(word in text for text in lowered)
        total += rarity * (number / (number + 2) + (word in path.lower()))
    return kind_of(path) * total


def _best(lines: Sequence[FoundLine], rare: Mapping[str, float]) -> list[FoundLine]:
    def is_informative(line: FoundLine) -> float:
        text = line.text.lower()
        return sum(rarity for word, rarity in rare.items() if word in text) * (1.5 if _DEFINES.match(line.text) else 1)

    return sorted(lines, key=lambda line: (-is_informative(line), line.number))[:SHOWN_LINES]
