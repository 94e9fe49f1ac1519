"""Ranks lessons by meaning: an embedding model maps lessons and question to vectors, and the nearest come first."""

import asyncio
import logging
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import sqrt
from typing import Final, Protocol

from app.core.errors import AgentFixError
from app.core.lessons import Lesson, LessonRanking

Vector = Sequence[float]
Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""One vector for each text, all of one length. Raises AgentFixError if the model cannot be used."""

MIN_LIKENESS: Final = 0.2
"""Cosine below which two texts are unrelated."""
MAX_QUESTION_LENGTH: Final = 8_000
"""Characters of a question that are used: models accept some thousand tokens."""

logger = logging.getLogger(__name__)


class VectorStore(Protocol):
    """Stores the vectors of one repository's lessons, by number. Blocking."""

    def vectors(self, model: str) -> dict[int, bytes]: ...

    def store_vectors(self, model: str, found: Mapping[int, bytes]) -> None: ...


class EmbeddingRanking:
    """Cosine over stored vectors. If the model cannot be used, falls back to another ranking."""

    def __init__(self, model: str, embed: Embed, vectors: VectorStore, fallback: LessonRanking) -> None:
        self._model = model
        self._embed = embed
        self._vectors = vectors
        self._fallback = fallback

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        if not lessons or not question.strip():
            return ()
        try:
            return await self._ranked(lessons, question)
        except AgentFixError as error:
            logger.warning("lessons are searched by words: %s", error.message)
            return await self._fallback.rank(lessons, question)

    async def _ranked(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        stored = await asyncio.to_thread(self._vectors.vectors, self._model)
        vectors = {number: unpacked(kept) for number, kept in stored.items()}
        new = [lesson for lesson in lessons if lesson.number not in vectors]
        question_vector, *new_vectors = await self._embed(
            [question[:MAX_QUESTION_LENGTH], *(lesson.text for lesson in new)]
        )
        fresh = {lesson.number: vector for lesson, vector in zip(new, new_vectors, strict=True)}
        if fresh:
            kept = {number: packed(vector) for number, vector in fresh.items()}
            await asyncio.to_thread(self._vectors.store_vectors, self._model, kept)
        all_vectors = {**vectors, **fresh}
        likeness = {lesson.number: cosine(question_vector, all_vectors[lesson.number]) for lesson in lessons}
        near = [lesson for lesson in lessons if likeness[lesson.number] >= MIN_LIKENESS]
        return tuple(sorted(near, key=lambda lesson: (-likeness[lesson.number], -lesson.number)))


def cosine(one: Vector, other: Vector) -> float:
    """Between -1 and 1; 0 if the two cannot be compared."""
    lengths = sqrt(sum(x * x for x in one)) * sqrt(sum(y * y for y in other))
    if len(one) != len(other) or not lengths:
        return 0.0
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths


def packed(vector: Vector) -> bytes:
    return array("f", vector).tobytes()


def unpacked(kept: bytes) -> Vector:
    found = array("f")
    found.frombytes(kept)
    return found
