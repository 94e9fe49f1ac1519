"""A server's premises: one database and one state directory, which its roles share and nothing else."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property

from sqlalchemy.engine import Engine

from app.errors import OutputError
from app.gitstore import GitStore
from app.jobs.database import open_database
from app.jobs.inbox import Inbox
from app.jobs.lessons import SqlLessons
from app.jobs.messages import Messages
from app.jobs.owner import is_gone
from app.jobs.parcels import Parcels
from app.jobs.queue import Limits, Queue
from app.jobs.roster import Roster
from app.jobs.schema import prepare_tables
from app.jobs.spending import DayCaps
from app.jobs.store import JobStore
from app.jobs.triggers import Triggers
from app.lessons.base import of_forge
from app.publish.intents import Intents
from app.settings import Settings


def utc_now() -> datetime:
    return datetime.now(UTC)


class Premises:
    """Everything that is kept, by its table."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        self.settings = settings
        self.clock = clock

    @cached_property
    def engine(self) -> Engine:
        return open_database(self.settings.database_url, self.settings.state)

    def prepare(self) -> None:
        """Make what is missing; raises OutputError where the state directory or the database cannot be used."""
        try:
            self.settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"The state directory {self.settings.state} cannot be made: {error.strerror}."
            raise OutputError(message, hint="Set AGENT_FIX_STATE_DIR to another one.") from error
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
    def queue(self) -> Queue:
        return Queue(self.engine, self.clock, caps=self.caps)

    @cached_property
    def roster(self) -> Roster:
        return Roster(self.engine, self.clock)

    @cached_property
    def messages(self) -> Messages:
        return Messages(self.engine, self.clock)

    @cached_property
    def triggers(self) -> Triggers:
        return Triggers(self.engine, self.clock)

    @cached_property
    def intents(self) -> Intents:
        return Intents(self.engine, self.clock, is_gone=is_gone)

    @cached_property
    def parcels(self) -> Parcels:
        return Parcels(self.engine, self.clock)

    def lessons(self, repository: int, fence: int | None = None) -> SqlLessons:
        return SqlLessons(self.engine, self.clock, of_forge(repository), fence=fence)

    @property
    def limits(self) -> Limits:
        return Limits(jobs=self.settings.jobs, per_repository=self.settings.jobs_per_repository)

    def mirror(self, repository: int) -> GitStore:
        """The trusted bare repository for a forge's repository, by its number, which outlives its name."""
        return GitStore(self.settings.state / "mirrors" / f"r{int(repository)}.git")
