"""`remember` and `forget`: the lessons of a repository. Idempotent by the trigger's key."""

import asyncio
from collections.abc import Callable

from app.core.lessons import MAX_REMEMBERED, LessonDraft
from app.pipeline.lessons import LessonRefusedError, check_lesson
from app.publish import replies
from app.triggers.decisions import TriggerAnswer
from app.triggers.events import PullRequestChanged
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome
from app.triggers.stores import Stores


async def _run_if_kept(call: CommandCall, change: Callable[[CommandCall], TriggerAnswer]) -> Outcome:
    if not call.defaults.lessons:
        return TriggerAnswer("reply no_lessons", replies.reply(replies.NO_LESSONS))
    return await asyncio.to_thread(change, call)


async def _remember(call: CommandCall) -> Outcome:
    return await _run_if_kept(call, _add)


async def _forget(call: CommandCall) -> Outcome:
    return await _run_if_kept(call, _delete)


def _add(call: CommandCall) -> TriggerAnswer:
    """Store a lesson; without a text, list them."""
    trigger, lessons = call.context.trigger, call.stores.lessons(call.context.repo.repository.id)
    if not call.request.text.strip():
        return TriggerAnswer("reply lessons", replies.lesson_list(lessons.all()))
    try:
        text = check_lesson(call.request.text)
    except LessonRefusedError as refused:
        return TriggerAnswer("reply not_remembered", replies.not_remembered(str(refused)))
    draft = LessonDraft(text=text, kind="remembered", author=trigger.login or "somebody")
    lesson = lessons.remember(draft, trigger.key)
    if lesson is None:
        return TriggerAnswer("reply not_remembered", replies.too_many_lessons(MAX_REMEMBERED))
    return TriggerAnswer(f"remembered {lesson.number}", replies.remembered(lesson))


def _delete(call: CommandCall) -> TriggerAnswer:
    lessons, number = call.stores.lessons(call.context.repo.repository.id), call.request.lesson or 0
    if lessons.forget(number, call.context.trigger.key):
        return TriggerAnswer(f"forgot {number}", replies.forgotten(number))
    return TriggerAnswer("reply unknown_lesson", replies.unknown_lesson(number, lessons.all()))


def forget_unmerged(event: PullRequestChanged, ours: int, stores: Stores) -> None:
    """Delete what a job learned if its pull request was closed without merging. Blocking."""
    if event.change != "closed" or event.merged or event.subject.author != ours or event.subject.head is None:
        return
    lessons = stores.lessons(event.repository.id)
    for job in lessons.source_jobs():
        row = stores.job_store().get(job)
        if row is not None and event.subject.head.ref in {row.job.branch, (row.result or {}).get("branch")}:
            lessons.forget_job(job)


REMEMBER = CommandHandler(_remember)
FORGET = CommandHandler(_forget)
