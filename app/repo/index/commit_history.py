"""Ranks files by history: commits whose subjects resemble the issue, and all subjects of each file."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from app.repo.index.path_kinds import is_source
from app.repo.index.terms import bm25, identifiers, rarity, term_id, terms

MAX_COMMITS = 2_500
"""As many of the newest commits as are worth giving; older ones speak of other code."""

LARGE_COMMIT = 15
"""Commits that touch more files are sweeps (formatting, renames) and say nothing of one file."""
_SIMILAR_COMMITS = 20
_SHORT_SUBJECT = 3
"""Added to a subject's length, so that one shared word in a subject of two does not win."""


class CommitChange(NamedTuple):
    """A commit before the base: its subject and the files it changed."""

    subject: str
    paths: tuple[str, ...]


class CommitSubject(NamedTuple):
    """A commit's subject as terms, and the `number` source files it changed that still exist."""

    terms: frozenset[int]
    paths: Sequence[str]
    number: int


def read_log(output: bytes) -> Iterator[CommitChange]:
    """Parse changes from `git log --no-merges --name-only -z --format=%x01%s`."""
    for record in output.decode("utf-8", "surrogateescape").split("\x01")[1:]:
        subject, *paths = (part.strip("\n") for part in record.split("\0"))
        yield CommitChange(subject, tuple(path for path in paths if path))


def subjects(history: Iterable[CommitChange], present: Collection[str]) -> list[CommitSubject]:
    """The commits that changed source files; `present` are the files of the base."""
    return [
        CommitSubject(_terms(change.subject), [path for path in sources if path in present], len(sources))
        for change in history
        if (sources := _source_paths(change.paths))
    ]


def rarity_of(commits: Iterable[CommitSubject]) -> dict[int, float]:
    return rarity([[(term, 1.0) for term in subject.terms] for subject in commits])


def similar_commit_scores(
    commits: Iterable[CommitSubject], weights: Mapping[int, float], rare: Mapping[int, float]
) -> dict[str, float]:
    """Files of the most similar commits, scored between 0 and 1 by how much the subjects share with the query."""
    ranked = []
    for subject in commits:
        shared = sum(weights[term] * rare[term] for term in subject.terms if term in weights)
        if shared:
            ranked.append((shared / sqrt(_SHORT_SUBJECT + len(subject.terms)), subject))
    ranked.sort(key=lambda each: -each[0])
    found: dict[str, float] = {}
    for similarity, subject in ranked[:_SIMILAR_COMMITS]:
        for path in subject.paths:
            found[path] = found.get(path, 0.0) + similarity * similarity / subject.number
    return _relative_to_best(found)


def subject_scores(
    commits: Iterable[CommitSubject], weights: Mapping[int, float], rare: Mapping[int, float], *, k1: float, b: float
) -> dict[str, float]:
    """Files scored between 0 and 1 by BM25 over the subjects of all their commits, joined to one text each.

    A subject that applies to several files counts less for each: by the square root of their number.
    """
    texts: dict[str, dict[int, float]] = {}
    lengths: dict[str, float] = {}
    for subject in commits:
        share = 1 / sqrt(subject.number)
        wanted = subject.terms & weights.keys()
        for path in subject.paths:
            lengths[path] = lengths.get(path, 0.0) + len(subject.terms) * share
            text = texts.setdefault(path, {})
            for term in wanted:
                text[term] = text.get(term, 0.0) + share
    hits = [list(text.items()) for text in texts.values()]
    scores = bm25(hits, [lengths[path] for path in texts], weights, k1=k1, b=b, rare=rare)
    return _relative_to_best(dict(zip(texts, scores, strict=True)))


def _relative_to_best(found: Mapping[str, float]) -> dict[str, float]:
    best = max(found.values(), default=0.0) or 1.0
    return {path: score / best for path, score in found.items() if score > 0}


def _source_paths(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if is_source(path)] if len(paths) <= LARGE_COMMIT else []


def _terms(subject: str) -> frozenset[int]:
    return frozenset(term_id(term) for word in identifiers(subject) for term in terms(word))
