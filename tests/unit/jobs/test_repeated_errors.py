"""A job that fails again and again, with errors that may pass: it waits for a person in the end."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.core.model_usage import DOLLAR
from app.jobs.queue import MAX_ERROR_PAUSE, RECHECK_BUDGET_AFTER, JobClaim, QueueLimits
from app.jobs.store import JobRow
from app.llm.base import Usage
from app.llm.errors import DayBudgetError, ModelError
from app.llm.sql_ledger import SqlLedger
from app.server.context import ServerContext
from app.server.job_process import RETRY_AFTER_FAULT, JobProcess
from app.server.launch.base import JobHandle, LaunchError
from app.server.worker import RETRY_AFTER_FAILED_START, Intervals, Worker
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, fresh_postgres
from tests.support.server_jobs import issue_ref, job, job_context, trigger

OUTAGE = ModelError("The provider does not answer.", kind="retry", reason="unavailable")
SECOND = timedelta(seconds=1)


class FailingServer(ServerContext):
    """A server with one job, whose provider, clock and launcher are up to a test."""

    owner = "here:1:1"
    survives_worker = False

    def __init__(self, settings: Settings) -> None:
        self.now = SettableClock()
        super().__init__(settings, self.now)
        self.prepare()
        self.queue.admit(job("a"), job_context(), trigger("t"), ready=True)

    def work(self, error: AgentFixError, *, progress: bool = False) -> JobRow:
        """Work on the job once more, which ends with this error; then its pause is over."""
        claim = self.take()
        if progress:
            self.queue.made_progress("a")
        JobProcess(self, claim).release(error)
        return self.give_back(claim)

    def pause(self, pauses: timedelta) -> JobRow:
        """What errors did before."""
        claim = self.take()
        self.queue.retry_later(claim, "The network is down.", pauses)
        return self.give_back(claim)

    def take(self) -> JobClaim:
        claim = self.queue.claim("w1", QueueLimits(2, 2))
        assert claim is not None
        return claim

    def give_back(self, claim: JobClaim) -> JobRow:
        self.queue.release(claim)
        self.now.passes(MAX_ERROR_PAUSE)
        return self.row()

    def row(self) -> JobRow:
        row = self.job_store().get("a")
        assert row is not None
        return row

    async def start(self, _claim: JobClaim) -> JobHandle:
        raise LaunchError("The image cannot be pulled.")

    async def running(self) -> Sequence[tuple[JobClaim, JobHandle]]:
        return ()

    def needs_heartbeat(self, _claim: JobClaim) -> bool:
        return False


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FailingServer]:
    url = "" if request.param == "sqlite" else fresh_postgres()
    found = FailingServer(Settings(state=tmp_path, database_url=url, usd_per_day=DOLLAR))
    yield found
    found.engine.dispose()


def test_a_job_that_fails_for_hours_waits_for_a_person(server: FailingServer) -> None:
    server.pause(MAX_ERROR_PAUSE - 2 * RETRY_AFTER_FAULT)
    assert server.work(OUTAGE).state == "queued"
    row = server.work(OUTAGE)
    assert (row.state, row.reason) == (
        "paused",
        "The provider does not answer. It was tried again, with pauses of 6 hours in all.",
    )
    assert server.queue.claim("w1", QueueLimits(1, 1)) is None
    assert server.queue.resume("a")
    assert server.pause(MAX_ERROR_PAUSE - SECOND).state == "queued", "it has as long again"


async def test_a_job_that_cannot_be_started_for_hours_waits_for_a_person(server: FailingServer) -> None:
    server.pause(MAX_ERROR_PAUSE - RETRY_AFTER_FAILED_START)
    worker = Worker(server, server, intervals=Intervals(poll=0.005))
    working = asyncio.create_task(worker.work())
    async with asyncio.timeout(20):
        while server.row().state != "paused" or server.row().owner is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    worker.draining.set()
    await working
    assert server.row().reason == "The image cannot be pulled. It was tried again, with pauses of 6 hours in all."


def test_time_in_which_nothing_was_tried_does_not_count(server: FailingServer) -> None:
    for _ in range(3):  # the pause is over for hours before a worker takes the job again
        assert server.work(OUTAGE).state == "queued"


@pytest.mark.parametrize("budget", [False, True])
def test_errors_before_progress_or_before_a_wait_for_a_budget_do_not_count(server: FailingServer, budget: bool) -> None:
    error = DayBudgetError("The day's budget is spent.") if budget else OUTAGE
    for _ in range(2):
        server.pause(MAX_ERROR_PAUSE - 2 * RETRY_AFTER_FAULT)
        assert server.work(error, progress=not budget).state == "queued"


def test_errors_before_a_daily_budget_was_found_empty_do_not_count(server: FailingServer) -> None:
    server.pause(MAX_ERROR_PAUSE - SECOND)
    server.queue.admit(job("b", issue_ref(4)), job_context(issue_ref(4)), trigger("u"))
    ledger = SqlLedger(server.engine, "b", 5 * DOLLAR, clock=lambda: server.now().timestamp())
    ledger.reserve("plan", 2 * DOLLAR)
    ledger.book("plan", Usage(cost=2 * DOLLAR))
    assert server.queue.claim("w1", QueueLimits(1, 1)) is None
    server.now.passes(timedelta(days=1) + RECHECK_BUDGET_AFTER)
    assert server.work(OUTAGE).state == "queued"
