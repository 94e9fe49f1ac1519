"""What reception is given: the books it reads and writes, and what the server sets for every job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from app.gitstore import GitStore
from app.job import Budget
from app.jobs.inbox import Inbox
from app.jobs.lessons import SqlLessons
from app.jobs.looks import Looks
from app.jobs.messages import Messages
from app.jobs.queue import Queue
from app.jobs.roster import Roster
from app.jobs.store import JobBlobs, JobStore
from app.jobs.triggers import Triggers
from app.lessons.base import Lessons, of_forge
from app.model.base import Models
from app.publish.intents import Intents

Mirror = Callable[[int], GitStore]
"""The trusted repository for a forge's repository, by its number."""


@dataclass(frozen=True, slots=True)
class Books:
    """Everything in the database, by its table."""

    inbox: Inbox
    queue: Queue
    roster: Roster
    messages: Messages
    triggers: Triggers
    intents: Intents
    store: JobStore
    looks: Looks
    clock: Callable[[], datetime]

    def lessons(self, repository: int) -> Lessons:
        return SqlLessons(self.store.engine, self.clock, of_forge(repository))

    def blobs(self, job: str) -> JobBlobs:
        return JobBlobs(self.store.engine, job)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where neither a command nor the repository says otherwise. `runners` are those that there are."""

    model: str
    models: Models = field(default_factory=Models)
    """Of other kinds of work than code."""
    sandbox: str = "bubblewrap"
    runner: str = "native"
    runners: frozenset[str] = frozenset({"native"})
    budget: Budget = field(default_factory=Budget)
    lessons: bool = True
    """Whether they are kept at all."""
    allowed_apps: frozenset[int] = frozenset()
    """Other Apps that may ask, by number."""
