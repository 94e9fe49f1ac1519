"""A server's database that an earlier version left in the middle of its work is opened and gone on with."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.jobs.context import ThreadRef
from app.jobs.inbox import Inbox
from app.jobs.queue import LEASE, JobClaim
from app.jobs.schema import prepare_tables
from app.jobs.tables import sqlite_engine
from app.llm.sql_ledger import SqlLedger, calls, job_costs
from app.publish.effects import Receipt
from app.publish.outbox import Outbox
from app.publish.status_text import status_key
from tests.support.job_queue import MANY, Server

DUMP = Path(__file__).with_name("older") / "server.sql"


@pytest.fixture
def server(tmp_path: Path) -> Server:
    path = tmp_path / "agent-fix.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(DUMP.read_text("utf-8"))
    engine = sqlite_engine(path)
    prepare_tables(engine)
    return Server(engine)


def test_older_running_job_is_resumed_and_older_queued_job_started(server: Server) -> None:
    assert [each.job.id for each in server.job_queries.active_jobs(repository=2)] == ["asked", "working"]
    assert server.claim() == "asked"
    server.clock.passes(LEASE + timedelta(seconds=1))
    again = {claim for claim in (server.queue.claim("w2", MANY), server.queue.claim("w2", MANY)) if claim}
    assert again == {JobClaim("asked", 2, "w2", resumed=True), JobClaim("working", 2, "w2", resumed=True)}


def test_older_contexts_messages_and_effects_are_read(server: Server) -> None:
    working = server.job_queries.active(2, 3)
    assert working is not None
    assert (working.job_context.login, working.job.task.issue.title) == ("ada", "Totals are wrong")
    assert [each.text for each in server.messages.since("working", 0)] == ["mind the tests"]
    outbox = Outbox(server.engine, server.clock)
    found = [(each.key, each.effect.kind, each.state) for each in outbox.of("working")]
    assert found == [
        ("working/status_comment", "status_comment", "wanted"),
        ("working/draft_status", "draft_status", "done"),
        ("working/labels_and_review/c1f9a2d4e5b6", "labels_and_review", "wanted"),
    ]
    draft = outbox.status(status_key("working"))
    assert draft is not None
    assert draft.receipt == Receipt(url="https://forge.example/pull/9")
    claim = outbox.claim("p1")
    assert claim is not None
    assert claim.key == "working/status_comment"
    assert [each.delivery.id for each in Inbox(server.engine, server.clock).claim("w1")] == ["d-1"]
    server.job_queries.join_threads("working", [ThreadRef(comment=9)])
    joined = server.job_queries.active(2, 3)
    assert joined is not None
    assert [each.comment for each in joined.job_context.threads] == [9]


def test_older_paid_answers_are_reused_and_lost_calls_booked(server: Server) -> None:
    ledger = SqlLedger(server.engine, "working", 5_000_000)
    assert ledger.stored_answer("plan.answer") == '{"kept":"answer"}'
    assert ledger.spent() == 7_300
    ledger.reserve("turn.1.answer", 90_000)
    assert ledger.spent() == 7_300 + 4_000


def test_costs_of_older_calls_and_of_an_older_program_are_summed_up(server: Server) -> None:
    costs = sa.select(job_costs.c.cost).where(job_costs.c.job_id == "working")
    with server.engine.begin() as db:
        assert db.scalar(costs) == 7_300
        db.execute(calls.update().where(calls.c.state == "booked").values(cost=8_000))  # as an older worker books
    prepare_tables(server.engine)
    with server.engine.connect() as db:
        assert db.scalar(costs) == 8_000


def test_migration_is_idempotent(server: Server) -> None:
    with server.engine.connect() as db:
        before = list(db.connection.driver_connection.iterdump())  # type: ignore[union-attr]
    prepare_tables(server.engine)
    with server.engine.connect() as db:
        assert list(db.connection.driver_connection.iterdump()) == before  # type: ignore[union-attr]
