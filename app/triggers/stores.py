"""The database tables and server defaults that triggers use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from app.config.operator_defaults import NO_DEFAULTS, OperatorDefaults
from app.core.job import Budget
from app.core.lessons import LessonStore, github_repository_key
from app.core.model_names import ModelNames
from app.jobs.inbox import Inbox
from app.jobs.job_queries import JobQueries
from app.jobs.lessons import SqlLessonStore
from app.jobs.messages import JobMessages
from app.jobs.outcomes import Outcomes
from app.jobs.plan_versions import PlanVersions
from app.jobs.queue import JobQueue
from app.jobs.requests import JobRequests
from app.jobs.store import JobBlobs, JobStore
from app.jobs.triggers import PollCursors, TriggerLog
from app.publish.outbox import Outbox
from app.repo.git_store import GitStore

Mirror = Callable[[int], GitStore]
"""The trusted repository for a forge's repository, by its number."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything in the database, by table."""

    inbox: Inbox
    queue: JobQueue
    job_queries: JobQueries
    messages: JobMessages
    triggers: TriggerLog
    outbox: Outbox
    store: JobStore
    poll_cursors: PollCursors
    clock: Callable[[], datetime]

    def lessons(self, repository: int) -> LessonStore:
        return SqlLessonStore(self.store.engine, self.clock, github_repository_key(repository))

    @property
    def plans(self) -> PlanVersions:
        return PlanVersions(self.store.engine, self.clock)

    @property
    def outcomes(self) -> Outcomes:
        return Outcomes(self.store.engine, self.clock)

    @property
    def requests(self) -> JobRequests:
        return JobRequests(self.store.engine, self.clock)

    def blobs(self, job: str) -> JobBlobs:
        return JobBlobs(self.store.engine, job)


@dataclass(frozen=True, slots=True)
class ServerDefaults:
    """Defaults if neither a command nor the repository sets a value. `runners` are the available ones."""

    model: str
    models: ModelNames = field(default_factory=ModelNames)
    """Models for kinds of work other than code."""
    sandbox: str = "bubblewrap"
    runner: str = "native"
    runners: frozenset[str] = frozenset({"native"})
    budget: Budget = field(default_factory=Budget)
    lessons: bool = True
    """False disables lessons."""
    waits: bool = True
    """False if nothing can wait for its turn, as in a workflow."""
    allowed_apps: frozenset[int] = frozenset()
    """Ids of other Apps that may ask."""
    operator: OperatorDefaults = NO_DEFAULTS
    """For keys that a repository does not set or cannot change."""
