"""A server's shared state: one database and one state directory, used by all its roles."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property

from sqlalchemy.engine import Engine

from app.config.settings import Settings
from app.core.clock import utc_now
from app.core.errors import OutputError
from app.core.lessons import github_repository_key
from app.jobs.commit_transfer import CommitTransfer
from app.jobs.daily_budget import DayCaps
from app.jobs.inbox import Inbox
from app.jobs.job_queries import JobQueries
from app.jobs.lessons import SqlLessonStore
from app.jobs.messages import JobMessages
from app.jobs.operations import OperationsOverview
from app.jobs.process_owner import is_gone
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.jobs.tables import open_database
from app.jobs.triggers import TriggerLog
from app.publish.outbox import Outbox
from app.repo.git_store import GitStore


class ServerContext:
    """The stores of a server, by table."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        self.settings = settings
        self.clock = clock

    @cached_property
    def engine(self) -> Engine:
        return open_database(self.settings.database_url, self.settings.state)

    def prepare(self) -> None:
        """Create what is missing. Raises OutputError if the state directory or the database cannot be used."""
        try:
            self.settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"The state directory {self.settings.state} cannot be created: {error.strerror}."
            raise OutputError(message, hint="Set AGENT_FIX_STATE_DIR to another directory.") from error
        prepare_tables(self.engine)

    def store(self, fence: int | None = None) -> JobStore:
        return JobStore(self.engine, self.clock, fence=fence)

    @cached_property
    def inbox(self) -> Inbox:
        return Inbox(self.engine, self.clock)

    @property
    def caps(self) -> DayCaps:
        return DayCaps(server=self.settings.usd_per_day, actor=self.settings.usd_per_day_actor)

    @cached_property
    def queue(self) -> JobQueue:
        return JobQueue(self.engine, self.clock, caps=self.caps)

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
        return Outbox(self.engine, self.clock, is_gone=is_gone)

    @cached_property
    def transfers(self) -> CommitTransfer:
        return CommitTransfer(self.engine, self.clock)

    def lessons(self, repository: int, fence: int | None = None) -> SqlLessonStore:
        return SqlLessonStore(self.engine, self.clock, github_repository_key(repository), fence=fence)

    @property
    def limits(self) -> QueueLimits:
        return QueueLimits(jobs=self.settings.jobs, per_repository=self.settings.jobs_per_repository)

    @cached_property
    def operations(self) -> OperationsOverview:
        return OperationsOverview(self.engine, self.clock, self.limits)

    def mirror(self, repository: int) -> GitStore:
        """The trusted bare repository of a GitHub repository, by its id, which survives renames."""
        return GitStore(self.settings.state / "mirrors" / f"r{int(repository)}.git")
