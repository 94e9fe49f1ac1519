"""Chooses the few lessons that a job is shown, by their likeness to its issue; finds and checks their citations.

Lessons are ranked by SQLite's full text search, by an embedding model, or with a Chroma store. A repository has few
lessons, so the index is built for each search: it is never stale, and only this repository's lessons decide how rare a
word is. The database stays the source: lessons deleted there are removed here before every search.
"""

import asyncio
import hashlib
import logging
import sqlite3
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module, util
from math import sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from app.core.errors import AgentFixError, ExitCode
from app.core.job import PUBLISHED, JobResult, JobState
from app.core.lessons import Citation, Lesson, LessonRanking
from app.core.patch import Tree
from app.core.task import Task, TaskSection
from app.core.text import count, head_and_tail, listed, one_line, visible
from app.jobs.lessons import SqlLessonStore
from app.jobs.store import JobRow
from app.repo.index.terms import identifiers, stem, terms
from app.verify.feedback import feedback

logger = logging.getLogger(__name__)

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


def find_citation(
    tree: Tree, path: str, text: str, after: Mapping[str, bytes | None] | None = None, *, least: int = 1
) -> Citation | None:
    """The line of a file that shares most words with a text; None if no line shares `least`.

    `after` are files as a patch leaves them: a line that the patch removes does not count.
    """
    wanted = topics(text)
    remains = None if after is None or path not in after else frozenset(_stripped(after[path] or b""))
    best, most = "", least - 1
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
    """The most similar first, then those from people (newest first), then how tests are run, then the other similar
    ones."""
    from_people = [lesson for lesson in reversed(stored) if lesson.kind == "remembered"]
    tests = [lesson for lesson in reversed(stored) if lesson.kind == "how_to_test"]
    ordered = [*ranked[:BY_LIKENESS], *from_people, *tests, *ranked[BY_LIKENESS:]]
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


Vector = Sequence[float]
Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""One vector for each text, all of one length. Raises AgentFixError if the model cannot be used."""

MIN_LIKENESS: Final = 0.2
"""Cosine below which two texts are unrelated."""
MAX_QUESTION_LENGTH: Final = 8_000
"""Characters of a question that are used: models accept some thousand tokens."""


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


TITLE: Final = "Earlier failed attempts at this task; do not repeat them"
MAX_ATTEMPTS: Final = 3
MAX_OF_ONE: Final = 3_500
"""Characters of one attempt."""
MAX_FILES: Final = 20
_ENDED: Final[dict[JobState, str]] = {
    "verification_failed": "its change did not pass verification",
    "limit_reached": "it reached a limit before it was done",
    "paused": "it reached a limit before it was done",
    "no_change": "it found nothing to change",
}


def failed_attempts(rows: Iterable[JobRow]) -> TaskSection | None:
    """The section for a new job. `rows` are the issue's jobs, newest first; none before a published one counts."""
    texts: list[str] = []
    for row in rows:
        if row.state in PUBLISHED or len(texts) == MAX_ATTEMPTS:
            break
        result = JobResult.read(row.result) if row.final else None
        if result is not None and result.exit_status in _ENDED and not _paused_otherwise(result):
            texts.append(head_and_tail("\n".join(_attempt_lines(row, result)), MAX_OF_ONE))
    return TaskSection(title=TITLE, text="\n\n".join(texts)) if texts else None


def _paused_otherwise(result: JobResult) -> bool:
    """True if the job was paused before it was stopped, and not at a limit: no key, no sandbox, a full disk.

    A change so far is stored at a limit only, whatever paused the job later.
    """
    at_limit = bool(result.diff) or result.error_code in {None, ExitCode.LIMIT_REACHED}
    return result.exit_status == "paused" and not at_limit


def _attempt_lines(row: JobRow, result: JobResult) -> Iterator[str]:
    turns = f" after {result.turns} turns" if result.turns else ""
    yield f"Attempt of {row.job.created_at:%Y-%m-%d %H:%M}{turns}: {_ENDED[result.exit_status]}."
    if result.reason:
        yield f"Reason: {_seen(result.reason)[:500]}"
    if result.plan is not None:
        steps = "; ".join(map(_seen, result.plan.steps))
        yield f"It planned: {_seen(result.plan.summary)[:400]} Steps: {steps[:600]}"
    if result.summary:
        yield f"It said: {_seen(result.summary)[:600]}"
    if result.changes:
        yield f"It changed: {listed([one_line(each.path) for each in result.changes], MAX_FILES)}"
    if result.verification is not None and result.exit_status == "verification_failed":
        yield f"What the harness found:\n{visible(feedback(result.verification)).text}"


def _seen(text: str) -> str:
    """What a rendered page would show of a model's text: nothing hidden reaches the next model."""
    return one_line(visible(text).text)
