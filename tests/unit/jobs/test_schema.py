"""The tables of a server: made once by whoever comes first, and brought up to date without losing a row."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.errors import AgentFixError, OutputError
from app.jobs.schema import ALL, prepare_local_tables, prepare_tables
from app.jobs.tables import job_contexts, jobs, lessons, open_database, recalled_lessons
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
        "commissions",
        old,
        sa.Column("job", sa.String(40), primary_key=True),
        *(sa.Column(name, sa.BigInteger) for name in ("repository", "number", "priority")),
        sa.Column("living", sa.String(80), unique=True),
        sa.Column("commission", sa.JSON),
        sa.Column("created_at", sa.Double),
    )
    old.create_all(engine, tables=[old_contexts])
    with engine.begin() as db:
        db.execute(
            old_contexts.insert().values(job="j1", repository=1, number=2, priority=1, commission={}, created_at=0.5)
        )
    prepare_tables(engine)
    assert shape(engine) == WANTED
    with engine.connect() as db:
        row = db.execute(sa.text("SELECT * FROM job_contexts")).mappings().one()
    kept = (row["job"], row["ready"], row["lease_until"], row["posted_state"], row["handed_over"])
    assert kept == ("j1", False, 0.0, "", False)
    indexes = {index["name"] for index in sa.inspect(engine).get_indexes("job_contexts")}
    assert {"ix_job_contexts_lease", "ix_job_contexts_place"} <= indexes


FORMER = """
CREATE TABLE commissions (job VARCHAR(40) PRIMARY KEY, repository BIGINT NOT NULL, number BIGINT NOT NULL,
    living VARCHAR(80) UNIQUE, priority INTEGER NOT NULL, ready BOOLEAN NOT NULL, commission JSON NOT NULL,
    created_at FLOAT NOT NULL, told_at FLOAT NOT NULL, told VARCHAR(64) NOT NULL, wants VARCHAR(16) NOT NULL);
CREATE INDEX ix_commissions_repository ON commissions (repository);
INSERT INTO commissions VALUES ('j1', 2, 3, '2#3', 1, true,
    '{"aim": "mend", "place": {"number": 3}, "goal": "same_branch"}', 1.5, 2.5, 'paused', 'money');
CREATE TABLE intents (seq INTEGER PRIMARY KEY, key VARCHAR(160) NOT NULL UNIQUE, job VARCHAR(40) NOT NULL,
    epoch INTEGER NOT NULL, installation BIGINT NOT NULL, place JSON NOT NULL, intent JSON NOT NULL,
    digest VARCHAR(64) NOT NULL, revision INTEGER NOT NULL, state VARCHAR(16) NOT NULL, due FLOAT NOT NULL,
    attempts INTEGER NOT NULL, owner VARCHAR(80) NOT NULL, reason TEXT NOT NULL, error JSON);
CREATE INDEX ix_intents_job ON intents (job);
CREATE INDEX ix_intents_state_due ON intents (state, due);
INSERT INTO intents VALUES (1, 'j1/reaction', 'j1', 1, 1, '{"number": 3}', '{"kind": "reaction"}', '', 1, 'wanted', 0,
    0, '', '', NULL);
CREATE TABLE looks (repository BIGINT PRIMARY KEY, at FLOAT NOT NULL);
INSERT INTO looks VALUES (2, 7.5);
CREATE TABLE parcels (repository BIGINT, commit_id VARCHAR(40), state VARCHAR(8) NOT NULL, filling VARCHAR(32) NOT NULL,
    chunks INTEGER NOT NULL, asked_at FLOAT NOT NULL, used_at FLOAT NOT NULL, PRIMARY KEY (repository, commit_id));
INSERT INTO parcels VALUES (2, 'c0ffee', 'there', 'f1', 1, 3.5, 4.5);
CREATE TABLE parcel_chunks (filling VARCHAR(32), number INTEGER, written_at FLOAT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (filling, number));
INSERT INTO parcel_chunks VALUES ('f1', 0, 5.5, 'x');
"""


def test_renamed_tables_and_columns_keep_their_rows(engine: Engine) -> None:
    with engine.begin() as db:
        for statement in filter(str.strip, FORMER.split(";")):
            db.exec_driver_sql(statement)
    prepare_tables(engine)
    assert shape(engine) == WANTED
    context = {"aim": "fix_checks", "issue_ref": {"number": 3}, "publish_target": "same_branch"}
    kept: dict[str, dict[str, object]] = {
        "job_contexts": {"active_key": "2#3", "context": context, "posted_state": "paused", "posted_at": 2.5},
        "effects": {"key": "j1/reaction", "effect": {"kind": "reaction"}, "issue_ref": {"number": 3}},
        "poll_cursors": {"repository": 2, "at": 7.5},
        "commit_transfers": {"pack": "f1", "requested_at": 3.5},
        "commit_transfer_chunks": {"pack": "f1", "written_at": 5.5},
    }
    with engine.connect() as db:
        assert db.execute(sa.select(job_contexts.c.waiting_for)).scalar_one() == "money"
        for tables in ALL:
            for table in tables.sorted_tables:
                if table.name in kept:
                    columns = [table.c[name] for name in kept[table.name]]
                    assert dict(db.execute(sa.select(*columns)).mappings().one()) == kept[table.name]
    indexes = {index["name"] for index in sa.inspect(engine).get_indexes("effects")}
    assert {"ix_effects_job", "ix_effects_state_due"} <= indexes
    assert not any(str(name).startswith("ix_intents") for name in indexes)


def test_renamed_tables_still_allow_one_active_job_for_an_issue(engine: Engine) -> None:
    with engine.begin() as db:
        for statement in filter(str.strip, FORMER.split(";")):
            db.exec_driver_sql(statement)
    prepare_tables(engine)
    again = {"repository": 2, "number": 3, "priority": 1, "context": {}, "created_at": 0.0}
    with engine.connect() as db, pytest.raises(sa.exc.IntegrityError):
        db.execute(job_contexts.insert().values(job="j2", active_key="2#3", **again))


def test_lessons_of_kind_told_become_remembered_lessons(engine: Engine) -> None:
    prepare_tables(engine)
    row = {
        "repository": "2",
        "topic": "t",
        "text": "Use decimals.",
        "author": "ada",
        "created_at": 0.0,
        "expires_at": 1.0,
    }
    with engine.begin() as db:
        db.execute(lessons.insert().values(number=1, kind="told", **row))
        shown = [{"number": 1, "kind": "told"}, {"number": 2, "kind": "trap"}]
        db.execute(recalled_lessons.insert().values(job="j1", repository="2", lessons=shown, at=0.0))
    prepare_tables(engine)
    with engine.connect() as db:
        assert db.execute(sa.select(lessons.c.kind)).scalar_one() == "remembered"
        renamed = db.execute(sa.select(recalled_lessons.c.lessons)).scalar_one()
    assert renamed == [{"number": 1, "kind": "remembered"}, {"number": 2, "kind": "trap"}]


def test_command_line_renames_older_tables_too(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        with engine.begin() as db:
            for statement in filter(str.strip, FORMER.split(";")):
                db.exec_driver_sql(statement)
        prepare_local_tables(engine)
        with engine.connect() as db:
            assert db.execute(sa.select(job_contexts.c.job)).scalar_one() == "j1"


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
