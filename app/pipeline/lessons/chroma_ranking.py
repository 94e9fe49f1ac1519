"""Ranks lessons with a Chroma store (`agent-fix[chroma]`): a collection for each repository, updated on each use.

The database stays the source: lessons deleted there are removed here before every search.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Any

from app.core.errors import AgentFixError, ExitCode
from app.core.lessons import Lesson, LessonRanking

INSTALL_HINT = "pip install 'agent-fix[chroma]', or set AGENT_FIX_LESSONS=fts."

logger = logging.getLogger(__name__)


def check_installed() -> None:
    """Raises AgentFixError if the extra is not installed."""
    if util.find_spec("chromadb") is None:
        raise AgentFixError("Chroma is not installed.", code=ExitCode.CONFIG, hint=INSTALL_HINT)


class ChromaRanking:
    """Nearest by Chroma's own or the given embedding; if that fails, ranked by `otherwise`."""

    def __init__(
        self, directory: Path, repository: str, fallback: LessonRanking, *, embedding: Callable[[], Any] | None = None
    ) -> None:
        self._directory = directory
        self._name = f"lessons-{hashlib.sha256(repository.encode()).hexdigest()[:32]}"
        self._fallback = fallback
        self._embedding = embedding

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        if not lessons or not question.strip():
            return ()
        asking = asyncio.to_thread(self._ranked, lessons, question)
        (found,) = await asyncio.gather(asking, return_exceptions=True)
        if not isinstance(found, BaseException):
            return found
        # Its embedding may need a network, or its files may be of another version; any failure falls back to words.
        logger.warning("lessons are searched by words, because Chroma failed (%s)", type(found).__name__)
        return await self._fallback.rank(lessons, question)

    def _ranked(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        by_id = {_identity(lesson): lesson for lesson in lessons}
        collection = self._collection()
        stored = set(collection.get(include=[])["ids"])
        if removed := sorted(stored - by_id.keys()):
            collection.delete(ids=removed)
        if new := sorted(by_id.keys() - stored):
            collection.add(ids=new, documents=[by_id[each].text for each in new])
        found = collection.query(query_texts=[question], n_results=len(by_id), include=[])
        return tuple(by_id[each] for each in found["ids"][0] if each in by_id)

    def _collection(self) -> Any:
        """Opened anew each time, because a job searches once. Sends no telemetry."""
        chromadb = import_module("chromadb")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(path=str(self._directory), settings=settings)
        given = {} if self._embedding is None else {"embedding_function": self._embedding()}
        return client.get_or_create_collection(self._name, configuration={"hnsw": {"space": "cosine"}}, **given)


def _identity(lesson: Lesson) -> str:
    """Another text gives another entry."""
    return f"{lesson.number}-{hashlib.sha256(lesson.text.encode()).hexdigest()[:16]}"
