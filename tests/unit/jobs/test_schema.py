"""The tables of a server: made once by whoever comes first, and brought up to date without losing a row."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.errors import AgentFixError, OutputError
from app.jobs.database import open_database
from app.jobs.schema import ALL, prepare_tables
from tests.support.databases import DIALECTS, database


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with database(request.param, tmp_path) as made:
        yield made


def shape(engine: Engine) -> dict[str, set[str]]:
    found = sa.inspect(engine)
    return {name: {column["name"] for column in found.get_columns(name)} for name in found.get_table_names()}


WANTED = {table.name: set(table.columns.keys()) for tables in ALL for table in tables.sorted_tables}


def test_everything_is_made_once_however_many_begin_together(engine: Engine) -> None:
    threads = [threading.Thread(target=prepare_tables, args=(engine,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shape(engine) == WANTED


def test_a_database_of_an_older_version_gets_what_is_new_and_keeps_its_rows(engine: Engine) -> None:
    old = sa.MetaData()
    sa.Table("messages", old, sa.Column("seq", sa.Integer, primary_key=True))
    commissions = sa.Table(
        "commissions",
        old,
        sa.Column("job", sa.String(40), primary_key=True),
        *(sa.Column(name, sa.BigInteger) for name in ("repository", "number", "priority")),
        sa.Column("living", sa.String(80)),
        sa.Column("commission", sa.JSON),
        sa.Column("created_at", sa.Double),
    )
    old.create_all(engine, tables=[commissions])
    with engine.begin() as db:
        db.execute(
            commissions.insert().values(job="j1", repository=1, number=2, priority=1, commission={}, created_at=0.5)
        )
    prepare_tables(engine)
    assert shape(engine) == WANTED
    with engine.connect() as db:
        row = db.execute(sa.text("SELECT * FROM commissions")).mappings().one()
    kept = (row["job"], row["ready"], row["lease_until"], row["told"], row["handed_over"])
    assert kept == ("j1", False, 0.0, "", False)
    indexes = {index["name"] for index in sa.inspect(engine).get_indexes("commissions")}
    assert "ix_commissions_repository" in indexes


def test_a_column_that_a_newer_version_needs_is_not_ignored(engine: Engine) -> None:
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


def test_what_cannot_be_added_is_said(tmp_path: Path) -> None:
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
def test_a_database_that_is_not_there_is_a_sentence_without_its_password(url: str, said: str, tmp_path: Path) -> None:
    engine = open_database(url, tmp_path)
    with pytest.raises(OutputError) as error:
        prepare_tables(engine)
    assert said in error.value.message
    assert "hunter2" not in error.value.message + error.value.hint
    assert error.value.__cause__ is None
    engine.dispose()
