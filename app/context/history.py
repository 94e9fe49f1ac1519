"""What the past says: files that were changed by commits whose subjects resemble the issue."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import sqrt
from typing import NamedTuple

from app.context.bm25 import rarity
from app.context.kinds import is_source
from app.context.terms import identifiers, term_id, terms

MAX_COMMITS = 2_500
"""As many of the newest commits as are worth giving; older ones speak of other code."""

LARGE_COMMIT = 15
"""Commits that touch more files are sweeps (formatting, renames) and say nothing of one file."""
_NEIGHBOURS = 20
_SHORT_SUBJECT = 3
"""Added to a subject's length, so that one shared word in a subject of two does not win."""


class Change(NamedTuple):
    """A commit before the base: its subject and the files it changed."""

    subject: str
    paths: tuple[str, ...]


def read_log(output: bytes) -> Iterator[Change]:
    """Changes from `git log --no-merges --name-only -z --format=%x01%s`."""
    for record in output.decode("utf-8", "surrogateescape").split("\x01")[1:]:
        subject, *paths = (part.strip("\n") for part in record.split("\0"))
        yield Change(subject, tuple(path for path in paths if path))


def resembling(history: Iterable[Change], weights: Mapping[int, float]) -> dict[str, float]:
    """Files of the nearest commits, between 0 and 1 by how much the subjects share with the query."""
    changes = [(_subject_terms(change.subject), paths) for change in history if (paths := _sources(change.paths))]
    rare = rarity([[(term, 1.0) for term in subject] for subject, _ in changes])
    nearness = []
    for subject, paths in changes:
        shared = sum(weights[term] * rare[term] for term in subject if term in weights)
        if shared:
            nearness.append((shared / sqrt(_SHORT_SUBJECT + len(subject)), paths))
    nearness.sort(key=lambda each: -each[0])
    found: Counter[str] = Counter()
    for near, paths in nearness[:_NEIGHBOURS]:
        for path in paths:
            found[path] += near * near / len(paths)  # type: ignore[assignment] # Counter counts in floats as well
    best = max(found.values(), default=1.0)
    return {path: worth / best for path, worth in found.items()}


def _sources(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if is_source(path)] if len(paths) <= LARGE_COMMIT else []


def _subject_terms(subject: str) -> frozenset[int]:
    return frozenset(term_id(term) for word in identifiers(subject) for term in terms(word))
