"""The lessons of one repository in the database; every statement is restricted to that repository."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import moment
from app.core.lessons import LIVES, MAX_LEARNED, MAX_REMEMBERED, Citation, Lesson, LessonDraft
from app.jobs.tables import insert_into, jobs, lesson_numbers, lessons, recalled_lessons, writing

FORGOTTEN_LIVES = 90 * 24 * 3600.0
"""Seconds for which what was forgotten is not learned again."""
RECALLED_LIVES = 90 * 24 * 3600.0


class SqlLessonStore:
    """The lessons of one repository, with no access to any other. Calls block; each is one short transaction.

    With `fence` (a job's epoch), nothing is learned from a job that another process has taken over.
    """

    def __init__(
        self, engine: Engine, clock: Callable[[], datetime], repository: str, *, fence: int | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self.repository = repository
        self._fence = fence
        self._own = lessons.c.repository == repository

    def all(self) -> tuple[Lesson, ...]:
        """The currently valid lessons, by number."""
        with self._engine.connect() as db:
            return self._valid(db)

    def learn(self, drafts: Sequence[LessonDraft]) -> tuple[Lesson, ...]:
        """Store what a job learned and return the new lessons. Idempotent.

        A draft never replaces a lesson that a person wrote, nor a topic that a person deleted.
        """
        with writing(self._engine) as db:
            if not all(self._is_current(db, draft.job) for draft in drafts):
                return ()
            self._begin(db)
            for draft in drafts:
                self._learn(db, draft)
            self._drop_oldest(db, {draft.job for draft in drafts})
            same_topics = lessons.c.topic.in_([draft.about for draft in drafts])
            new = (same_topics, lessons.c.job.in_({draft.job for draft in drafts}))
            return self._valid(db, *new)

    def remember(self, draft: LessonDraft, key: str) -> Lesson | None:
        """Store a lesson that a person wrote; None if the repository has no room for it.

        `key` makes the call idempotent.
        """
        with writing(self._engine) as db:
            self._begin(db)
            there = self._about(db, draft)
            remembered = sa.select(sa.func.count()).where(
                self._own, lessons.c.kind == "remembered", ~lessons.c.forgotten
            )
            is_told = there is not None and there.kind == "remembered" and not there.forgotten
            if not is_told and (db.execute(remembered).scalar() or 0) >= MAX_REMEMBERED:
                return None
            number = there.number if is_told else self._next_number(db)
            if there is not None:
                db.execute(lessons.delete().where(self._own, lessons.c.number == there.number))
            db.execute(lessons.insert().values(**self._row(draft), number=number, key=key))
            return next(each for each in self._valid(db) if each.number == number)

    def forget(self, number: int, key: str) -> bool:
        """Delete a lesson; False if there was none. A repeated call with the same key returns the same answer."""
        nothing = {"text": "", "citation": None, "author": ""}
        until = self._now() + FORGOTTEN_LIVES
        with writing(self._engine) as db:
            row = db.execute(lessons.select().where(self._own, lessons.c.number == number)).first()
            if row is None or row.forgotten or row.expires_at <= self._now():
                return row is not None and row.forgotten and row.key == key
            this = lessons.update().where(self._own, lessons.c.number == number)
            db.execute(this.values(forgotten=True, key=key, expires_at=until, **nothing))
            return True

    def remove_outdated(self, numbers: Sequence[int]) -> None:
        """Delete lessons whose citations no longer match; they may be learned again."""
        if numbers:
            with writing(self._engine) as db:
                db.execute(lessons.delete().where(self._own, lessons.c.number.in_(numbers), ~lessons.c.forgotten))

    def source_jobs(self) -> tuple[str, ...]:
        """The jobs that the current lessons came from."""
        query = sa.select(lessons.c.job).where(self._own, lessons.c.job != "", ~lessons.c.forgotten).distinct()
        with self._engine.connect() as db:
            return tuple(db.execute(query.order_by(lessons.c.job)).scalars())

    def forget_job(self, job: str) -> int:
        """Delete a job's lessons because its change was rejected; return how many."""
        with writing(self._engine) as db:
            learned = (self._own, lessons.c.job == job, lessons.c.kind != "remembered", ~lessons.c.forgotten)
            return int(db.execute(lessons.delete().where(*learned)).rowcount)

    def lessons_shown_to(self, job: str) -> tuple[Lesson, ...] | None:
        """The lessons that a job was shown; None if it has not asked yet."""
        with self._engine.connect() as db:
            return self._lessons_shown_to(db, job)

    def recall(self, job: str, shown: Sequence[Lesson]) -> tuple[Lesson, ...]:
        """Record which lessons a job is shown. Later calls return the first record unchanged."""
        with writing(self._engine) as db:
            values = {"job": job, "repository": self.repository, "at": self._now()}
            dumped = [each.model_dump(mode="json") for each in shown]
            first = insert_into(db, recalled_lessons).values(**values, lessons=dumped).on_conflict_do_nothing()
            if db.execute(first.returning(recalled_lessons.c.job)).first() is None:
                return self._lessons_shown_to(db, job) or ()
            numbers = [each.number for each in shown]
            used = lessons.update().where(self._own, lessons.c.number.in_(numbers))
            db.execute(used.values(uses=lessons.c.uses + 1))
        return tuple(shown)

    # Within a transaction.

    def _now(self) -> float:
        return self._clock().timestamp()

    def _begin(self, db: Connection) -> None:
        """Lock the repository's lessons against other writers and delete expired ones."""
        db.execute(insert_into(db, lesson_numbers).values(repository=self.repository, last=0).on_conflict_do_nothing())
        db.execute(lesson_numbers.select().where(lesson_numbers.c.repository == self.repository).with_for_update())
        db.execute(lessons.delete().where(self._own, lessons.c.expires_at <= self._now()))

    def _valid(self, db: Connection, *which: sa.ColumnElement[bool]) -> tuple[Lesson, ...]:
        holds = (self._own, ~lessons.c.forgotten, lessons.c.expires_at > self._now(), *which)
        return tuple(_lesson(row) for row in db.execute(lessons.select().where(*holds).order_by(lessons.c.number)))

    def _lessons_shown_to(self, db: Connection, job: str) -> tuple[Lesson, ...] | None:
        own = (recalled_lessons.c.repository == self.repository, recalled_lessons.c.job == job)
        kept = db.execute(sa.select(recalled_lessons.c.lessons).where(*own)).scalar()
        return None if kept is None else tuple(map(Lesson.model_validate, kept))

    def _is_current(self, db: Connection, job: str) -> bool:
        if self._fence is None:
            return True
        return db.execute(sa.select(jobs.c.epoch).where(jobs.c.id == job)).scalar() == self._fence

    def _about(self, db: Connection, draft: LessonDraft) -> Any:
        return db.execute(lessons.select().where(self._own, lessons.c.topic == draft.about)).first()

    def _learn(self, db: Connection, draft: LessonDraft) -> None:
        there = self._about(db, draft)
        if there is None:
            db.execute(lessons.insert().values(**self._row(draft), number=self._next_number(db), key=""))
            return
        if there.forgotten or there.kind == "remembered":
            return
        row = self._row(draft)
        same = there.text.casefold() == draft.text.casefold()
        fresh = {name: row[name] for name in (("expires_at", "citation") if same else row)}
        db.execute(lessons.update().where(self._own, lessons.c.number == there.number).values(fresh))

    def _row(self, draft: LessonDraft) -> dict[str, Any]:
        return {
            "repository": self.repository,
            "topic": draft.about,
            "kind": draft.kind,
            "text": draft.text,
            "citation": draft.citation.model_dump() if draft.citation else None,
            "job": draft.job,
            "author": draft.author[:80],
            "created_at": self._now(),
            "expires_at": (self._clock() + LIVES[draft.kind]).timestamp(),
        }

    def _next_number(self, db: Connection) -> int:
        """A number that was never used before: people refer to lessons by number in texts that remain."""
        this = lesson_numbers.update().where(lesson_numbers.c.repository == self.repository)
        raised = this.values(last=lesson_numbers.c.last + 1).returning(lesson_numbers.c.last)
        return int(db.execute(raised).scalar_one())

    def _drop_oldest(self, db: Connection, new: set[str]) -> None:
        """Delete lessons if there are too many.

        Of the lessons from other jobs, the least used and then the oldest goes first; of forgotten topics, the oldest.
        """
        others = sa.case((lessons.c.job.in_(new), 0), else_=1)
        for kept, order in (
            (
                (lessons.c.kind != "remembered", ~lessons.c.forgotten),
                (others, lessons.c.uses.desc(), lessons.c.number.desc()),
            ),
            ((lessons.c.forgotten,), (lessons.c.number.desc(),)),
        ):
            query = sa.select(lessons.c.number).where(self._own, *kept).order_by(*order).offset(MAX_LEARNED)
            numbers = list(db.execute(query.limit(10_000)).scalars())
            if numbers:
                db.execute(lessons.delete().where(self._own, lessons.c.number.in_(numbers)))


def prune_lessons(engine: Engine, now: datetime) -> int:
    """Delete expired lessons and old records of what was shown, in all repositories; return the number of rows."""
    with writing(engine) as db:
        at = now.timestamp()
        expired = db.execute(lessons.delete().where(lessons.c.expires_at <= at)).rowcount
        old = recalled_lessons.delete().where(recalled_lessons.c.at <= at - RECALLED_LIVES)
        return int(expired) + int(db.execute(old).rowcount)


def _lesson(row: sa.Row[Any]) -> Lesson:
    return Lesson(
        number=row.number,
        text=row.text,
        kind=row.kind,
        citation=Citation.model_validate(row.citation) if row.citation else None,
        job=row.job,
        author=row.author,
        created=moment(row.created_at),
        expires=moment(row.expires_at),
        uses=row.uses,
    )
