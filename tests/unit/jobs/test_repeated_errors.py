"""A job that fails again and again, with errors that may pass: it waits for a person in the end."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.jobs.queue import QueueLimits
from app.jobs.store import JobRow
from app.llm.errors import DayBudgetError, ModelError
from app.server.context import ServerContext
from app.server.job_process import MAX_FAILING, JobProcess
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, fresh_postgres
from tests.support.server_jobs import job, job_context, trigger

OUTAGE = ModelError("The provider does not answer.", kind="retry", reason="unavailable")


@pytest.fixture(params=DIALECTS)
def server_context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerContext]:
    url = "" if request.param == "sqlite" else fresh_postgres()
    found = ServerContext(Settings(state=tmp_path, database_url=url), SettableClock())
    found.prepare()
    found.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    yield found
    found.engine.dispose()


def fail(server_context: ServerContext, error: AgentFixError, *, after: timedelta, progress: bool = False) -> JobRow:
    """Work on the job once more, which ends with this error."""
    clock = server_context.clock
    assert isinstance(clock, SettableClock)
    clock.passes(after)
    claim = server_context.queue.claim("w1", QueueLimits(1, 1))
    assert claim is not None
    if progress:
        server_context.queue.made_progress("a")
    JobProcess(server_context, claim).release(error)
    server_context.queue.release(claim)
    row = server_context.job_store().get("a")
    assert row is not None
    return row


def test_a_job_that_fails_for_hours_waits_for_a_person(server_context: ServerContext) -> None:
    assert fail(server_context, OUTAGE, after=timedelta()).state == "queued"
    assert fail(server_context, OUTAGE, after=MAX_FAILING - timedelta(seconds=1)).state == "queued"
    row = fail(server_context, OUTAGE, after=timedelta(minutes=2))
    assert (row.state, row.reason) == ("paused", "The provider does not answer. It was tried again for 6 hours.")
    assert server_context.queue.claim("w1", QueueLimits(1, 1)) is None
    assert server_context.queue.resume("a")
    assert fail(server_context, OUTAGE, after=timedelta()).state == "queued", "it has as long again"


@pytest.mark.parametrize("budget", [False, True])
def test_only_errors_without_progress_in_between_count(server_context: ServerContext, budget: bool) -> None:
    for _ in range(3):
        assert fail(server_context, OUTAGE, after=timedelta(minutes=15)).state == "queued"
        error = DayBudgetError("The day's budget is spent.") if budget else OUTAGE
        assert fail(server_context, error, after=MAX_FAILING * 0.9, progress=not budget).state == "queued"
