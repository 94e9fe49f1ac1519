"""Lessons of a repository: which of an agent's facts are kept, and the few that a later job is shown.

An agent submits facts with its change. One is kept if a line of the file that it names is about the same subject.
Later jobs see those whose words, or whose file's path, are most like the issue. A repository has few lessons, so the
index is built for each search: it is never stale, and only this repository's lessons decide how rare a word is.

A lesson is data for the model. It gives no rights, and every change is verified whatever the agent was shown. Nothing
is learned from a pull request's branch: it may be a stranger's, and may never be merged.
"""

import asyncio
import hashlib
import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.agent.base import Submission
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Job
from app.core.lessons import AGENT, MAX_TEXT, Citation, Lesson, LessonDraft, LessonRanking
from app.core.patch import Tree
from app.core.redaction import find_secrets
from app.core.task import Task
from app.core.text import count, one_line, visible
from app.core.verification import VerifiedPatch
from app.jobs.lessons import SqlLessonStore
from app.repo.index.terms import identifiers, stem, terms

logger = logging.getLogger(__name__)

MIN_LENGTH: Final = 12
"""Characters that a fact needs."""
MAX_FROM_AGENT: Final = 3
TESTED_VERDICTS: Final = frozenset({"proved", "tested"})
_AGENT_LESSON = re.compile(r"\s*`?(?P<path>[^\s`:]+)`?(?::\d+)?\s*(?::|[-\u2013\u2014]|\s)\s*(?P<fact>\S.*)", re.DOTALL)


class LessonRefusedError(ValueError):
    """Why a text cannot be a lesson, in a sentence."""


def check_lesson(text: str) -> str:
    """The text as one line, as people see it. Raises LessonRefusedError if it is too long or has a secret."""
    shown = one_line(visible(text).text)
    if len(shown) < MIN_LENGTH:
        raise LessonRefusedError(f"It is shorter than {MIN_LENGTH} characters.")
    if len(shown) > MAX_TEXT:
        raise LessonRefusedError(f"It has {len(shown):,} characters; the limit is {MAX_TEXT}.")
    if find_secrets(shown):
        raise LessonRefusedError("It seems to contain a secret.")
    return shown


@dataclass(frozen=True, slots=True)
class JobExperience:
    """What lessons are drawn from: the base, the accepted change, and what the agent said of it."""

    job: Job
    tree: Tree
    accepted: VerifiedPatch | None
    submission: Submission | None = None


def lessons_of(experience: JobExperience) -> tuple[LessonDraft, ...]:
    """At most three, each with a line of the base about the same subject; none unless the change is at least tested."""
    accepted, submission = experience.accepted, experience.submission
    if accepted is None or submission is None or experience.job.task.follows_up:
        return ()
    if accepted.verification.verdict not in TESTED_VERDICTS:
        return ()
    after = {change.path: change.content for change in accepted.patch.changes}
    drafts = (_supported(experience, text, after) for text in submission.lessons[:MAX_FROM_AGENT])
    unique = {draft.about: draft for draft in drafts if draft is not None}
    return tuple(unique.values())


def _supported(experience: JobExperience, text: str, after: Mapping[str, bytes | None]) -> LessonDraft | None:
    match = _AGENT_LESSON.fullmatch(text)
    if match is None:
        return None
    try:
        fact = check_lesson(match["fact"])
    except LessonRefusedError:
        return None
    path = match["path"].removeprefix("/workspace/").removeprefix("./")
    citation = find_citation(experience.tree, path, fact, after)
    if citation is None:
        return None
    return LessonDraft(text=fact, kind="trap", citation=citation, job=experience.job.id, author=AGENT)


MAX_BYTES = 1_000_000
_MIN_LINE = 6
_SYMLINK = "120000"
_COMMON_WORDS = """
a an and are as at be been before but by can do does done each every file files first for from had has have
here if in into is it its line must need needs no not of off on one only or other over own same should so such
than that the their them then there these they this to too under until up use used uses using via was way were
what when where which while who why will with without would you your code repository project test tests thing
lesson
"""
_STOP_WORDS = frozenset(form for word in _COMMON_WORDS.split() for form in (word, stem(word)))
"""Words that do not make two texts similar."""


def topics(text: str) -> frozenset[str]:
    """The words of a text that show its subject, identifiers whole and in parts."""
    found = {term for word in identifiers(text) for term in terms(word)}
    return frozenset(term for term in found if term not in _STOP_WORDS and (len(term) > 1 or not term.isascii()))


def find_citation(tree: Tree, path: str, text: str, after: Mapping[str, bytes | None] | None = None) -> Citation | None:
    """The line of a file that shares most words with a text; None if no line shares any.

    `after` are files as a patch leaves them: a line that the patch removes does not count.
    """
    wanted = topics(text)
    remains = None if after is None or path not in after else frozenset(_stripped(after[path] or b""))
    best, most = "", 0
    for line in _lines(tree, path):
        shared = len(wanted & topics(line)) if len(line) >= _MIN_LINE else -1
        if shared > most and (remains is None or line in remains):
            best, most = line, shared
    return Citation(path=path, commit=tree.commit, digest=_digest(best)) if best else None


def holds(tree: Tree, citation: Citation) -> bool:
    """True if the file still has the line, whatever its indentation and position."""
    return any(_digest(line) == citation.digest for line in _lines(tree, citation.path))


def _lines(tree: Tree, path: str) -> Iterator[str]:
    entry = tree.entries().get(path)
    if entry is None or entry.mode == _SYMLINK or entry.size > MAX_BYTES:
        return iter(())
    return _stripped(tree.read(path))


def _stripped(content: bytes) -> Iterator[str]:
    return (line.strip() for line in content.decode("utf-8", "replace").split("\n"))


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:32]


def lessons_for_model(lessons: Sequence[Lesson]) -> str:
    """For the model, one per line."""
    return "\n".join(map(lesson_line, lessons))


def lesson_line(lesson: Lesson) -> str:
    if lesson.kind == "remembered":
        origin = f"told by {one_line(lesson.author)}"
    else:
        origin = lesson.kind.replace("_", " ") + (f", {lesson.citation.path}" if lesson.citation else "")
    return f"- {lesson.number} ({origin}): {one_line(lesson.text)}"


def used_lessons_note(lessons: Sequence[Lesson]) -> str:
    """For people; empty if there are none."""
    return f"Used {count(len(lessons), 'lesson')} of earlier jobs here: {_listed(lessons)}" if lessons else ""


def learned_lessons_note(lessons: Sequence[Lesson], forget: str = "/agent forget") -> str:
    """For people, with the command that deletes the first; empty if there are none."""
    if not lessons:
        return ""
    return f"{count(len(lessons), 'lesson')} learned: {_listed(lessons)} (`{forget} {lessons[0].number}` deletes it.)"


def _listed(lessons: Sequence[Lesson]) -> str:
    return " · ".join(f"({lesson.number}) {lesson.text}" for lesson in lessons)


MAX_LESSONS: Final = 5
MAX_TOKENS: Final = 400
BY_LIKENESS: Final = 3
"""Places for the most similar lessons before those from people on any subject."""
_CHARACTERS_PER_TOKEN = 4


class ChosenLessons(NamedTuple):
    """`stale` are lessons that the tree no longer supports."""

    lessons: tuple[Lesson, ...]
    stale: tuple[int, ...]


async def recall(
    lessons: SqlLessonStore, ranking: LessonRanking, tree: Tree, job: str, task: Task
) -> tuple[Lesson, ...]:
    """A job's lessons, always the same on repeated calls: its prompt must not change after a crash."""
    known = await asyncio.to_thread(lessons.lessons_shown_to, job)
    if known is not None:
        return known
    stored = await asyncio.to_thread(lessons.all)
    ranked = await ranking.rank(stored, issue_text(task)) if stored else ()
    chosen = await asyncio.to_thread(choose, in_order(ranked, stored), tree)
    if chosen.stale and not task.follows_up:  # a pull request's branch, perhaps a stranger's, must not delete lessons
        await asyncio.to_thread(lessons.remove_outdated, chosen.stale)
    return await asyncio.to_thread(lessons.recall, job, chosen.lessons)


def issue_text(task: Task) -> str:
    """The issue's title and text, and the request."""
    return "\n\n".join(filter(None, (task.issue.title, task.request, task.issue.body)))


def in_order(ranked: Sequence[Lesson], stored: Sequence[Lesson]) -> tuple[Lesson, ...]:
    """The most similar first, then those from people (newest first), then the other similar ones."""
    from_people = [lesson for lesson in reversed(stored) if lesson.kind == "remembered"]
    ordered = [*ranked[:BY_LIKENESS], *from_people, *ranked[BY_LIKENESS:]]
    return tuple({lesson.number: lesson for lesson in ordered}.values())


def choose(candidates: Iterable[Lesson], tree: Tree) -> ChosenLessons:
    """The first that hold and fit; later ones are not even checked."""
    chosen: list[Lesson] = []
    stale: list[int] = []
    space = MAX_TOKENS * _CHARACTERS_PER_TOKEN
    for lesson in candidates:
        if len(chosen) == MAX_LESSONS:
            break
        if lesson.citation is not None and not holds(tree, lesson.citation):
            stale.append(lesson.number)
        elif (length := len(lesson_line(lesson)) + 1) <= space:
            chosen.append(lesson)
            space -= length
    return ChosenLessons(tuple(chosen), tuple(stale))


MAX_WORDS = 400
"""The first words of a question, which are the title and the request."""
_MAX_READ_LENGTH = 40_000


class FullTextRanking:
    """BM25 over a lesson's words and its file's path, with names split into parts too."""

    async def rank(self, lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
        return await asyncio.to_thread(_ranked, lessons, question)


def _ranked(lessons: Sequence[Lesson], question: str) -> tuple[Lesson, ...]:
    question_words = _question_words(question)
    by_number = {lesson.number: lesson for lesson in lessons}
    if not question_words or not by_number:
        return ()
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE lesson USING fts5(text, path, tokenize='unicode61')")
        rows = ((each.number, _indexed(each.text), _indexed(_path(each))) for each in lessons)
        db.executemany("INSERT INTO lesson (rowid, text, path) VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{word}"' for word in question_words)
        found = db.execute("SELECT rowid FROM lesson WHERE lesson MATCH ? ORDER BY bm25(lesson), rowid DESC", (query,))
        return tuple(by_number[number] for (number,) in found)


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


INSTALL_HINT = "In a checkout: pip install '.[chroma]'; or set AGENT_FIX_LESSONS=fts."


def check_installed() -> None:
    """Raises AgentFixError if the extra is not installed."""
    if util.find_spec("chromadb") is None:
        raise AgentFixError("Chroma is not installed.", code=ExitCode.CONFIG, hint=INSTALL_HINT)


class ChromaRanking:
    """Nearest by Chroma's own or the given embedding. If Chroma fails, `fallback` ranks instead."""

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
        """Opened for each search, because a job searches once. Sends no telemetry."""
        chromadb = import_module("chromadb")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(path=str(self._directory), settings=settings)
        given = {} if self._embedding is None else {"embedding_function": self._embedding()}
        return client.get_or_create_collection(self._name, configuration={"hnsw": {"space": "cosine"}}, **given)


def _identity(lesson: Lesson) -> str:
    """Another text gives another entry."""
    return f"{lesson.number}-{hashlib.sha256(lesson.text.encode()).hexdigest()[:16]}"
