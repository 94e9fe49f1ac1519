"""When a job stands still (R11): nobody works on it although it is somebody's turn."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from app.jobs.operations import OperationsOverview, WaitingJob, longest_stalled
from app.jobs.queue import JobClaim, JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobQueries, JobStore
from app.jobs.tables import deliveries, effects
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database
from tests.support.server_jobs import issue_ref, job, job_context, trigger
from tests.support.web_client import WebClient, web_client

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIMITS = QueueLimits(jobs=2, per_repository=1)


class Server:
    """Jobs on a real database, at a time that is set."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = SettableClock(NOW)
        self.queue = JobQueue(engine, self.clock)
        self.store = JobStore(engine, self.clock)
        self.job_queries = JobQueries(engine, self.clock)
        self.health = OperationsOverview(engine, self.clock, LIMITS)

    def admit(self, number: int, repository: int = 2, *, ready: bool = True) -> str:
        where, name = issue_ref(number, repository), f"job{number}"
        return self.queue.admit(job(name, where), job_context(where), trigger(name, where), ready=ready)

    def claim(self) -> JobClaim:
        claim = self.queue.claim("host:1:1", LIMITS)
        assert claim is not None
        return claim

    def after(self, minutes: float) -> tuple[str, float] | None:
        """Which job stands still after so many more minutes, and for how many."""
        self.clock.now += timedelta(minutes=minutes)
        found = self.health.stalled()
        return (found.job, found.seconds / 60) if found else None


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with database(request.param, tmp_path) as engine:
        prepare_tables(engine)
        yield Server(engine)


def test_idle_server_has_no_stalled_job(server: Server) -> None:
    assert server.after(100) is None


def test_unclaimed_job_is_stalled(server: Server) -> None:
    server.admit(1)
    assert server.after(11) == ("job1", 11.0)


def test_job_without_base_commit_is_stalled(server: Server) -> None:
    server.admit(1, ready=False)
    assert server.after(12) == ("job1", 12.0)


def test_a_job_that_waits_for_pull_requests_does_not(server: Server) -> None:
    where = issue_ref(1, 2)
    server.queue.admit(
        job("job1", where), job_context(where), trigger("job1", where), ready=True, waiting_reason="Too many."
    )
    assert server.after(100) is None
    assert server.health.figures().oldest_queued == 0.0
    assert server.queue.end_wait("job1", "")
    assert server.after(11) == ("job1", 11.0)


def test_long_running_job_is_not_stalled(server: Server) -> None:
    server.admit(1)
    claim = server.claim()
    for _ in range(30):
        assert server.after(0.5) is None
        assert server.queue.heartbeat(claim)


def test_job_of_a_dead_worker_is_stalled_once_its_lease_ends(server: Server) -> None:
    server.admit(1)
    server.claim()
    assert server.after(0.9) is None
    assert server.after(11.1) == ("job1", 11.0)


def test_job_waiting_behind_others_is_not_stalled(server: Server) -> None:
    server.admit(1)
    server.admit(2)
    first = server.claim()
    for _ in range(30):
        server.clock.now += MINUTE / 2
        server.queue.heartbeat(first)
    assert server.after(0) is None
    server.admit(3, repository=3)
    second = server.claim()
    assert second.job == "job3"
    server.admit(4, repository=4)
    for _ in range(30):
        server.clock.now += MINUTE / 2
        server.queue.heartbeat(first)
        server.queue.heartbeat(second)
    assert server.after(0) is None


def test_waiting_time_begins_when_a_worker_becomes_free(server: Server) -> None:
    server.admit(1)
    server.admit(2)
    claim = server.claim()
    for _ in range(40):
        server.clock.now += MINUTE / 2
        server.queue.heartbeat(claim)
    server.store.finish("job1", "no_change", "", {})
    server.queue.release(claim)
    assert server.after(0) == ("job2", 0.0)
    assert server.after(11) == ("job2", 11.0)


def test_postponed_job_is_stalled_only_after_its_time(server: Server) -> None:
    server.admit(1)
    claim = server.claim()
    server.queue.postpone(claim, "The provider is away.", timedelta(minutes=20))
    server.queue.release(claim)
    assert server.after(19) is None
    assert server.after(12) == ("job1", 11.0)


@pytest.mark.parametrize("state", ["awaiting_approval", "needs_input", "paused", "stopped", "pr_opened"])
def test_waiting_or_ended_job_is_not_stalled(server: Server, state: str) -> None:
    server.admit(1)
    claim = server.claim()
    server.store.enter("job1", state)  # type: ignore[arg-type]  # a plain word
    server.queue.release(claim)
    assert server.after(100) is None


def test_job_with_unmade_effects_is_stalled(server: Server) -> None:
    server.admit(1)
    claim = server.claim()
    server.queue.hand_over(claim, {})
    server.queue.release(claim)
    assert server.after(15) == ("job1", 15.0)


def test_job_waiting_for_the_daily_budget_is_not_stalled() -> None:
    standing = WaitingJob("a", 1, "queued", "daily_budget", held=False, ready=True, since=NOW)
    assert longest_stalled([standing], LIMITS, None, NOW + timedelta(hours=5)) is None


def test_longest_waiting_job_is_reported() -> None:
    waiting = [
        WaitingJob(name, number, "queued", "", held=False, ready=False, since=NOW - number * MINUTE)
        for number, name in enumerate("abc")
    ]
    found = longest_stalled(waiting, LIMITS, None, NOW)
    assert found is not None
    assert (found.job, found.seconds) == ("c", 120.0)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path, seed=False) as ready:
        yield ready


async def test_the_dashboard_says_that_a_webhook_is_late(here: WebClient) -> None:
    assert "No delays" in await here.page("/")
    delivery = {"id": "d1", "content": "c1", "event": "issues", "state": "waiting", "received_at": NOW, "due_at": NOW}
    with here.engine.begin() as db:
        db.execute(deliveries.insert().values(**delivery))
    here.clock.now += timedelta(seconds=61)
    assert "A webhook has been waiting for 1 min" in await here.page("/")


async def test_the_dashboard_says_that_writes_to_github_fail(here: WebClient) -> None:
    effect = {
        "key": "k",
        "job": "j",
        "epoch": 1,
        "issue_ref": {},
        "effect": {},
        "digest": "",
        "revision": 1,
        "due": 1.0,
    }
    with here.engine.begin() as db:
        db.execute(effects.insert().values(**effect, state="wanted", attempts=0))
    assert "No delays" in await here.page("/")
    with here.engine.begin() as db:
        db.execute(effects.update().values(attempts=1))
    assert "1 write to GitHub failed and will be retried" in await here.page("/")
    with here.engine.begin() as db:
        db.execute(effects.update().values(key="j/notification/webhook/error"))
    assert "No delays" in await here.page("/"), "a notification does not go to GitHub"


async def test_health_fails_after_ten_minutes_without_naming_jobs(here: WebClient) -> None:
    where = issue_ref(1)
    here.receiving.queue.admit(job("job1", where), job_context(where), trigger("x", where), ready=True)
    here.clock.now += timedelta(minutes=10)
    assert (await here.stranger.get("/healthz")).json() == {"status": "ok"}
    here.clock.now += timedelta(seconds=2)
    answer = await here.stranger.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "stalled", "stalled_seconds": 602})
    assert (await here.stranger.get("/livez")).status_code == 200
    assert "A job has made no progress for 10 min" in await here.page("/")
    claim = here.receiving.queue.claim("host:1:1", LIMITS)
    assert claim is not None
    here.clock.now += timedelta(seconds=2)
    assert (await here.stranger.get("/healthz")).status_code == 200


def test_effects_of_former_owners_do_not_count_as_delayed(server: Server) -> None:
    server.admit(1)
    server.claim()
    with server.engine.begin() as db:
        for epoch in (0, 1):
            effect: dict[str, object] = {
                "key": f"job1/label/{epoch}",
                "job": "job1",
                "epoch": epoch,
                "issue_ref": {},
                "effect": {},
            }
            effect |= {"digest": "", "revision": 1, "due": NOW.timestamp() - 60.0 + 30.0 * epoch, "attempts": 1}
            db.execute(effects.insert().values(**effect, state="wanted"))
    found = server.health.figures()
    assert (found.effects_retried, found.oldest_effect) == (1, 30.0)
