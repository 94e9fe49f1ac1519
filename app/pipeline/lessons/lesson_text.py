"""Formats lessons: as data for the model, and as notes in a pull request for people."""

from collections.abc import Sequence

from app.core.lessons import Lesson
from app.core.text import one_line


def lessons_for_model(lessons: Sequence[Lesson]) -> str:
    """For the model, one per line."""
    return "\n".join(map(lesson_line, lessons))


def lesson_line(lesson: Lesson) -> str:
    return f"- {lesson.number} ({_origin(lesson)}): {one_line(lesson.text)}"


def used_lessons_note(lessons: Sequence[Lesson]) -> str:
    """For people; empty if there are none."""
    return f"Used {_count(lessons)} of earlier jobs here: {_listed(lessons)}" if lessons else ""


def learned_lessons_note(lessons: Sequence[Lesson], forget: str = "/agent forget") -> str:
    """For people, with the command that deletes the first; empty if there are none."""
    if not lessons:
        return ""
    return f"{_count(lessons)} learned: {_listed(lessons)} (`{forget} {lessons[0].number}` deletes it.)"


def _origin(lesson: Lesson) -> str:
    if lesson.kind == "remembered":
        return f"told by {one_line(lesson.author)}"
    where = f", {lesson.citation.path}" if lesson.citation else ""
    return f"{lesson.kind.replace('_', ' ')}{where}"


def _count(lessons: Sequence[Lesson]) -> str:
    return "1 lesson" if len(lessons) == 1 else f"{len(lessons)} lessons"


def _listed(lessons: Sequence[Lesson]) -> str:
    return " · ".join(f"({lesson.number}) {lesson.text}" for lesson in lessons)
