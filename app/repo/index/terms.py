"""Splits identifiers and prose into the same terms, as 32-bit ids."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log
from zlib import crc32

Hits = Sequence[tuple[int, float]]
"""(term id, how often) of the query's terms in one file."""


def rarity(hits: Iterable[Hits]) -> dict[int, float]:
    """The inverse document frequency of each term that occurs."""
    frequency: Counter[int] = Counter()
    files = 0
    for file in hits:
        files += 1
        frequency.update(term for term, _ in file)
    return {term: log(1 + (files - number + 0.5) / (number + 0.5)) for term, number in frequency.items()}


def bm25(
    hits: Sequence[Hits],
    lengths: Sequence[float] | None,
    weights: Mapping[int, float],
    *,
    k1: float,
    b: float = 0.0,
    rare: Mapping[int, float] | None = None,
) -> list[float]:
    """One score per file, in the order of `hits`; without `lengths` all files count as equally long.

    `rare` holds the terms' rarity if it is already known.
    """
    rare = rarity(hits) if rare is None else rare
    term_weights = {term: weights[term] * rarity for term, rarity in rare.items() if term in weights}
    average = (sum(lengths) / len(lengths) if lengths else 0) or 1.0
    scores = []
    for position, file in enumerate(hits):
        norm = k1 * (1 - b + b * lengths[position] / average) if lengths else k1
        scores.append(sum(term_weights[term] * number * (k1 + 1) / (number + norm) for term, number in file))
    return scores


_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_FOREIGN_PART = re.compile(r"[^\W\d_]+|\d+")
_VOWELS = frozenset("aeiouy")
_MAX_WORD = 80
"""Longer words are data (base64, hashes), not names."""


def identifiers(text: str) -> list[str]:
    return _IDENTIFIER.findall(text)


def term_id(term: str) -> int:
    """A stable id: the same in every process and version of Python."""
    return crc32(term.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=200_000)
def terms(identifier: str) -> tuple[str, ...]:
    """The whole identifier and its parts: `HTTPServer_errors` → httpserverror, http, server, error.

    The whole is joined without separators, so that `dryRun`, `dry_run`, `dry-run` and "dry run" match.
    """
    if len(identifier) > _MAX_WORD:
        return ()
    found = _PART.findall(identifier) if identifier.isascii() else _FOREIGN_PART.findall(identifier)
    parts = [stem(part.lower()) for part in found if len(part) > 1 or not part.isascii()]
    return tuple(parts) if len(parts) < 2 else ("".join(parts), *parts)


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


def stem(word: str) -> str:
    """Remove common endings: documents, documented, documenting → document. The same for code and prose."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and _VOWELS & set(word[: -len(ending)]):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
