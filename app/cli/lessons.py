"""`agent-fix lessons`: shows, adds and deletes the lessons of a repository on this machine."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from app.cli.local_context import LocalContext
from app.config.settings import read_settings
from app.core.errors import AgentFixError, ExitCode
from app.core.lessons import MAX_REMEMBERED, Lesson, LessonDraft
from app.core.text import count
from app.jobs.lessons import SqlLessonStore
from app.pipeline.lessons import LessonRefusedError, check_lesson
from app.repo.inspection import top_level

YOU = "you"


def lessons_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    repository: Path = top_level(arguments.repo.expanduser().absolute())
    lessons = LocalContext(settings).lessons(repository)
    actions: dict[str, Callable[[SqlLessonStore, argparse.Namespace], None]] = {
        "remember": _remember,
        "forget": _forget,
    }
    actions.get(arguments.action, _list)(lessons, arguments)
    return ExitCode.OK


def _list(lessons: SqlLessonStore, arguments: argparse.Namespace) -> None:
    there = lessons.all()
    if arguments.json:
        print(json.dumps([each.model_dump(mode="json") for each in there], indent=2))
        return
    if not there:
        print("There are no lessons for this repository yet. Add one with `agent-fix lessons remember TEXT`.")
    for lesson in there:
        print(f"{lesson.number:>4}  {lesson.text}\n      {_from(lesson)}")


def _remember(lessons: SqlLessonStore, arguments: argparse.Namespace) -> None:
    try:
        draft = LessonDraft(text=check_lesson(" ".join(arguments.text)), kind="remembered", author=YOU)
    except LessonRefusedError as refused:
        raise AgentFixError(f"Not remembered. {refused}") from None
    lesson = lessons.remember(draft, f"terminal:{token_hex(8)}")
    if lesson is None:
        message = f"Not added: you have added {MAX_REMEMBERED} lessons already, which is the limit."
        raise AgentFixError(message, hint="Delete one with `agent-fix lessons forget N`.")
    if arguments.json:
        print(json.dumps(lesson.model_dump(mode="json"), indent=2))
    else:
        print(f"Added as lesson {lesson.number}, until {lesson.expires:%Y-%m-%d}.")


def _forget(lessons: SqlLessonStore, arguments: argparse.Namespace) -> None:
    if not lessons.forget(arguments.number, f"terminal:{token_hex(8)}"):
        numbers = ", ".join(str(lesson.number) for lesson in lessons.all())
        hint = f"Existing lessons: {numbers}." if numbers else "There are no lessons for this repository."
        raise AgentFixError(f"Lesson {arguments.number} does not exist here.", hint=hint)
    if arguments.json:
        print(json.dumps({"deleted": arguments.number}))
    else:
        print(f"Lesson {arguments.number} was deleted.")


def _from(lesson: Lesson) -> str:
    who = f"told by {lesson.author}" if lesson.kind == "remembered" else f"learned by job {lesson.job}"
    where = f", see {lesson.citation.path}" if lesson.citation else ""
    return f"{who}{where}, shown to {count(lesson.uses, 'job')}, until {lesson.expires:%Y-%m-%d}"
