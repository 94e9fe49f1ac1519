"""What several jobs may cost together in a day: kept before each call, by every process, over every crash."""

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
from app.core.job import Budget
from app.core.money import DOLLAR
from app.jobs.daily_budget import WAITS_FOR_MONEY, DailyBudget, DayCaps, spent
from app.jobs.job_queries import JobQueries
from app.jobs.queue import JobClaim, JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.jobs.tables import job_contexts, writing
from app.llm.base import Usage
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.llm.sql_ledger import SqlLedger, calls
from app.server.context import ServerContext
from app.server.job_process import JobProcess
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database
from tests.support.server_jobs import issue_ref, job, job_context, trigger

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
    with e2e_server.engine.connect() as db:
        assert spent(db, 2, (NOW + timedelta(hours=1)).timestamp()) == 2 * DOLLAR, "today's calls of an older job count"


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
    assert (claimed is None, row.reason) == (bool(whose), DailyBudget(whose, 1).is_spent if whose else "")


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
        (DayBudgetError(f"{WAITS_FOR_MONEY}ada is spent."), "queued", ""),
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
        assert found.row.reason.startswith(WAITS_FOR_MONEY)


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
