"""Ranks lessons with SQLite's full text search, whatever database stores them; needs no extra.

A repository has few lessons, so the index is built for each search: it is never stale, and only this repository's
lessons decide how rare a word is.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

from app.core.lessons import Lesson
from app.pipeline.lessons.citations import topics
from app.repo.index.terms import identifiers

MAX_WORDS = 400
"""The first words of a question, which are the title and the request."""
_MAX_READ_LENGTH = 40_000


class FullTextRanking:
    """BM25 over a lesson's words and its file's path, with names split into parts too. `module` is SQLite's."""

    def __init__(self, module: str = "fts5") -> None:
        self._module = module

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        return await asyncio.to_thread(_ranked, lessons, question, self._module)


def _ranked(lessons: Sequence[Lesson], question: str, module: str) -> tuple[Lesson, ...]:
    question_words = _question_words(question)
    by_number = {lesson.number: lesson for lesson in lessons}
    if not question_words or not by_number:
        return ()
    with closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute(f"CREATE VIRTUAL TABLE lesson USING {module}(text, path, tokenize='unicode61')")
        except sqlite3.OperationalError:  # SQLite was built without it
            return _by_shared_words(lessons, frozenset(question_words))
        rows = ((each.number, _indexed(each.text), _indexed(_path(each))) for each in lessons)
        db.executemany("INSERT INTO lesson (rowid, text, path) VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{word}"' for word in question_words)
        found = db.execute("SELECT rowid FROM lesson WHERE lesson MATCH ? ORDER BY bm25(lesson), rowid DESC", (query,))
        return tuple(by_number[number] for (number,) in found)


def _by_shared_words(lessons: Sequence[Lesson], question_words: frozenset[str]) -> tuple[Lesson, ...]:
    shared = {each: len(question_words & set(_indexed(f"{each.text} {_path(each)}").split())) for each in lessons}
    return tuple(sorted((each for each in lessons if shared[each]), key=lambda each: (-shared[each], -each.number)))


def _question_words(question: str) -> tuple[str, ...]:
    """The question's topics in their order, each once."""
    words: dict[str, None] = {}
    for word in identifiers(question[:_MAX_READ_LENGTH]):
        words.update(dict.fromkeys(_index_tokens(sorted(topics(word)))))
        if len(words) >= MAX_WORDS:
            break
    return tuple(words)[:MAX_WORDS]


def _indexed(text: str) -> str:
    return " ".join(_index_tokens(sorted(topics(text))))


def _index_tokens(words: Iterable[str]) -> list[str]:
    """Words that are one token in the index and no syntax in its query language."""
    return [plain for word in words if (plain := "".join(filter(str.isalnum, word)))]


def _path(lesson: Lesson) -> str:
    return lesson.citation.path if lesson.citation else ""
