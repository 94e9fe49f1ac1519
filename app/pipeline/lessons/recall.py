"""Chooses the few lessons that a job is shown, by their likeness to its issue; finds and checks their citations."""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from app.core.lessons import Citation, Lesson, LessonRanking, LessonStore
from app.core.task import Task
from app.core.text import count, one_line
from app.core.tree import Tree
from app.repo.index.terms import identifiers, stem, terms

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
    remains = _remaining(path, after)
    best, most = "", least - 1
    for line in _lines(tree, path):
        shared = len(wanted & topics(line)) if len(line) >= _MIN_LINE else -1
        if shared > most and (remains is None or line in remains):
            best, most = line, shared
    return Citation(path=path, commit=tree.commit, digest=_digest(best)) if best else None


def holds(tree: Tree, citation: Citation) -> bool:
    """True if the file still has the line, whatever its indentation and position."""
    return any(_digest(line) == citation.digest for line in _lines(tree, citation.path))


def _remaining(path: str, after: Mapping[str, bytes | None] | None) -> frozenset[str] | None:
    """The lines of a changed or deleted file after a patch; None for any other file."""
    if after is None or path not in after:
        return None
    return frozenset(_stripped(after[path] or b""))


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
    return f"- {lesson.number} ({_origin(lesson)}): {one_line(lesson.text)}"


def used_lessons_note(lessons: Sequence[Lesson]) -> str:
    """For people; empty if there are none."""
    return f"Used {count(len(lessons), 'lesson')} of earlier jobs here: {_listed(lessons)}" if lessons else ""


def learned_lessons_note(lessons: Sequence[Lesson], forget: str = "/agent forget") -> str:
    """For people, with the command that deletes the first; empty if there are none."""
    if not lessons:
        return ""
    return f"{count(len(lessons), 'lesson')} learned: {_listed(lessons)} (`{forget} {lessons[0].number}` deletes it.)"


def _origin(lesson: Lesson) -> str:
    if lesson.kind == "remembered":
        return f"told by {one_line(lesson.author)}"
    where = f", {lesson.citation.path}" if lesson.citation else ""
    return f"{lesson.kind.replace('_', ' ')}{where}"


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


async def recall(lessons: LessonStore, ranking: LessonRanking, tree: Tree, job: str, task: Task) -> tuple[Lesson, ...]:
    """A job's lessons, always the same on repeated calls: its prompt must not change after a crash."""
    known = await asyncio.to_thread(lessons.lessons_shown_to, job)
    if known is not None:
        return known
    stored = await asyncio.to_thread(lessons.all)
    ranked = await ranking.rank(stored, question(task)) if stored else ()
    chosen = await asyncio.to_thread(choose, in_order(ranked, stored), tree)
    if chosen.stale and not task.follows_up:  # a pull request's branch, perhaps a stranger's, must not delete lessons
        await asyncio.to_thread(lessons.remove_outdated, chosen.stale)
    return await asyncio.to_thread(lessons.recall, job, chosen.lessons)


def question(task: Task) -> str:
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
