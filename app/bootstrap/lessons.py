"""A job's side of its repository's lessons: recalled before its first prompt, learned once its change is published."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.job import Job, Progress
from app.jobs.lessons import SqlLessons
from app.jobs.store import JobStore
from app.lessons import words
from app.lessons.base import Lesson, Ranking
from app.lessons.chroma import Chroma, check_installed
from app.lessons.embedded import Embedded
from app.lessons.experience import Experience
from app.lessons.full_text import FullText
from app.lessons.learning import lessons_of
from app.lessons.recalling import recall
from app.model.budget import Ledger
from app.model.embedding import Embedding
from app.model.sql_ledger import SqlLedger
from app.redact import Redactor
from app.settings import Settings
from app.tree import Tree


class Memory:
    """One job's; without `lessons` nothing is known and nothing is kept. `forget` is how people take a lesson back."""

    def __init__(
        self,
        job: Job,
        lessons: SqlLessons | None,
        ranking: Callable[[SqlLessons], Ranking],
        *,
        forget: str,
        redactor: Redactor,
    ) -> None:
        self._job = job
        self._lessons = lessons
        self._ranking = ranking(lessons) if lessons else None
        self._forget = forget
        self._redactor = redactor
        self._recalled: tuple[Lesson, ...] = ()

    async def recall(self, tree: Tree, progress: Progress) -> None:
        """Before the first prompt; the same again after a crash."""
        if self._lessons is not None and self._ranking is not None:
            self._recalled = await recall(self._lessons, self._ranking, tree, self._job.id, self._job.task)
        for note in self.used:
            progress.say("note", note)

    async def learn(self, experience: Experience, progress: Progress) -> str:
        """What people are told of it."""
        if self._lessons is None:
            return ""
        drafts = await asyncio.to_thread(lessons_of, experience)
        harmless = [draft for draft in drafts if not self._redactor.found(draft.text)]
        learned = await asyncio.to_thread(self._lessons.learn, harmless) if harmless else ()
        told = words.learned(learned, self._forget)
        if told:
            progress.say("note", told)
        return told

    @property
    def used(self) -> tuple[str, ...]:
        """For people; nothing where there were none."""
        return tuple(filter(None, (words.used(self._recalled),)))

    @property
    def shown(self) -> str:
        """As the model is shown them."""
        return words.shown(self._recalled)


def memory_of(job: Job, lessons: SqlLessons | None, settings: Settings, store: JobStore, *, forget: str) -> Memory:
    ledger = SqlLedger(store.engine, job.id, job.budget.usd)
    ranking = partial(make_ranking, settings, ledger)
    return Memory(job, lessons, ranking, forget=forget, redactor=Redactor(settings.secrets))


def make_ranking(settings: Settings, ledger: Ledger, lessons: SqlLessons) -> Ranking:
    """The one that `AGENT_FIX_LESSONS` names. AgentFixError where it cannot be had at all."""
    how, _, what = settings.lessons.partition(":")
    by_words = FullText()
    match how:
        case "embedding":
            embed = Embedding(what, environment=settings.model_environment, ledger=ledger)
            return Embedded(what, embed, lessons, by_words)
        case "chroma":
            check_installed()
            return Chroma(Path(what), lessons.repository, by_words)
        case _:
            return by_words
