"""What people tell later jobs of a repository, and what they take back: `/agent remember` and `/agent forget`."""

from app.events import PullRequestChanged
from app.lessons.admitting import RefusedError, told
from app.lessons.base import MOST_TOLD, Draft, Lessons
from app.orders import Order
from app.publish import replies
from app.reception.books import Books
from app.reception.circumstances import Matter
from app.reception.replying import Replying


class Teaching:
    """Who comes this far may write here. Blocking; everything may be said twice, by the trigger's key."""

    def __init__(self, books: Books, replying: Replying, *, kept: bool) -> None:
        self._books = books
        self._replying = replying
        self._kept = kept

    def answer(self, order: Order, matter: Matter) -> str:
        if not self._kept:
            return self._replying.answer(matter, "reply no_lessons", replies.reply(replies.NO_LESSONS))
        lessons = self._books.lessons(matter.place.repository.id)
        if order.aim == "forget":
            return self._forget(lessons, order.lesson or 0, matter)
        if not order.text.strip():
            return self._replying.answer(matter, "reply lessons", replies.lesson_list(lessons.all()))
        return self._remember(lessons, order.text, matter)

    def turned_down(self, event: PullRequestChanged, ours: int) -> int:
        """Our pull request was closed and not merged: what its job taught goes with it."""
        if event.change != "closed" or event.merged or event.subject.author != ours or event.subject.head is None:
            return 0
        lessons, branch = self._books.lessons(event.repository.id), event.subject.head.ref
        taught = [job for job in lessons.teachers() if self._is_of(job, branch)]
        return sum(lessons.unlearn(job) for job in taught)

    def _is_of(self, job: str, branch: str) -> bool:
        row = self._books.store.get(job)
        return row is not None and branch in {row.job.branch, (row.result or {}).get("branch")}

    def _remember(self, lessons: Lessons, text: str, matter: Matter) -> str:
        try:
            draft = Draft(text=told(text), kind="told", author=matter.login or "somebody")
        except RefusedError as refused:
            return self._replying.answer(matter, "reply not_remembered", replies.not_remembered(str(refused)))
        lesson = lessons.tell(draft, matter.identity.key)
        if lesson is None:
            return self._replying.answer(matter, "reply not_remembered", replies.no_room_for_lessons(MOST_TOLD))
        return self._replying.answer(matter, f"remembered {lesson.number}", replies.remembered(lesson))

    def _forget(self, lessons: Lessons, number: int, matter: Matter) -> str:
        if lessons.forget(number, matter.identity.key):
            return self._replying.answer(matter, f"forgot {number}", replies.forgotten(number))
        words = replies.unknown_lesson(number, lessons.all())
        return self._replying.answer(matter, "reply unknown_lesson", words)
