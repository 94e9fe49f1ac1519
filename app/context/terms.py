"""Words that code and prose share: identifiers, whole and in their parts, as 32-bit ids."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from zlib import crc32

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")
_MAX_WORD = 80
"""Longer words are data (base64, hashes), not names."""


def identifiers(text: str) -> list[str]:
    return _IDENTIFIER.findall(text)


def term_id(term: str) -> int:
    """A stable id: the same in every process and version of Python."""
    return crc32(term.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=200_000)
def terms(identifier: str) -> tuple[str, ...]:
    """`HTTPServer_errors` → httpserver_errors, http, server, error."""
    if len(identifier) > _MAX_WORD:
        return ()
    parts = [_singular(part.lower()) for part in _PART.findall(identifier) if len(part) > 1 or not part.isascii()]
    if len(parts) == 1:
        return (parts[0],)
    return (identifier.strip("_").lower(), *parts)


@lru_cache(maxsize=200_000)
def _term_ids(identifier: str) -> tuple[int, ...]:
    return tuple(map(term_id, terms(identifier)))


def count_terms(words: Iterable[str]) -> Counter[int]:
    """How often each term occurs in these identifiers."""
    counts: Counter[int] = Counter()
    for word, number in Counter(words).items():
        for term in _term_ids(word):
            counts[term] += number
    return counts


def _singular(word: str) -> str:
    """Plural endings off (Harman's weak stemmer); enough for names, and never wrong by much."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-1]
