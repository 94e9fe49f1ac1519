"""The database tables and the server's defaults that triggers use. Imports no GitHub client: every role needs them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.engine import Engine

from app.config.repository import NO_DEFAULTS, OperatorDefaults
from app.core.job import Budget
from app.core.lessons import github_repository_key
from app.core.model_usage import ModelNames
from app.core.redaction import ANYBODYS, Redactor
from app.jobs.inbox import Inbox
from app.jobs.job_actions import JobRequests, PlanVersions
from app.jobs.lessons import SqlLessonStore
from app.jobs.outcomes import Outcomes
from app.jobs.queue import JobQueue
from app.jobs.store import JobBlobs, JobQueries, JobStore
from app.jobs.trigger_log import JobMessages, PollCursors, TriggerLog
from app.publish.outbox import Outbox


class Stores:
    """Everything in a server's database, by table."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime], redactor: Redactor = ANYBODYS) -> None:
        self.engine = engine
        self.clock = clock
        self.redactor = redactor
        self.inbox = Inbox(engine, clock)
        self.queue = JobQueue(engine, clock, redactor=redactor)
        self.job_queries = JobQueries(engine, clock)
        self.messages = JobMessages(engine, clock)
        self.triggers = TriggerLog(engine, clock)
        self.outbox = Outbox(engine, clock)
        self.poll_cursors = PollCursors(engine)
        self.plans = PlanVersions(engine, clock)
        self.outcomes = Outcomes(engine, clock)
        self.requests = JobRequests(engine, clock)

    def job_store(self, fence: int | None = None) -> JobStore:
        return JobStore(self.engine, self.clock, fence=fence, redactor=self.redactor)

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
    """For workers of 0.1, which run jobs in it; later ones have their own."""
    runners: frozenset[str] = frozenset({"native"})
    budget: Budget = field(default_factory=Budget)
    lessons: bool = True
    """False disables lessons."""
    can_wait: bool = True
    """False if nothing can wait for its turn, as in a workflow."""
    allowed_apps: frozenset[int] = frozenset()
    """Ids of other Apps that may ask."""
    operator: OperatorDefaults = NO_DEFAULTS
    """For keys that a repository does not set or cannot change."""
