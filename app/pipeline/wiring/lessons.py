"""Recalls a repository's lessons before a job's first prompt, and learns from its published change."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.config.settings import Settings
from app.core.job import Job, Progress
from app.core.lessons import Lesson, LessonRanking
from app.core.redaction import Redactor
from app.core.tree import Tree
from app.jobs.lessons import SqlLessonStore
from app.jobs.store import JobStore
from app.llm.ledger import Ledger
from app.llm.litellm import Embedding
from app.llm.sql_ledger import SqlLedger
from app.pipeline.lessons.learning import JobExperience, lessons_of
from app.pipeline.lessons.ranking import ChromaRanking, EmbeddingRanking, FullTextRanking, check_installed
from app.pipeline.lessons.recall import learned_lessons_note, lessons_for_model, recall, used_lessons_note


class JobLessons:
    """One job's lessons; without `lessons`, none are known or stored. `forget` is the command that deletes a lesson."""

    def __init__(
        self,
        job: Job,
        lessons: SqlLessonStore | None,
        ranking: Callable[[SqlLessonStore], LessonRanking],
        *,
        forget: str,
        redactor: Redactor,
    ) -> None:
        self._job = job
        self._lessons = lessons
        self._ranking = ranking(lessons) if lessons else None
        self._forget = forget
        self._redactor = redactor
        self._lessons_shown: tuple[Lesson, ...] = ()

    async def recall(self, tree: Tree, progress: Progress) -> None:
        """Call before the first prompt; repeatable after a crash."""
        if self._lessons is not None and self._ranking is not None:
            self._lessons_shown = await recall(self._lessons, self._ranking, tree, self._job.id, self._job.task)
        for note in self.used:
            progress.report("note", note)

    async def learn(self, experience: JobExperience, progress: Progress) -> str:
        """Returns a note for people."""
        if self._lessons is None:
            return ""
        drafts = await asyncio.to_thread(lessons_of, experience)
        harmless = [draft for draft in drafts if not self._redactor.found(draft.text)]
        learned = await asyncio.to_thread(self._lessons.learn, harmless) if harmless else ()
        note = learned_lessons_note(learned, self._forget)
        if note:
            progress.report("note", note)
        return note

    @property
    def used(self) -> tuple[str, ...]:
        """For people; empty if there were none."""
        return tuple(filter(None, (used_lessons_note(self._lessons_shown),)))

    @property
    def shown(self) -> str:
        """The text for the model."""
        return lessons_for_model(self._lessons_shown)


def job_lessons(
    job: Job, lessons: SqlLessonStore | None, settings: Settings, store: JobStore, *, forget: str
) -> JobLessons:
    ledger = SqlLedger(store.engine, job.id, job.budget.usd)
    ranking = partial(make_ranking, settings, ledger)
    return JobLessons(job, lessons, ranking, forget=forget, redactor=Redactor(settings.secrets))


def make_ranking(settings: Settings, ledger: Ledger, lessons: SqlLessonStore) -> LessonRanking:
    """The ranking named in `AGENT_FIX_LESSONS`. Raises AgentFixError if it is not available."""
    kind, _, argument = settings.lessons.partition(":")
    by_words = FullTextRanking()
    match kind:
        case "embedding":
            embed = Embedding(argument, environment=settings.model_environment, ledger=ledger)
            return EmbeddingRanking(argument, embed, lessons, by_words)
        case "chroma":
            check_installed()
            return ChromaRanking(Path(argument), lessons.repository, by_words)
        case _:
            return by_words
