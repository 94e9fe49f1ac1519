"""What a job is shown of earlier ones: few lessons, the most similar to its issue, each looked at again before."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from app.core.lessons import Lesson, LessonRanking, LessonStore
from app.core.task import Task
from app.core.tree import Tree
from app.pipeline.lessons.citations import holds
from app.pipeline.lessons.lesson_text import lesson_line

MOST: Final = 5
MAX_TOKENS: Final = 400
BY_LIKENESS: Final = 3
"""Places for the most similar ones before what people told, whatever it is about."""
_CHARACTERS_PER_TOKEN = 4


class ChosenLessons(NamedTuple):
    """`stale` are those that the tree does not bear out any more."""

    lessons: tuple[Lesson, ...]
    stale: tuple[int, ...]


async def recall(lessons: LessonStore, ranking: LessonRanking, tree: Tree, job: str, task: Task) -> tuple[Lesson, ...]:
    """The lessons of a job, the same however often it is asked: its prompt must not change after a crash."""
    known = await asyncio.to_thread(lessons.recovered_jobs, job)
    if known is not None:
        return known
    there = await asyncio.to_thread(lessons.all)
    ranked = await ranking.rank(there, question(task)) if there else ()
    chosen = await asyncio.to_thread(choose, in_order(ranked, there), tree)
    if chosen.stale and not task.follows_up:  # a pull request's branch, perhaps a stranger's, ends no lesson
        await asyncio.to_thread(lessons.remove_outdated, chosen.stale)
    return await asyncio.to_thread(lessons.recall, job, chosen.lessons)


def question(task: Task) -> str:
    return "\n\n".join(filter(None, (task.issue.title, task.request, task.issue.body)))


def in_order(ranked: Sequence[Lesson], there: Sequence[Lesson]) -> tuple[Lesson, ...]:
    """The most similar, then what people told (newest first), then how tests are run, then the rest that is similar."""
    told = [lesson for lesson in reversed(there) if lesson.kind == "told"]
    tests = [lesson for lesson in reversed(there) if lesson.kind == "how_to_test"]
    ordered = [*ranked[:BY_LIKENESS], *told, *tests, *ranked[BY_LIKENESS:]]
    return tuple({lesson.number: lesson for lesson in ordered}.values())


def choose(candidates: Iterable[Lesson], tree: Tree) -> ChosenLessons:
    """The first that hold and fit; what comes after them is not even looked at."""
    taken: list[Lesson] = []
    stale: list[int] = []
    space = MAX_TOKENS * _CHARACTERS_PER_TOKEN
    for lesson in candidates:
        if len(taken) == MOST:
            break
        if lesson.citation is not None and not holds(tree, lesson.citation):
            stale.append(lesson.number)
        elif (length := len(lesson_line(lesson)) + 1) <= space:
            taken.append(lesson)
            space -= length
    return ChosenLessons(tuple(taken), tuple(stale))
