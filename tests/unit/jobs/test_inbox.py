"""The inbox: what was committed is known, what was not is welcome again; one worker at a time, on both databases."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import AgentFixError
from app.jobs.inbox import (
    KEEP_BODIES,
    KEEP_ROWS,
    LEASE,
    MAX_ATTEMPTS,
    MAX_DEATHS,
    MAX_TOGETHER,
    PROGRAM_EVENT,
    BatchWriter,
    Delivery,
    Inbox,
    InboxError,
    StoreOutcome,
)
from app.jobs.tables import deliveries, metadata, open_database
from tests.support.clock import START, SettableClock
from tests.support.databases import DIALECTS, database


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=DIALECTS)
def inbox(request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock) -> Iterator[Inbox]:
    with database(request.param, tmp_path) as engine:
        metadata.create_all(engine)
        yield Inbox(engine, clock)


def delivery(ident: str = "d1", body: str = "{}") -> Delivery:
    return Delivery(ident, "issues", body.encode())


def store(inbox: Inbox, *arrived: Delivery) -> list[StoreOutcome]:
    return inbox.store(arrived)


def test_delivery_is_stored_unchanged(inbox: Inbox) -> None:
    body = bytes(range(256))
    assert store(inbox, Delivery("d1", "issue_comment", body)) == ["stored"]
    (claimed,) = inbox.claim("w")
    assert claimed.delivery == Delivery("d1", "issue_comment", body)
    assert (claimed.attempt, claimed.received_at, claimed.owner) == (1, START, "w")


def test_delivery_is_recognised_by_id_and_content(inbox: Inbox) -> None:
    assert store(inbox, delivery("d1", "a")) == ["stored"]
    assert store(inbox, delivery("d1", "a")) == ["duplicate"]
    assert store(inbox, delivery("d2", "a")) == ["duplicate"]
    assert store(inbox, delivery("d1", "b")) == ["conflict"]
    assert [claimed.delivery for claimed in inbox.claim("w")] == [delivery("d1", "a")]


def test_same_body_under_another_event_name_is_a_duplicate(inbox: Inbox) -> None:
    assert store(inbox, Delivery("d1", "issues", b"a"), Delivery("d2", "push", b"a")) == ["stored", "duplicate"]


def test_replay_cannot_take_the_id_of_another_delivery(inbox: Inbox) -> None:
    assert store(inbox, delivery("d1", "a"), delivery("d2", "a"), delivery("d2", "b")) == [
        "stored",
        "duplicate",
        "stored",
    ]


def test_handled_delivery_is_still_recognised(inbox: Inbox) -> None:
    store(inbox, delivery())
    inbox.finish(inbox.claim("w")[0], "skipped")
    assert store(inbox, delivery(), delivery("d2")) == ["duplicate", "duplicate"]
    assert inbox.claim("w") == []


def test_delivery_can_be_stored_after_a_failed_attempt(inbox: Inbox) -> None:
    """Deduplicated by what was committed, not by what was seen."""
    with inbox.engine.begin() as blocker:
        _lock_out(blocker)
        with pytest.raises(InboxError):
            _store_with_short_patience(inbox, [delivery()])
    assert store(inbox, delivery()) == ["stored"]


def _lock_out(db: sa.Connection) -> None:
    if db.dialect.name == "sqlite":
        db.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        db.exec_driver_sql("LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")


def _store_with_short_patience(inbox: Inbox, arrived: Sequence[Delivery]) -> None:
    """As a database that is locked for longer than anybody waits."""

    def patience(connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        cursor = connection.cursor()
        sqlite = isinstance(connection, sqlite3.Connection)
        cursor.execute("PRAGMA busy_timeout=1" if sqlite else "SET SESSION lock_timeout='1ms'")
        cursor.close()

    sa.event.listen(inbox.engine, "checkout", patience)
    try:
        inbox.store(arrived)
    finally:
        sa.event.remove(inbox.engine, "checkout", patience)
        inbox.engine.dispose()


def test_batch_is_stored_atomically(tmp_path: Path, clock: SettableClock) -> None:
    with database("sqlite", tmp_path) as engine:
        inbox = Inbox(engine, clock, most_undone=2)
        metadata.create_all(engine)
        with pytest.raises(InboxError):
            store(inbox, delivery("d1", "a"), delivery("d2", "b"), delivery("d3", "c"))
        assert inbox.claim("w") == []
        assert store(inbox, delivery("d1", "a"), delivery("d2", "b")) == ["stored", "stored"]
        with pytest.raises(InboxError, match="2 deliveries wait"):
            store(inbox, delivery("d3", "c"))
        inbox.finish(inbox.claim("w")[0], "done")
        assert store(inbox, delivery("d3", "c")) == ["stored"]


def test_deliveries_are_claimed_in_order_by_one_worker(inbox: Inbox) -> None:
    store(inbox, *(delivery(f"d{number}", str(number)) for number in range(5)))
    first, second = inbox.claim("a", limit=3), inbox.claim("b", limit=3)
    assert [claimed.delivery.id for claimed in first] == ["d0", "d1", "d2"]
    assert [claimed.delivery.id for claimed in second] == ["d3", "d4"]
    assert inbox.claim("c") == []


def test_concurrent_workers_claim_different_deliveries(inbox: Inbox) -> None:
    store(inbox, *(delivery(f"d{number}", str(number)) for number in range(40)))
    start = threading.Barrier(4)

    def work(owner: str) -> list[str]:
        start.wait()
        return [claimed.delivery.id for _ in range(4) for claimed in inbox.claim(owner, limit=5)]

    with ThreadPoolExecutor(4) as pool:
        found = [ident for ids in pool.map(work, "abcd") for ident in ids]
    assert sorted(found) == sorted(f"d{number}" for number in range(40))


def test_concurrent_receivers_store_a_delivery_once(inbox: Inbox) -> None:
    start = threading.Barrier(8)

    def receive(number: int) -> list[StoreOutcome]:
        start.wait()
        return [outcome for _ in range(5) for outcome in store(inbox, delivery(f"d{number}", "same"))]

    with ThreadPoolExecutor(8) as pool:
        outcomes = [outcome for found in pool.map(receive, range(8)) for outcome in found]
    assert sorted(set(outcomes)) == ["duplicate", "stored"]
    assert outcomes.count("stored") == 1


def test_deliveries_of_a_dead_worker_are_claimed_by_another(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    (held,) = inbox.claim("dies")
    clock.passes(LEASE - timedelta(seconds=1))
    assert inbox.claim("lives") == []
    clock.passes(timedelta(seconds=1))
    (taken,) = inbox.claim("lives")
    assert taken.attempt == 2
    assert not inbox.finish(held, "too late")
    assert not inbox.renew(held)
    assert not inbox.put_back(held, "too late", timedelta(0))
    assert inbox.finish(taken, "done")
    assert not inbox.finish(taken, "twice")


def test_earlier_claim_of_the_same_worker_is_fenced(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    (before,) = inbox.claim("w")
    clock.passes(LEASE)
    (after,) = inbox.claim("w")
    assert not inbox.finish(before, "stale")
    assert inbox.finish(after, "done")


def test_a_renewed_lease_holds_for_longer(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    (held,) = inbox.claim("w")
    clock.passes(LEASE - timedelta(seconds=1))
    assert inbox.renew(held)
    clock.passes(LEASE - timedelta(seconds=1))
    assert inbox.claim("other") == []


def test_returned_delivery_is_retried_later_and_finally_given_up(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    for attempt in range(1, MAX_ATTEMPTS + 1):
        (held,) = inbox.claim("w")
        assert held.attempt == attempt
        assert inbox.put_back(held, "the forge is away", timedelta(minutes=5))
        assert inbox.claim("w") == []
        clock.passes(timedelta(minutes=5))
    assert inbox.claim("w") == []
    health = inbox.health()
    assert (health.undone, health.dead) == (0, 1)


def test_delivery_that_always_kills_its_worker_is_given_up(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    for _ in range(MAX_DEATHS):
        assert len(inbox.claim("dies")) == 1
        clock.passes(LEASE)
    assert inbox.claim("dies") == []
    assert inbox.health().dead == 1


def test_redelivery_of_a_given_up_delivery_is_retried(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery())
    for _ in range(MAX_ATTEMPTS):
        inbox.put_back(inbox.claim("w")[0], "x", timedelta(0))
    assert inbox.health().dead == 1
    assert store(inbox, delivery()) == ["stored"]
    (again,) = inbox.claim("w")
    assert again.attempt == 1
    assert store(inbox, delivery()) == ["duplicate"]


def test_health_reports_the_oldest_open_delivery(inbox: Inbox, clock: SettableClock) -> None:
    assert inbox.health().oldest is None
    store(inbox, delivery("d1", "a"))
    clock.passes(timedelta(minutes=1))
    store(inbox, delivery("d2", "b"))
    assert (inbox.health().oldest, inbox.health().undone) == (START, 2)
    inbox.finish(inbox.claim("w", limit=1)[0], "done")
    assert inbox.health().oldest == START + timedelta(minutes=1)


def test_request_of_the_api_is_no_webhook(inbox: Inbox) -> None:
    store(inbox, Delivery("api-j1", PROGRAM_EVENT, b"{}"))
    assert not inbox.has_webhooks()
    store(inbox, delivery(body="[]"))
    assert inbox.has_webhooks()


def test_handled_deliveries_are_pruned_and_open_ones_kept(inbox: Inbox, clock: SettableClock) -> None:
    store(inbox, delivery("d1", "a"), delivery("d2", "b"))
    inbox.finish(inbox.claim("w", limit=1)[0], "done")
    clock.passes(KEEP_BODIES + timedelta(seconds=1))
    assert inbox.prune() == 0
    with inbox.engine.connect() as db:
        bodies = db.execute(sa.select(deliveries.c.id, deliveries.c.body).order_by(deliveries.c.seq)).all()
    assert [tuple(row) for row in bodies] == [("d1", None), ("d2", b"b")]
    assert store(inbox, delivery("d9", "a")) == ["duplicate"]
    clock.passes(KEEP_ROWS)
    assert inbox.prune() == 1
    assert [claimed.delivery.id for claimed in inbox.claim("w")] == ["d2"]


def test_unwritable_database_is_reported_without_contents(tmp_path: Path, clock: SettableClock) -> None:
    with database("sqlite", tmp_path) as engine:
        metadata.create_all(engine)
    read_only = sa.create_engine(f"sqlite:///file:{tmp_path}/agent-fix.db?mode=ro&uri=true")
    inbox = Inbox(read_only, clock)
    with pytest.raises(InboxError):
        inbox.health()
    with pytest.raises(InboxError) as error:
        store(inbox, delivery(body="secret text"))
    assert "secret" not in str(error.value)
    assert not error.value.final
    read_only.dispose()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12))
def test_any_order_of_deliveries_stores_each_content_once(
    tmp_path_factory: pytest.TempPathFactory, arriving: list[tuple[str, str]]
) -> None:
    with database("sqlite", tmp_path_factory.mktemp("inbox")) as engine:
        inbox = Inbox(engine, SettableClock())
        metadata.create_all(engine)
        known: dict[str, str] = {}
        for ident, body in arriving:
            taken = ident in known and known[ident] != body
            expected = "conflict" if taken else "duplicate" if body in known.values() else "stored"
            assert store(inbox, delivery(ident, body)) == [expected]
            if expected == "stored":
                known[ident] = body
        claimed = {one.delivery.id: one.delivery.body.decode() for one in inbox.claim("w", limit=20)}
        assert claimed == known


class Slow:
    """Stores nothing until it is let; remembers what came together."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.batches: list[int] = []

    def store(self, arrived: Sequence[Delivery]) -> list[StoreOutcome]:
        self.go.wait(10)
        self.batches.append(len(arrived))
        if any(one.body == b"bad" for one in arrived):
            raise InboxError("no")
        return ["duplicate" if one.body == b"old" else "stored" for one in arrived]


async def test_simultaneous_deliveries_are_committed_together() -> None:
    slow = Slow()
    gathering = BatchWriter(slow.store)
    first = asyncio.create_task(gathering.put(delivery("d", "old")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(gathering.put(delivery(f"d{number}", str(number)))) for number in range(100)]
    await asyncio.sleep(0)
    slow.go.set()
    assert await first == "duplicate"
    assert await asyncio.gather(*others) == ["stored"] * 100
    assert slow.batches == [1, MAX_TOGETHER, 100 - MAX_TOGETHER]


async def test_cancelled_sender_blocks_no_one_and_failures_reach_the_whole_batch() -> None:
    slow = Slow()
    gathering = BatchWriter(slow.store)
    gone = asyncio.create_task(gathering.put(delivery("d1", "a")))
    stays = asyncio.create_task(gathering.put(delivery("d2", "bad")))
    await asyncio.sleep(0)
    gone.cancel()
    slow.go.set()
    with pytest.raises(InboxError):
        await stays
    assert await gathering.put(delivery("d3", "c")) == "stored"


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@h/db", "hunter2", "sqlite://", "postgresql+psycopg2://u:hunter2@h/d"]
)
def test_unsupported_database_address_is_refused_without_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(AgentFixError) as error:
        open_database(url, tmp_path)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["postgres://u:p@h/db", "postgresql://u:p@h/db"])
def test_both_postgres_address_schemes_are_accepted(url: str, tmp_path: Path) -> None:
    assert open_database(url, tmp_path).url.drivername == "postgresql+psycopg"
    assert open_database(f"sqlite:///{tmp_path}/x.db", tmp_path).dialect.name == "sqlite"
