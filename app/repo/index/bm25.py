"""BM25 over one field of all files: rare words count more, the tenth occurrence less, long files less."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log

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
