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

from app.bootstrap.attending import Office
from app.bootstrap.local import open_store
from app.bootstrap.premises import Premises
from app.config import RepoConfig
from app.entrypoints.attend import Attendance
from app.errors import AgentFixError, LostSandboxError, SandboxError
from app.job import Budget
from app.jobs.queue import Claim, Limits, Queue
from app.jobs.roster import Roster
from app.jobs.schema import prepare_tables
from app.jobs.spending import WAITS_FOR_MONEY, DayCaps, Purse, spent
from app.jobs.store import JobStore
from app.jobs.tables import commissions, writing
from app.model.base import Usage
from app.model.budget import DOLLAR
from app.model.errors import BudgetError, DayBudgetError, ModelError
from app.model.sql_ledger import SqlLedger, calls
from app.settings import settings_from
from tests.commissions import commission, job, place, trigger
from tests.databases import DIALECTS, database
from tests.seeding import Moment

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1, seconds=1)


@dataclass
class Town:
    """Jobs of several people in several repositories, on a real database."""

    engine: Engine
    caps: DayCaps = field(default_factory=DayCaps)

    def __post_init__(self) -> None:
        self.clock = Moment(NOW)
        self.made = 0

    def account(self, *, repository: int = 2, actor: int = 7, login: str = "ada", **budget: float) -> SqlLedger:
        """The account of a new job; `budget` is what the repository says of it."""
        self.made += 1
        where = place(self.made, repository)
        name, config = f"j{self.made}", RepoConfig.model_validate({"budget": budget})
        wanted = job(name, where)
        origin = wanted.task.origin
        assert origin is not None
        task = wanted.task.model_copy(update={"origin": origin.model_copy(update={"actor": actor})})
        wanted = wanted.model_copy(update={"task": task})
        told = commission(where, config=config, login=login)
        queue = Queue(self.engine, self.clock, caps=self.caps)
        assert queue.admit(wanted, told, trigger(name, where), ready=True) == name
        seconds = lambda: self.clock().timestamp()  # noqa: E731
        shared = self.caps.purses(told, actor, seconds)
        return SqlLedger(self.engine, name, 100 * DOLLAR, shared=shared, clock=seconds)


@pytest.fixture(params=DIALECTS)
def town(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Town]:
    with database(request.param, tmp_path) as engine:
        prepare_tables(engine)
        yield Town(engine)


def spend(ledger: SqlLedger, dollars: float, call: str = "turn.1") -> None:
    ledger.reserve(call, round(dollars * DOLLAR))
    ledger.book(call, Usage(cost=round(dollars * DOLLAR)))


def test_jobs_at_work_side_by_side_cannot_spend_the_same_dollar(town: Town) -> None:
    first, second = town.account(usd_per_day=2), town.account(usd_per_day=2)
    first.reserve("turn.1", round(1.5 * DOLLAR))
    assert second.remaining() == DOLLAR // 2
    with pytest.raises(DayBudgetError, match=r"The day's budget of this repository \(\$2.00\)") as caught:
        second.reserve("turn.1", DOLLAR)
    assert not caught.value.final
    first.book("turn.1", Usage(cost=DOLLAR // 2))
    second.reserve("turn.1", DOLLAR)
    assert town.account(repository=9, usd_per_day=2).remaining() == 2 * DOLLAR, "another repository has its own"


def test_what_a_dead_process_had_open_is_not_held_back_from_others(town: Town) -> None:
    first, second = town.account(usd_per_day=2), town.account(usd_per_day=2)
    for call in ("kilo.1.1", "kilo.1.2", "kilo.11.1"):
        first.reserve(call, DOLLAR // 2, if_lost=Usage(prompt_tokens=5, cost=DOLLAR // 10))
    assert second.remaining() == DOLLAR // 2
    first.lose("kilo.1.")
    assert (first.totals().lost, first.totals().pending) == (2, 1)
    assert second.remaining() == DOLLAR * 13 // 10


def test_of_many_who_ask_at_once_as_many_are_let_as_there_is_money_for(town: Town) -> None:
    town.caps = DayCaps(actor=3 * DOLLAR)
    ledgers = [town.account(repository=number) for number in range(8)]
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


def test_money_comes_back_after_a_day_also_to_a_job_that_is_older(town: Town) -> None:
    ledger = town.account(usd_per_day=2)
    spend(ledger, 2)
    with pytest.raises(DayBudgetError):
        ledger.reserve("turn.2", 1)
    town.clock.now += DAY
    spend(ledger, 2, "turn.2")
    with pytest.raises(DayBudgetError):
        ledger.reserve("turn.3", 1)
    with town.engine.connect() as db:
        assert spent(db, 2, (NOW + timedelta(hours=1)).timestamp()) == 2 * DOLLAR, "today's calls of an older job count"


def test_a_person_has_a_day_s_money_in_all_repositories_together(town: Town) -> None:
    town.caps = DayCaps(actor=3 * DOLLAR)
    spend(town.account(repository=1), 2)
    with pytest.raises(DayBudgetError, match="budget of ada "):
        spend(town.account(repository=2), 2)
    spend(town.account(repository=2, actor=8, login="grace"), 2)
    spend(town.account(repository=2, login=""), 50)  # begun by the bot itself: nobody's
    spend(town.account(repository=3), 1)


def test_a_repository_may_give_each_person_less(town: Town) -> None:
    spend(town.account(usd_per_day_actor=1), 1)
    with pytest.raises(DayBudgetError, match="ada in this repository"):
        spend(town.account(usd_per_day_actor=1), 1)
    spend(town.account(usd_per_day_actor=1, actor=8, login="grace"), 1)
    spend(town.account(repository=9, usd_per_day_actor=1), 1)


def test_the_server_has_a_cap_over_all_of_them(town: Town) -> None:
    town.caps = DayCaps(server=3 * DOLLAR)
    spend(town.account(repository=1), 2)
    with pytest.raises(DayBudgetError, match="this server"):
        spend(town.account(repository=2, actor=8, login="grace"), 2)


def test_a_job_s_own_cap_is_told_of_first(town: Town) -> None:
    town.caps = DayCaps(server=DOLLAR)
    ledger = SqlLedger(town.engine, "own", 5, shared=town.caps.purses(commission(), 0, lambda: 0.0))
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("turn.1", 2 * DOLLAR)
    assert not isinstance(caught.value, DayBudgetError)
    assert "--budget" in caught.value.hint


def test_a_call_that_died_counts_and_is_not_counted_twice(town: Town) -> None:
    town.caps = DayCaps(server=10 * DOLLAR)
    ledger = town.account()
    ledger.reserve("turn.1", 9 * DOLLAR, if_lost=Usage(cost=4 * DOLLAR))
    assert town.account().remaining() == DOLLAR
    assert ledger.remaining("turn.1") == 6 * DOLLAR
    ledger.reserve("turn.1", 6 * DOLLAR)
    assert town.account().remaining() == 0


def test_four_fifths_are_warned_of_once(town: Town) -> None:
    ledger, other = town.account(usd_per_day=10), town.account(usd_per_day=10)
    warned = []
    for number, (account, dollars) in enumerate([(ledger, 7), (other, 0.9), (ledger, 0.2), (other, 1)]):
        spend(account, dollars, f"turn.{number}")
        warned.append(account.nearing(round(dollars * DOLLAR)))
    assert warned == [(), (), ("80 % of the day's budget of this repository is spent: $8.10 of $10.00.",), ()]
    own = SqlLedger(town.engine, "own", 10 * DOLLAR)
    for number, dollars in enumerate([7.9, 0.1, 1]):
        spend(own, dollars, f"turn.{number}")
        assert own.nearing(round(dollars * DOLLAR)) == (
            ("80 % of the budget is spent: $8.00 of $10.00.",) if number == 1 else ()
        )


@pytest.mark.parametrize(
    ("caps", "whose"),
    [(DayCaps(server=DOLLAR), "this server"), (DayCaps(actor=DOLLAR), "ada"), (DayCaps(actor=9 * DOLLAR), "")],
)
def test_nobody_is_begun_for_whom_there_is_no_money(town: Town, caps: DayCaps, whose: str) -> None:
    town.caps = caps
    spend(town.account(), 1)
    JobStore(town.engine, town.clock).enter("j1", "answered")
    town.account()
    claimed = Queue(town.engine, town.clock, caps=caps).claim("w1", Limits(8, 8))
    row = JobStore(town.engine, town.clock).get("j2")
    assert row is not None
    assert (claimed is None, row.reason) == (bool(whose), Purse(whose, 1).is_spent if whose else "")


@pytest.fixture
def premises(tmp_path: Path) -> Iterator[Premises]:
    found = Premises(settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path / "state")}))
    found.prepare()
    yield found
    found.engine.dispose()


@pytest.mark.parametrize(
    ("error", "state", "wants"),
    [
        (BudgetError("The next call could pass the cap.", hint="Raise it."), "paused", "money"),
        (DayBudgetError(f"{WAITS_FOR_MONEY}ada is spent."), "queued", ""),
        (ModelError("No key for the budget model.", kind="give_up", reason="no_key"), "paused", ""),
    ],
)
def test_only_what_money_mends_asks_for_money(premises: Premises, error: AgentFixError, state: str, wants: str) -> None:
    premises.queue.admit(job("a"), commission(), trigger("t"), ready=True)
    claim = premises.queue.claim("w1", Limits(1, 1))
    assert claim is not None
    Attendance(Office(premises, claim)).put_down(error)
    found = premises.roster.get("a")
    assert found is not None
    assert (found.row.state, found.wants) == (state, wants)
    if state == "paused":
        assert premises.queue.resume("a")
        resumed = premises.roster.get("a")
        assert resumed is not None
        assert resumed.wants == ""
    else:
        premises.queue.release(claim)
        assert premises.queue.claim("w1", Limits(1, 1)) is None, "not before the day's money may have come back"
        assert found.row.reason.startswith(WAITS_FOR_MONEY)


def test_a_sandbox_that_was_lost_is_had_again_but_not_for_ever(premises: Premises) -> None:
    premises.queue.admit(job("a"), commission(), trigger("t"), ready=True)
    told = []
    for error in [LostSandboxError("The sandbox is gone.")] * 3:
        with writing(premises.engine) as db:
            db.execute(commissions.update().values(due=0.0))
        claim = premises.queue.claim("w1", Limits(1, 1))
        assert claim is not None
        Attendance(Office(premises, claim)).put_down(error)
        found = premises.roster.get("a")
        assert found is not None
        told.append(found.row.state)
        assert found.row.state == "error" or "goes on in another one" in found.row.reason
    assert told == ["queued", "queued", "error"]


def test_a_sandbox_that_cannot_be_had_is_for_people(premises: Premises) -> None:
    premises.queue.admit(job("a"), commission(), trigger("t"), ready=True)
    claim = premises.queue.claim("w1", Limits(1, 1))
    assert claim is not None
    Attendance(Office(premises, claim)).put_down(SandboxError("E2B refused the key."))
    found = premises.roster.get("a")
    assert found is not None
    assert (found.row.state, "refused the key" in found.row.reason) == ("paused", True)


def test_what_a_fenced_off_process_says_it_wants_is_not_kept(premises: Premises) -> None:
    premises.queue.admit(job("a"), commission(), trigger("t"), ready=True)
    assert premises.queue.claim("w1", Limits(1, 1)) is not None
    JobStore(premises.engine, premises.clock, fence=77).enter("a", "paused", "x", wants="money")
    found = Roster(premises.engine, premises.clock).get("a")
    assert found is not None
    assert (found.row.state, found.wants) == ("queued", "")


def test_the_office_gives_a_job_what_is_left_of_the_day(premises: Premises) -> None:
    daily = commission(config=RepoConfig.model_validate({"budget": {"usd_per_day": 2}}))
    wanted = job("a", budget=Budget(usd=5 * DOLLAR))
    premises.queue.admit(wanted, daily, trigger("t"), ready=True)
    ledger = Office(premises, Claim("a", 1, "w1", resumed=False)).ledger(wanted, daily)
    assert (ledger.cap, ledger.remaining()) == (5 * DOLLAR, 2 * DOLLAR)


def test_a_person_s_database_of_an_older_version_goes_on(tmp_path: Path) -> None:
    settings = settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path)})
    store = open_store(settings)
    SqlLedger(store.engine, "old", DOLLAR).reserve("turn.1", 5)
    with store.engine.begin() as db:
        db.execute(sa.text("DROP INDEX ix_calls_at"))
        db.execute(sa.text("ALTER TABLE calls DROP COLUMN at"))
    store.engine.dispose()
    again = open_store(settings)
    ledger = SqlLedger(again.engine, "old", DOLLAR, clock=lambda: 9.0)
    ledger.reserve("turn.2", 5)
    with again.engine.connect() as db:
        assert list(db.execute(sa.select(calls.c.at).order_by(calls.c.call)).scalars()) == [0.0, 9.0]
    again.engine.dispose()
