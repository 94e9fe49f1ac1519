"""The tables of a server: made once by whoever comes first, and brought up to date without losing a row."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.errors import AgentFixError, OutputError
from app.jobs.schema import ALL, prepare_local_tables, prepare_tables
from app.jobs.tables import jobs, open_database
from tests.support.databases import DIALECTS, database


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with database(request.param, tmp_path) as made:
        yield made


def shape(engine: Engine) -> dict[str, set[str]]:
    found = sa.inspect(engine)
    return {name: {column["name"] for column in found.get_columns(name)} for name in found.get_table_names()}


WANTED = {table.name: set(table.columns.keys()) for tables in ALL for table in tables.sorted_tables}


def test_concurrent_processes_create_the_tables_once(engine: Engine) -> None:
    threads = [threading.Thread(target=prepare_tables, args=(engine,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shape(engine) == WANTED


def test_older_verdicts_are_read_from_their_results(engine: Engine) -> None:
    old = sa.MetaData()
    columns = [each._copy() for each in jobs.columns if each.name != "verdict"]
    without = sa.Table("jobs", old, *columns)
    old.create_all(engine)
    now = datetime(2026, 11, 22, tzinfo=UTC)
    row = {"key": "k", "state": "error", "job": {}, "created_at": now, "updated_at": now}
    results = {"judged": {"verification": {"verdict": "broken"}}, "not": {"verification": None}, "none": None}
    with engine.begin() as db:
        for name, result in results.items():
            db.execute(without.insert().values(id=name, result=result, **row))
    prepare_tables(engine)
    with engine.connect() as db:
        found = {row.id: row.verdict for row in db.execute(sa.select(jobs.c.id, jobs.c.verdict))}
    assert found == {"judged": "broken", "not": "", "none": ""}


def test_older_database_gets_new_columns_and_keeps_its_rows(engine: Engine) -> None:
    old = sa.MetaData()
    sa.Table("messages", old, sa.Column("seq", sa.Integer, primary_key=True))
    old_contexts = sa.Table(
        "job_contexts",
        old,
        sa.Column("job", sa.String(40), primary_key=True),
        *(sa.Column(name, sa.BigInteger) for name in ("repository", "number", "priority")),
        sa.Column("active_key", sa.String(80), unique=True),
        sa.Column("context", sa.JSON),
        sa.Column("created_at", sa.Double),
    )
    old.create_all(engine, tables=[old_contexts])
    with engine.begin() as db:
        db.execute(
            old_contexts.insert().values(job="j1", repository=1, number=2, priority=1, context={}, created_at=0.5)
        )
    prepare_tables(engine)
    assert shape(engine) == WANTED
    with engine.connect() as db:
        row = db.execute(sa.text("SELECT * FROM job_contexts")).mappings().one()
    kept = (row["job"], row["ready"], row["lease_until"], row["posted_state"], row["handed_over"])
    assert kept == ("j1", False, 0.0, "", False)
    indexes = {index["name"] for index in sa.inspect(engine).get_indexes("job_contexts")}
    assert {"ix_job_contexts_lease", "ix_job_contexts_place"} <= indexes


@pytest.mark.parametrize("prepare", [prepare_tables, prepare_local_tables])
def test_database_with_unreleased_names_is_refused(prepare: Callable[[Engine], None], engine: Engine) -> None:
    with engine.begin() as db:
        db.exec_driver_sql("CREATE TABLE commissions (job VARCHAR(40) PRIMARY KEY)")
    with pytest.raises(AgentFixError, match="made by an unreleased version of agent-fix") as error:
        prepare(engine)
    assert error.value.hint == "Start with an empty database."
    assert shape(engine).keys() == {"commissions"}


def test_required_unknown_column_is_an_error(engine: Engine) -> None:
    prepare_tables(engine)
    with engine.begin() as db:
        db.exec_driver_sql("ALTER TABLE triggers ADD COLUMN harmless TEXT")
        db.exec_driver_sql("ALTER TABLE triggers ADD COLUMN harmless_too INTEGER NOT NULL DEFAULT 0")
    prepare_tables(engine)
    with engine.begin() as db:
        db.exec_driver_sql("DROP TABLE receipts")
        db.exec_driver_sql("CREATE TABLE receipts (key VARCHAR(160) PRIMARY KEY, signature TEXT NOT NULL)")
    with pytest.raises(AgentFixError) as error:
        prepare_tables(engine)
    assert "receipts.signature" in error.value.message


def test_column_that_cannot_be_added_is_reported(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        with engine.begin() as db:
            db.exec_driver_sql("CREATE TABLE progress (seq INTEGER PRIMARY KEY)")
        with pytest.raises(AgentFixError) as error:
            prepare_tables(engine)
        assert "progress cannot be given its column job" in error.value.message


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1/x?connect_timeout=2", "onnection refused"),
        ("sqlite:////nowhere/x/y.db", "unable to open database file"),
    ],
)
def test_missing_database_is_reported_without_its_password(url: str, said: str, tmp_path: Path) -> None:
    engine = open_database(url, tmp_path)
    with pytest.raises(OutputError) as error:
        prepare_tables(engine)
    assert said in error.value.message
    assert "hunter2" not in error.value.message + error.value.hint
    assert error.value.__cause__ is None
    engine.dispose()
