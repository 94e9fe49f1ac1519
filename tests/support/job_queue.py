"""A server's queue and everything that is kept of its jobs, at one clock."""

from sqlalchemy.engine import Engine

from app.core.job import JobState
from app.jobs.queue import JobClaim, JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobQueries, JobRow, JobStore
from app.jobs.trigger_log import JobMessages, TriggerLog
from app.publish.outbox import Outbox
from tests.support.clock import SettableClock
from tests.support.server_jobs import START, issue_ref, job, job_context, trigger

MANY = QueueLimits(jobs=10, per_repository=10)


class Server:
    """Everything that is kept of jobs, at one clock."""

    def __init__(self, engine: Engine) -> None:
        self.clock = SettableClock(START)
        self.engine = engine
        self.store = JobStore(engine, self.clock)
        prepare_tables(engine)
        self.outbox = Outbox(engine, self.clock)
        self.queue = JobQueue(engine, self.clock)
        self.job_queries = JobQueries(engine, self.clock)
        self.triggers = TriggerLog(engine, self.clock)
        self.messages = JobMessages(engine, self.clock)

    def admit(self, name: str, number: int = 3, repository: int = 2, *, priority: int = 1, **changes: object) -> str:
        where = issue_ref(number, repository)
        asked = trigger(f"r{repository}/{name}", where)
        return self.queue.admit(job(name, where), job_context(where, **changes), asked, priority=priority, ready=True)

    def claim(self, owner: str = "w1", limits: QueueLimits = MANY) -> str:
        claim = self.queue.claim(owner, limits)
        return claim.job if claim else ""

    def take(self, owner: str = "w1") -> JobClaim:
        claim = self.queue.claim(owner, MANY)
        assert claim is not None
        return claim

    def row(self, name: str) -> JobRow:
        row = self.store.get(name)
        assert row is not None
        return row

    def state(self, name: str) -> JobState:
        return self.row(name).state
