"""The database tables and server defaults that triggers use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy.engine import Engine

from app.config.repository import NO_DEFAULTS, OperatorDefaults
from app.core.job import Budget
from app.core.lessons import github_repository_key
from app.core.model_usage import ModelNames
from app.jobs.inbox import Inbox
from app.jobs.job_actions import JobRequests, PlanVersions
from app.jobs.lessons import SqlLessonStore
from app.jobs.outcomes import Outcomes
from app.jobs.queue import JobQueue
from app.jobs.store import JobBlobs, JobQueries, JobStore
from app.jobs.triggers import JobMessages, PollCursors, TriggerLog
from app.publish.outbox import Outbox

if TYPE_CHECKING:
    from app.repo.git_store import GitStore

Mirror = Callable[[int], "GitStore"]
"""The trusted repository for a forge's repository, by its number."""


class Stores:
    """Everything in a server's database, by table."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self.engine = engine
        self.clock = clock

    @cached_property
    def inbox(self) -> Inbox:
        return Inbox(self.engine, self.clock)

    @cached_property
    def queue(self) -> JobQueue:
        return JobQueue(self.engine, self.clock)

    @cached_property
    def job_queries(self) -> JobQueries:
        return JobQueries(self.engine, self.clock)

    @cached_property
    def messages(self) -> JobMessages:
        return JobMessages(self.engine, self.clock)

    @cached_property
    def triggers(self) -> TriggerLog:
        return TriggerLog(self.engine, self.clock)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self.engine, self.clock)

    @property
    def poll_cursors(self) -> PollCursors:
        return PollCursors(self.engine)

    @property
    def plans(self) -> PlanVersions:
        return PlanVersions(self.engine, self.clock)

    @property
    def outcomes(self) -> Outcomes:
        return Outcomes(self.engine, self.clock)

    @property
    def requests(self) -> JobRequests:
        return JobRequests(self.engine, self.clock)

    def job_store(self, fence: int | None = None) -> JobStore:
        return JobStore(self.engine, self.clock, fence=fence)

    def lessons(self, repository: int, fence: int | None = None) -> SqlLessonStore:
        return SqlLessonStore(self.engine, self.clock, github_repository_key(repository), fence=fence)

    def blobs(self, job: str) -> JobBlobs:
        return JobBlobs(self.engine, job)


@dataclass(frozen=True, slots=True)
class ServerDefaults:
    """Defaults if neither a command nor the repository sets a value. `runners` are the available ones."""

    model: str
    models: ModelNames = field(default_factory=ModelNames)
    """Models for kinds of work other than code."""
    sandbox: str = "bubblewrap"
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
