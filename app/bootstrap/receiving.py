"""What the receiver holds of a server's premises: the database, and no repository, no forge and no model."""

from collections.abc import Callable
from datetime import UTC, datetime

from app.jobs.database import open_database
from app.jobs.files import Files
from app.jobs.inbox import Inbox
from app.jobs.messages import Messages
from app.jobs.overview import Overview
from app.jobs.pulse import Pulse
from app.jobs.queue import Limits, Queue
from app.jobs.roster import Roster
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.model.budget import Totals
from app.model.sql_ledger import SqlLedger
from app.settings import Settings


def utc_now() -> datetime:
    return datetime.now(UTC)


class Receiving:
    """The rooms behind the receiver's door."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime] = utc_now) -> None:
        self.clock = clock
        self.engine = open_database(settings.database_url, settings.state)
        self.inbox = Inbox(self.engine, clock)
        self.queue = Queue(self.engine, clock)
        self.pulse = Pulse(self.engine, clock, Limits(jobs=settings.jobs, per_repository=settings.jobs_per_repository))
        self.files = Files(
            overview=Overview(self.engine, clock),
            store=JobStore(self.engine, clock),
            roster=Roster(self.engine, clock),
            messages=Messages(self.engine, clock),
            totals=self._totals,
        )

    def prepare(self) -> None:
        prepare_tables(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def _totals(self, job_id: str) -> Totals:
        return SqlLedger(self.engine, job_id, 0).totals()
