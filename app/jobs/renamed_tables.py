"""Gives the tables of a database that an earlier version made their current names; every row stays."""

from typing import Final

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


def has_former_names(db: Connection) -> bool:
    return not TABLES.keys().isdisjoint(sa.inspect(db).get_table_names())


def rename_tables(db: Connection) -> None:
    """Rename the tables and columns that had other names, within the caller's transaction.

    A table that has both names was begun by two versions at once: the former one keeps its rows and is not read.
    """
    there = set(sa.inspect(db).get_table_names())
    for former, name in TABLES.items():
        if former in there and name not in there:
            _drop_indexes(db, former)
            db.exec_driver_sql(f"ALTER TABLE {former} RENAME TO {name}")
            _rename_columns(db, name)


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
