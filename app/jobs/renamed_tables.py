"""Gives the tables, columns and stored fields of an earlier version's database their current names; every row stays."""

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

TABLES: Final = {
    "commissions": "job_contexts",
    "intents": "effects",
    "looks": "poll_cursors",
    "parcels": "commit_transfers",
    "parcel_chunks": "commit_transfer_chunks",
    "inbox_pulse": "inbox_write_checks",
}
COLUMNS: Final = {
    "job_contexts": {
        "living": "active_key",
        "commission": "context",
        "told": "posted_state",
        "told_at": "posted_at",
        "wants": "waiting_for",
    },
    "effects": {"intent": "effect", "place": "issue_ref"},
    "commit_transfers": {"filling": "pack", "asked_at": "requested_at"},
    "commit_transfer_chunks": {"filling": "pack"},
}

CONTEXT_FIELDS: Final = {"place": "issue_ref", "goal": "publish_target"}


def has_former_names(db: Connection) -> bool:
    there = set(sa.inspect(db).get_table_names())
    return not TABLES.keys().isdisjoint(there) or ("lessons" in there and _has_former_lessons(db))


def rename_tables(db: Connection) -> None:
    """Rename the tables, columns and fields that had other names, within the caller's transaction.

    A table that has both names was begun by two versions at once: the former one keeps its rows and is not read.
    """
    there = set(sa.inspect(db).get_table_names())
    for former, name in TABLES.items():
        if former in there and name not in there:
            _drop_indexes(db, former)
            db.exec_driver_sql(f"ALTER TABLE {former} RENAME TO {name}")
            _rename_columns(db, name)
    there = set(sa.inspect(db).get_table_names())
    if "job_contexts" in there:
        _rename_context_fields(db)
    if "lessons" in there and _has_former_lessons(db):
        _rename_lesson_kinds(db)


def _rename_context_fields(db: Connection) -> None:
    rows = sa.table("job_contexts", sa.column("job"), sa.column("context", sa.JSON))
    former = sa.cast(rows.c.context, sa.Text).like('%"goal"%')
    for job, context in db.execute(sa.select(rows.c.job, rows.c.context).where(former)).all():
        renamed = {CONTEXT_FIELDS.get(name, name): value for name, value in context.items()}
        if renamed.get("aim") == "mend":
            renamed["aim"] = "fix_checks"
        db.execute(sa.update(rows).where(rows.c.job == job).values(context=renamed))


def _has_former_lessons(db: Connection) -> bool:
    kinds = sa.table("lessons", sa.column("kind"))
    return db.execute(sa.select(kinds.c.kind).where(kinds.c.kind == "told").limit(1)).first() is not None


def _rename_lesson_kinds(db: Connection) -> None:
    """In the lessons, and in the copies of them that jobs were shown."""
    kinds = sa.table("lessons", sa.column("kind"))
    db.execute(sa.update(kinds).where(kinds.c.kind == "told").values(kind="remembered"))
    rows = sa.table("recalled_lessons", sa.column("job"), sa.column("lessons", sa.JSON))
    former = sa.cast(rows.c.lessons, sa.Text).like('%"told"%')
    for job, lessons in db.execute(sa.select(rows.c.job, rows.c.lessons).where(former)).all():
        renamed: list[dict[str, Any]] = [
            {**lesson, "kind": "remembered"} if lesson["kind"] == "told" else lesson for lesson in lessons
        ]
        db.execute(sa.update(rows).where(rows.c.job == job).values(lessons=renamed))


def _drop_indexes(db: Connection, table: str) -> None:
    """An index is named after its table. Whoever creates missing tables creates it again under its current name."""
    for index in sa.inspect(db).get_indexes(table):
        if not index.get("duplicates_constraint"):
            db.exec_driver_sql(f"DROP INDEX {index['name']}")


def _rename_columns(db: Connection, table: str) -> None:
    there = {column["name"] for column in sa.inspect(db).get_columns(table)}
    for former, name in COLUMNS.get(table, {}).items():
        if former in there:
            db.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN {former} TO {name}")
