"""Handles `/agent remember` and `/agent forget`, which add and delete lessons of a repository."""

from app.core.lessons import MAX_REMEMBERED, LessonDraft, LessonStore
from app.pipeline.lessons.admission import LessonRefusedError, check_remembered
from app.publish import replies
from app.triggers.decisions import JobRequest
from app.triggers.event_facts import TriggerContext
from app.triggers.events import PullRequestChanged
from app.triggers.reply_poster import ReplyPoster
from app.triggers.stores import Stores


class LessonCommands:
    """Runs lesson commands of authorised people. Blocking; idempotent by the trigger's key."""

    def __init__(self, stores: Stores, reply_poster: ReplyPoster, *, kept: bool) -> None:
        self._stores = stores
        self._reply_poster = reply_poster
        self._kept = kept

    def answer(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        if not self._kept:
            return self._reply_poster.answer(trigger_context, "reply no_lessons", replies.reply(replies.NO_LESSONS))
        lessons = self._stores.lessons(trigger_context.repo_context.repository.id)
        if job_request.aim == "forget":
            return self._forget(lessons, job_request.lesson or 0, trigger_context)
        if not job_request.text.strip():
            return self._reply_poster.answer(trigger_context, "reply lessons", replies.lesson_list(lessons.all()))
        return self._remember(lessons, job_request.text, trigger_context)

    def reject_unmerged(self, event: PullRequestChanged, ours: int) -> int:
        """Delete what a job learned if its pull request was closed without merging."""
        if event.change != "closed" or event.merged or event.subject.author != ours or event.subject.head is None:
            return 0
        lessons, branch = self._stores.lessons(event.repository.id), event.subject.head.ref
        source_jobs = [job for job in lessons.source_jobs() if self._is_of(job, branch)]
        return sum(lessons.forget_job(job) for job in source_jobs)

    def _is_of(self, job: str, branch: str) -> bool:
        row = self._stores.store.get(job)
        return row is not None and branch in {row.job.branch, (row.result or {}).get("branch")}

    def _remember(self, lessons: LessonStore, text: str, trigger_context: TriggerContext) -> str:
        try:
            draft = LessonDraft(
                text=check_remembered(text), kind="remembered", author=trigger_context.login or "somebody"
            )
        except LessonRefusedError as refused:
            return self._reply_poster.answer(
                trigger_context, "reply not_remembered", replies.not_remembered(str(refused))
            )
        lesson = lessons.remember(draft, trigger_context.identity.key)
        if lesson is None:
            return self._reply_poster.answer(
                trigger_context, "reply not_remembered", replies.no_room_for_lessons(MAX_REMEMBERED)
            )
        return self._reply_poster.answer(trigger_context, f"remembered {lesson.number}", replies.remembered(lesson))

    def _forget(self, lessons: LessonStore, number: int, trigger_context: TriggerContext) -> str:
        if lessons.forget(number, trigger_context.identity.key):
            return self._reply_poster.answer(trigger_context, f"forgot {number}", replies.forgotten(number))
        words = replies.unknown_lesson(number, lessons.all())
        return self._reply_poster.answer(trigger_context, "reply unknown_lesson", words)
