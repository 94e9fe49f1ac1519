"""A server's queue: one living job a place, one worker a job, nothing stranded, on both databases."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.cli.local_context import open_store
from app.config.repository import RepoConfig
from app.config.settings import settings_from
from app.core.errors import AgentFixError, LostSandboxError, SandboxError
from app.core.job import Budget, JobState
from app.core.model_usage import DOLLAR
from app.jobs.queue import (
    CLUSTERS,
    LEASE,
    MAX_CRASHES,
    MAX_WORKER_DEATHS,
    ORDINARY,
    URGENT,
    DailyBudget,
    DayCaps,
    JobClaim,
    JobQueue,
    QueueLimits,
    QueuePlace,
    spent,
)
from app.jobs.schema import prepare_tables
from app.jobs.status import AHEAD
from app.jobs.store import ALL_JOBS_EVERY, JobQueries, JobStore
from app.jobs.tables import job_contexts, writing
from app.jobs.trigger_log import JobMessage
from app.llm.base import Usage
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.llm.sql_ledger import SqlLedger, calls
from app.server.context import ServerContext
from app.server.job_process import JobProcess
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database
from tests.support.job_queue import Server
from tests.support.server_jobs import START, issue_ref, job, job_context, trigger


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with database(request.param, tmp_path) as engine:
        yield Server(engine)


def test_an_issue_has_one_active_job(server: Server) -> None:
    assert server.admit("a") == "a"
    assert server.admit("b") == "a", "the second is told who lives there"
    assert server.store.get("b") is None
    assert server.triggers.decided("r2/b") is None, "and still has to be decided"
    assert server.admit("c", number=4) == "c"


def test_a_trigger_makes_one_job_however_often_it_is_delivered(server: Server) -> None:
    assert server.admit("a") == "a"
    server.store.finish("a", "pr_opened", "", {})
    asked = trigger("r2/a")
    assert server.queue.admit(job("again"), job_context(), asked) == ""
    assert server.store.get("again") is None


def test_one_of_fifty_concurrent_jobs_is_admitted(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(server.admit, [f"j{number:02}" for number in range(50)]))
    assert len(set(told)) == 1
    with server.engine.connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM jobs")).scalar() == 1


def test_a_final_job_frees_its_issue(server: Server) -> None:
    server.admit("a")
    server.store.enter("a", "no_access", "gone")
    assert server.admit("b") == "b"


def test_a_question_runs_beside_the_active_job(server: Server) -> None:
    server.admit("a")
    assert server.admit("q", aim="ask", trigger="comment:9", publish_target="nowhere") == "q"
    active = server.job_queries.active(2, 3)
    assert active is not None
    assert active.job.id == "a"


def test_a_job_is_claimed_by_one_worker(server: Server) -> None:
    server.admit("a")
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(server.claim, [f"w{number}" for number in range(20)]))
    assert sorted(claims) == [""] * 19 + ["a"]


def test_urgent_jobs_come_first_then_older_ones(server: Server) -> None:
    server.admit("b", 1)
    server.admit("c", 2, priority=0)
    server.admit("a", 3)
    assert [server.claim() for _ in range(4)] == ["c", "a", "b", ""]


def test_limits_apply_overall_and_per_repository(server: Server) -> None:
    for number in range(3):
        server.admit(f"a{number}", number, repository=1)
    server.admit("b", repository=2)
    limits = QueueLimits(jobs=3, per_repository=2)
    assert [server.claim(limits=limits) for _ in range(4)] == ["a0", "a1", "b", ""]
    server.queue.release(JobClaim("a0", 1, "w1", resumed=False))
    server.store.enter("a0", "answered")
    assert server.claim(limits=limits) == "a2"


def test_job_without_base_commit_waits(server: Server) -> None:
    server.queue.admit(job("a"), job_context(), trigger("k"))
    assert server.claim() == ""
    assert [each.job.id for each in server.job_queries.without_base_commit()] == ["a"]
    server.job_queries.mark_ready("a")
    assert server.claim() == "a"


def test_a_worker_keeps_its_jobs_until_its_lease_ends(server: Server) -> None:
    server.admit("a")
    first = server.take("w1")
    server.clock.passes(LEASE - timedelta(seconds=1))
    assert server.queue.heartbeat(first)
    server.clock.passes(LEASE - timedelta(seconds=1))
    assert server.claim("w2") == ""
    server.clock.passes(timedelta(seconds=2))
    second = server.take("w2")
    assert (second.epoch, second.resumed) == (2, True)
    assert not server.queue.heartbeat(first), "it came back from the dead"
    server.queue.release(first)
    assert server.row("a").owner == "w2"


def test_a_worker_that_lost_its_claim_changes_nothing(server: Server) -> None:
    server.admit("a")
    zombie = server.take("w1")
    server.clock.passes(LEASE * 2)
    server.take("w2")
    stale = JobStore(server.engine, server.clock, fence=zombie.epoch)
    stale.enter("a", "error", "lies")
    stale.finish("a", "pr_opened", "lies", {})
    assert not server.queue.hand_over(zombie, {"exit_status": "pr_opened"})
    server.queue.postpone(zombie, "lies", timedelta())
    assert (server.state("a"), server.row("a").reason) == ("queued", "")


def test_reclaimed_job_is_held_by_the_new_claim_only(server: Server) -> None:
    """The owner is the same; what an earlier process of it still says must not count."""
    server.admit("a")
    before = server.take("w1")
    server.clock.passes(LEASE * 2)
    now = server.take("w1")
    assert not server.queue.heartbeat(before)
    server.queue.release(before, crashed=True)
    assert server.row("a").owner == "w1"
    assert server.claim("w2") == ""
    assert server.queue.heartbeat(now)


def test_a_worker_of_an_ended_job_changes_nothing(server: Server) -> None:
    server.admit("a")
    claim = server.take("w1")
    assert server.queue.end("a", "no_access", "The App was removed.")
    store = JobStore(server.engine, server.clock, fence=claim.epoch)
    store.enter("a", "working")
    store.finish("a", "pr_opened", "", {})
    assert (server.state("a"), server.row("a").reason) == ("no_access", "The App was removed.")


def test_job_that_kills_its_processes_is_given_up(server: Server) -> None:
    server.admit("poison", 1)
    server.admit("good", 2, priority=5)
    for _ in range(MAX_CRASHES):
        server.queue.release(server.take(), crashed=True)
    assert server.state("poison") == "error"
    assert "died 3 times" in server.row("poison").reason
    assert server.claim() == "good"
    assert server.admit("again", 1) == "again", "the place is free for another try"


def test_a_job_that_kills_its_workers_is_given_up(server: Server) -> None:
    server.admit("poison")
    for _ in range(MAX_WORKER_DEATHS):
        assert server.claim() == "poison"
        server.clock.passes(LEASE * 2)
    assert server.claim() == ""
    assert server.state("poison") == "error"
    assert "worker died 20 times" in server.row("poison").reason


@pytest.mark.parametrize("cluster", sorted(CLUSTERS))
def test_a_lost_pod_is_a_death_of_the_process(server: Server, cluster: str) -> None:
    """In a cluster it extends the lease itself; no worker dies with it."""
    server.admit("poison")
    for _ in range(MAX_CRASHES):
        assert server.claim(cluster) == "poison"
        server.clock.passes(LEASE * 2)
    assert server.claim(cluster) == ""
    assert "process died 3 times" in server.row("poison").reason


def test_deaths_of_workers_do_not_add_to_those_of_the_job(server: Server) -> None:
    """A worker that dies takes all its jobs with it, whichever of them was the reason, if any was."""
    server.admit("a")
    for _ in range(MAX_WORKER_DEATHS - 1):
        assert server.claim() == "a"
        server.clock.passes(LEASE * 2)
    for _ in range(MAX_CRASHES - 1):
        server.queue.release(server.take(), crashed=True)
        assert server.state("a") == "queued"
    server.queue.release(server.take(), crashed=True)
    assert server.state("a") == "error"


def test_a_finished_step_resets_the_counts_of_deaths(server: Server) -> None:
    server.admit("a")
    for _ in range(MAX_CRASHES * 2):
        server.queue.release(server.take(), crashed=True)
        server.queue.made_progress("a")
    for _ in range(MAX_WORKER_DEATHS + 1):
        assert server.claim() == "a"
        server.queue.made_progress("a")
        server.clock.passes(LEASE * 2)
    assert server.state("a") == "queued"


@pytest.mark.parametrize("state", ["awaiting_approval", "needs_input", "paused"])
def test_a_waiting_job_waits_for_people(server: Server, state: JobState) -> None:
    server.admit("a")
    claim = server.take()
    server.store.enter("a", state, "why")
    server.queue.release(claim)
    assert server.claim() == ""
    richer = job("a", budget=Budget(usd=9_000_000))
    assert server.queue.resume("a", richer)
    assert not server.queue.resume("a"), "it waits no more"
    assert server.take().resumed
    assert server.row("a").job.budget.usd == 9_000_000


def test_answer_after_another_job_started_is_too_late(server: Server) -> None:
    server.admit("a")
    server.store.enter("a", "needs_input")
    assert server.admit("b") == "b"
    assert not server.queue.resume("a", messages=[JobMessage("answer", "k", "ada", "Half up.")])
    assert server.state("a") == "needs_input"
    assert server.messages.since("a", 0) == ()


def test_idle_job_stops_at_once_and_running_one_after_its_process_ended(server: Server) -> None:
    server.admit("idle", 1)
    assert server.queue.stop("idle", "asked")
    assert server.state("idle") == "stopped"
    server.admit("busy", 2)
    claim = server.take()
    assert not server.queue.stop("busy", "asked")
    assert server.state("busy") == "queued"
    server.queue.release(claim, crashed=True)  # it was killed
    assert server.claim() == ""
    assert server.state("busy") == "stopped"


def test_a_job_whose_worker_died_can_be_stopped(server: Server) -> None:
    server.admit("a")
    server.take()
    server.clock.passes(LEASE * 2)
    assert server.queue.stop("a", "asked")
    assert server.state("a") == "stopped"


def test_job_being_published_is_not_stopped(server: Server) -> None:
    server.admit("a")
    claim = server.take()
    assert server.queue.hand_over(claim, {"exit_status": "pr_opened"})
    server.queue.release(claim)
    assert not server.queue.stop("a", "too late")
    assert server.claim() == "", "and no worker takes it up again"
    assert [each.job.id for each in server.job_queries.handed_over_jobs()] == ["a"]


def test_job_that_died_before_adding_effects_is_resumed(server: Server) -> None:
    server.admit("a")
    claim = server.take()
    server.store.enter("a", "publishing")
    server.queue.release(claim, crashed=True)
    assert server.claim() == "a"
    assert server.job_queries.handed_over_jobs() == ()


def test_postponed_job_is_claimed_when_due(server: Server) -> None:
    server.admit("a")
    claim = server.take()
    server.queue.postpone(claim, "The provider is down.", timedelta(seconds=90))
    server.queue.release(claim)
    assert (server.claim(), server.row("a").reason) == ("", "The provider is down.")
    server.clock.passes(timedelta(seconds=91))
    assert server.claim() == "a"


def test_a_days_budget_holds_jobs_back_until_the_day_is_over(server: Server) -> None:
    daily = RepoConfig.model_validate({"budget": {"usd_per_day": 2.0}})
    server.admit("a", 1, config=daily)
    ledger = SqlLedger(server.engine, "a", 5_000_000)
    ledger.reserve("plan", 2_500_000)
    ledger.book("plan", Usage(cost=2_100_000))
    server.store.enter("a", "answered")
    server.admit("b", 2, config=daily)
    assert server.claim() == ""
    assert server.row("b").reason == DailyBudget("this repository", 1).spent_reason
    assert server.admit("c", 3, repository=9) == server.claim(), "other repositories are not held back"
    server.clock.passes(timedelta(days=1, seconds=1))
    assert server.claim() == "b"
    assert server.row("b").reason == ""


def test_a_busy_repository_does_not_starve_those_behind_it(server: Server) -> None:
    for number in range(150):
        server.admit(f"busy{number:03}", number, repository=1)
    server.clock.passes(timedelta(minutes=1))
    server.admit("behind", 1, repository=2)
    limits = QueueLimits(jobs=5, per_repository=1)
    assert [server.claim(limits=limits) for _ in range(3)] == ["busy000", "behind", ""]


def test_an_empty_budget_does_not_starve_those_behind_it(server: Server) -> None:
    daily = RepoConfig.model_validate({"budget": {"usd_per_day": 2.0}})
    server.admit("spent", 500, repository=1, config=daily)
    ledger = SqlLedger(server.engine, "spent", 5_000_000)
    ledger.reserve("plan", 2_100_000)
    ledger.book("plan", Usage(cost=2_100_000))
    server.store.enter("spent", "answered")
    for number in range(150):
        server.admit(f"poor{number:03}", number, repository=1, config=daily)
    server.clock.passes(timedelta(minutes=1))
    server.admit("behind", 1, repository=2)
    assert server.claim() == "behind"
    assert {server.row(name).reason for name in ("poor000", "poor149")} == {
        DailyBudget("this repository", 1).spent_reason
    }
    server.clock.passes(timedelta(days=1, seconds=1))
    assert server.claim() == "poor000"


def test_a_job_that_waits_long_enough_comes_before_newer_urgent_ones(server: Server) -> None:
    server.admit("old", 1)
    server.clock.passes((ORDINARY - URGENT) * AHEAD - timedelta(seconds=1))
    server.admit("urgent", 2, priority=URGENT)
    assert server.claim() == "urgent"
    server.clock.passes(timedelta(seconds=2))
    server.admit("later", 3, priority=URGENT)
    assert [server.claim(), server.claim()] == ["old", "later"]


def test_waiting_job_reports_its_queue_position(server: Server) -> None:
    server.admit("a", 1)
    server.clock.passes(timedelta(minutes=5))
    server.admit("b", 2, priority=URGENT)
    assert server.queue.place("a") == QueuePlace(2, 2, timedelta(minutes=5), urgent=False)
    assert server.queue.place("b") == QueuePlace(1, 2, timedelta(), urgent=True)
    assert server.claim() == "b"
    assert server.queue.place("b") is None


def test_messages_are_kept_once_and_in_order(server: Server) -> None:
    add = server.messages.add
    assert add("a", "steer", key="comment:1", who="ada", text="use Decimal")
    assert not add("a", "steer", key="comment:1", who="ada", text="use Decimal")
    assert add("a", "approve", key="comment:2", who="ada")
    assert add("b", "steer", key="comment:3", who="ada")
    said = server.messages.since("a", 0)
    assert [each.text for each in said] == ["use Decimal", ""]
    assert [each.kind for each in server.messages.since("a", said[0].seq)] == ["approve"]
    assert server.messages.since("a", 0, "answer") == ()


def test_recent_requests_are_counted(server: Server) -> None:
    for number in range(3):
        asked = trigger(f"k{number}", at=START - timedelta(minutes=40 * number))
        assert server.triggers.record(asked, "skipped")
    assert not server.triggers.record(trigger("k0"), "again")
    assert server.triggers.recent_count(2, 7) == 2
    assert server.triggers.recent_count(2, 8) == 0
    kept = server.triggers.decided("k0")
    assert kept is not None
    assert kept.outcome == "skipped"


def test_unposted_changes_are_listed_and_running_jobs_periodically(server: Server) -> None:
    every = timedelta(seconds=10)

    def untold() -> list[str]:
        return [each.job.id for each in server.job_queries.not_posted(every)]

    def post() -> None:
        for each in server.job_queries.not_posted(every):
            server.job_queries.mark_posted(each)

    server.admit("a")
    assert untold() == ["a"]
    post()
    assert untold() == []
    server.clock.passes(every)
    assert untold() == ["a"]
    post()
    server.store.enter("a", "stopped")
    assert untold() == ["a"]
    post()
    server.clock.passes(every)
    assert untold() == [], "what is final is told once"


def test_old_unposted_changes_are_found_by_a_full_scan(server: Server) -> None:
    """Between two of these a look costs as much as there is news, however many jobs have ended."""
    every = timedelta(seconds=10)
    server.admit("a")
    server.store.enter("a", "stopped")
    asked: list[str] = []
    sa.event.listen(server.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    for _ in range(3):
        assert [each.job.id for each in server.job_queries.not_posted(every)] == ["a"], "it is told until it is marked"
        server.clock.passes(every)
    assert [statement.count("jobs.updated_at >=") for statement in asked] == [0, 0, 0, 1, 0, 1], "living, then changed"
    server.clock.passes(ALL_JOBS_EVERY)
    asked.clear()
    assert [each.job.id for each in server.job_queries.not_posted(every)] == ["a"]
    assert "jobs.updated_at >=" not in "".join(asked)


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1, seconds=1)


@dataclass
class BudgetHarness:
    """Jobs of several people in several repositories, on a real database."""

    engine: Engine
    caps: DayCaps = field(default_factory=DayCaps)

    def __post_init__(self) -> None:
        self.clock = SettableClock(NOW)
        self.made = 0

    def account(self, *, repository: int = 2, actor: int = 7, login: str = "ada", **budget: float) -> SqlLedger:
        """The account of a new job; `budget` is what the repository says of it."""
        self.made += 1
        where = issue_ref(self.made, repository)
        name, config = f"j{self.made}", RepoConfig.model_validate({"budget": budget})
        wanted = job(name, where)
        origin = wanted.task.origin
        assert origin is not None
        task = wanted.task.model_copy(update={"origin": origin.model_copy(update={"actor": actor})})
        wanted = wanted.model_copy(update={"task": task})
        told = job_context(where, config=config, login=login)
        queue = JobQueue(self.engine, self.clock, caps=self.caps)
        assert queue.admit(wanted, told, trigger(name, where), ready=True) == name
        seconds = lambda: self.clock().timestamp()  # noqa: E731
        shared = self.caps.budgets(told, actor, seconds)
        return SqlLedger(self.engine, name, 100 * DOLLAR, shared=shared, clock=seconds)


@pytest.fixture(params=DIALECTS)
def e2e_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BudgetHarness]:
    with database(request.param, tmp_path) as engine:
        prepare_tables(engine)
        yield BudgetHarness(engine)


def spend(ledger: SqlLedger, dollars: float, call: str = "turn.1") -> None:
    ledger.reserve(call, round(dollars * DOLLAR))
    ledger.book(call, Usage(cost=round(dollars * DOLLAR)))


def test_concurrent_jobs_cannot_spend_the_same_dollar(e2e_server: BudgetHarness) -> None:
    first, second = e2e_server.account(usd_per_day=2), e2e_server.account(usd_per_day=2)
    first.reserve("turn.1", round(1.5 * DOLLAR))
    assert second.remaining() == DOLLAR // 2
    with pytest.raises(DayBudgetError, match=r"The day's budget of this repository \(\$2.00\)") as caught:
        second.reserve("turn.1", DOLLAR)
    assert not caught.value.final
    first.book("turn.1", Usage(cost=DOLLAR // 2))
    second.reserve("turn.1", DOLLAR)
    assert e2e_server.account(repository=9, usd_per_day=2).remaining() == 2 * DOLLAR, "another repository has its own"


def test_reservations_of_a_dead_process_are_released(e2e_server: BudgetHarness) -> None:
    first, second = e2e_server.account(usd_per_day=2), e2e_server.account(usd_per_day=2)
    for call in ("kilo.1.1", "kilo.1.2", "kilo.11.1"):
        first.reserve(call, DOLLAR // 2, if_lost=Usage(prompt_tokens=5, cost=DOLLAR // 10))
    assert second.remaining() == DOLLAR // 2
    first.mark_lost("kilo.1.")
    assert (first.totals().lost, first.totals().pending) == (2, 1)
    assert second.remaining() == DOLLAR * 13 // 10


@pytest.mark.parametrize("whose", ["repository", "actor", "server"])
def test_concurrent_reservations_never_exceed_the_daily_budget(e2e_server: BudgetHarness, whose: str) -> None:
    if whose == "repository":
        ledgers = [e2e_server.account(actor=number, usd_per_day=3) for number in range(1, 9)]
    elif whose == "actor":
        e2e_server.caps = DayCaps(actor=3 * DOLLAR)
        ledgers = [e2e_server.account(repository=number) for number in range(8)]
    else:
        e2e_server.caps = DayCaps(server=3 * DOLLAR)
        ledgers = [e2e_server.account(repository=number, actor=number + 1) for number in range(8)]
    begin = threading.Barrier(len(ledgers))

    def ask(ledger: SqlLedger) -> bool:
        begin.wait(60)
        try:
            ledger.reserve("turn.1", DOLLAR)
        except DayBudgetError:
            return False
        return True

    with ThreadPoolExecutor(len(ledgers)) as pool:
        assert sum(pool.map(ask, ledgers)) == 3


def test_daily_budget_renews_after_a_day_for_older_jobs_too(e2e_server: BudgetHarness) -> None:
    ledger = e2e_server.account(usd_per_day=2)
    spend(ledger, 2)
    with pytest.raises(DayBudgetError):
        ledger.reserve("turn.2", 1)
    e2e_server.clock.now += DAY
    spend(ledger, 2, "turn.2")
    with pytest.raises(DayBudgetError):
        ledger.reserve("turn.3", 1)
    today = NOW + timedelta(hours=1)
    assert spent(e2e_server.engine, 2, today) == 2 * DOLLAR, "today's calls of an older job count"


def test_daily_budget_of_a_person_covers_all_repositories(e2e_server: BudgetHarness) -> None:
    e2e_server.caps = DayCaps(actor=3 * DOLLAR)
    spend(e2e_server.account(repository=1), 2)
    with pytest.raises(DayBudgetError, match="budget of ada "):
        spend(e2e_server.account(repository=2), 2)
    spend(e2e_server.account(repository=2, actor=8, login="grace"), 2)
    spend(e2e_server.account(repository=2, login=""), 50)  # begun by the bot itself: nobody's
    spend(e2e_server.account(repository=3), 1)


def test_repository_may_lower_the_budget_of_each_person(e2e_server: BudgetHarness) -> None:
    spend(e2e_server.account(usd_per_day_actor=1), 1)
    with pytest.raises(DayBudgetError, match="ada in this repository"):
        spend(e2e_server.account(usd_per_day_actor=1), 1)
    spend(e2e_server.account(usd_per_day_actor=1, actor=8, login="grace"), 1)
    spend(e2e_server.account(repository=9, usd_per_day_actor=1), 1)


def test_server_cap_covers_all_repositories(e2e_server: BudgetHarness) -> None:
    e2e_server.caps = DayCaps(server=3 * DOLLAR)
    spend(e2e_server.account(repository=1), 2)
    with pytest.raises(DayBudgetError, match="this server"):
        spend(e2e_server.account(repository=2, actor=8, login="grace"), 2)


def test_own_cap_of_a_job_is_reported_first(e2e_server: BudgetHarness) -> None:
    e2e_server.caps = DayCaps(server=DOLLAR)
    ledger = SqlLedger(e2e_server.engine, "own", 5, shared=e2e_server.caps.budgets(job_context(), 0, lambda: 0.0))
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("turn.1", 2 * DOLLAR)
    assert not isinstance(caught.value, DayBudgetError)
    assert "--budget" in caught.value.hint


def test_lost_call_is_counted_once(e2e_server: BudgetHarness) -> None:
    e2e_server.caps = DayCaps(server=10 * DOLLAR)
    ledger = e2e_server.account()
    ledger.reserve("turn.1", 9 * DOLLAR, if_lost=Usage(cost=4 * DOLLAR))
    assert e2e_server.account().remaining() == DOLLAR
    assert ledger.remaining("turn.1") == 6 * DOLLAR
    ledger.reserve("turn.1", 6 * DOLLAR)
    assert e2e_server.account().remaining() == 0


def test_warning_at_four_fifths_is_given_once(e2e_server: BudgetHarness) -> None:
    ledger, other = e2e_server.account(usd_per_day=10), e2e_server.account(usd_per_day=10)
    warned = []
    for number, (account, dollars) in enumerate([(ledger, 7), (other, 0.9), (ledger, 0.2), (other, 1)]):
        spend(account, dollars, f"turn.{number}")
        warned.append(account.nearing(round(dollars * DOLLAR)))
    assert warned == [(), (), ("80 % of the day's budget of this repository is spent: $8.10 of $10.00.",), ()]
    own = SqlLedger(e2e_server.engine, "own", 10 * DOLLAR)
    for number, dollars in enumerate([7.9, 0.1, 1]):
        spend(own, dollars, f"turn.{number}")
        assert own.nearing(round(dollars * DOLLAR)) == (
            ("80 % of the budget is spent: $8.00 of $10.00.",) if number == 1 else ()
        )


@pytest.mark.parametrize(
    ("caps", "whose"),
    [(DayCaps(server=DOLLAR), "this server"), (DayCaps(actor=DOLLAR), "ada"), (DayCaps(actor=9 * DOLLAR), "")],
)
def test_job_over_the_daily_budget_is_not_started(e2e_server: BudgetHarness, caps: DayCaps, whose: str) -> None:
    e2e_server.caps = caps
    spend(e2e_server.account(), 1)
    JobStore(e2e_server.engine, e2e_server.clock).enter("j1", "answered")
    e2e_server.account()
    claimed = JobQueue(e2e_server.engine, e2e_server.clock, caps=caps).claim("w1", QueueLimits(8, 8))
    row = JobStore(e2e_server.engine, e2e_server.clock).get("j2")
    assert row is not None
    assert (claimed is None, row.reason) == (bool(whose), DailyBudget(whose, 1).spent_reason if whose else "")
    waits = JobQueries(e2e_server.engine, e2e_server.clock).get("j2")
    assert waits is not None
    assert waits.waiting_for == ("daily_budget" if whose else "")


@pytest.fixture
def server_context(tmp_path: Path) -> Iterator[ServerContext]:
    found = ServerContext(settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path / "state")}))
    found.prepare()
    yield found
    found.engine.dispose()


@pytest.mark.parametrize(
    ("error", "state", "waiting_for"),
    [
        (BudgetError("The next call could pass the cap.", hint="Raise it."), "paused", "money"),
        (DayBudgetError("The day's budget of ada is spent."), "queued", "daily_budget"),
        (ModelError("No key for the budget model.", kind="give_up", reason="no_key"), "paused", ""),
    ],
)
def test_only_budget_errors_make_a_job_wait_for_money(
    server_context: ServerContext, error: AgentFixError, state: str, waiting_for: str
) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    claim = server_context.queue.claim("w1", QueueLimits(1, 1))
    assert claim is not None
    JobProcess(server_context, claim).release(error)
    found = server_context.job_queries.get("a")
    assert found is not None
    assert (found.row.state, found.waiting_for) == (state, waiting_for)
    if state == "paused":
        assert server_context.queue.resume("a")
        resumed = server_context.job_queries.get("a")
        assert resumed is not None
        assert resumed.waiting_for == ""
    else:
        server_context.queue.release(claim)
        assert server_context.queue.claim("w1", QueueLimits(1, 1)) is None, (
            "not before the day's money may have come back"
        )
        assert found.row.reason.startswith("The day's budget")
        with writing(server_context.engine) as db:
            db.execute(job_contexts.update().values(due=0.0))
        assert server_context.queue.claim("w1", QueueLimits(1, 1)) is not None
        again = server_context.job_queries.get("a")
        assert again is not None
        assert again.waiting_for == "", "it waits for nothing once it is worked on"


def test_a_job_that_is_asked_to_stop_does_not_wait_for_its_turn(server_context: ServerContext) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    assert server_context.queue.place("a") is not None
    server_context.job_store().request_stop("a")
    assert server_context.queue.place("a") is None


def test_lost_sandbox_is_retried_a_limited_number_of_times(server_context: ServerContext) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    told = []
    for error in [LostSandboxError("The sandbox is gone.")] * 3:
        with writing(server_context.engine) as db:
            db.execute(job_contexts.update().values(due=0.0))
        claim = server_context.queue.claim("w1", QueueLimits(1, 1))
        assert claim is not None
        JobProcess(server_context, claim).release(error)
        found = server_context.job_queries.get("a")
        assert found is not None
        told.append(found.row.state)
        assert found.row.state == "error" or "continues in a new sandbox" in found.row.reason
    assert told == ["queued", "queued", "error"]


def test_unavailable_sandbox_pauses_the_job_for_people(server_context: ServerContext) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    claim = server_context.queue.claim("w1", QueueLimits(1, 1))
    assert claim is not None
    JobProcess(server_context, claim).release(SandboxError("E2B refused the key."))
    found = server_context.job_queries.get("a")
    assert found is not None
    assert (found.row.state, "refused the key" in found.row.reason) == ("paused", True)


def test_state_written_by_a_fenced_process_is_ignored(server_context: ServerContext) -> None:
    server_context.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    assert server_context.queue.claim("w1", QueueLimits(1, 1)) is not None
    JobStore(server_context.engine, server_context.clock, fence=77).enter("a", "paused", "x", waiting_for="money")
    found = JobQueries(server_context.engine, server_context.clock).get("a")
    assert found is not None
    assert (found.row.state, found.waiting_for) == ("queued", "")


def test_job_gets_the_rest_of_the_daily_budget(server_context: ServerContext) -> None:
    daily = job_context(config=RepoConfig.model_validate({"budget": {"usd_per_day": 2}}))
    wanted = job("a", budget=Budget(usd=5 * DOLLAR))
    server_context.queue.admit(wanted, daily, trigger("t"), ready=True)
    ledger = JobProcess(server_context, JobClaim("a", 1, "w1", resumed=False)).ledger(wanted, daily)
    assert (ledger.cap, ledger.remaining()) == (5 * DOLLAR, 2 * DOLLAR)


def test_older_database_keeps_its_daily_budgets(tmp_path: Path) -> None:
    settings = settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path)})
    store = open_store(settings)
    SqlLedger(store.engine, "old", DOLLAR).reserve("turn.1", 5)
    with store.engine.begin() as db:
        db.execute(sa.text("DROP INDEX ix_calls_days"))
        db.execute(sa.text("ALTER TABLE calls DROP COLUMN at"))
    store.engine.dispose()
    again = open_store(settings)
    ledger = SqlLedger(again.engine, "old", DOLLAR, clock=lambda: 9.0)
    ledger.reserve("turn.2", 5)
    with again.engine.connect() as db:
        assert list(db.execute(sa.select(calls.c.at).order_by(calls.c.call)).scalars()) == [0.0, 9.0]
    again.engine.dispose()
