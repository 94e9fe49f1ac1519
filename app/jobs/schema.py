"""Creates and migrates a server's tables, in whichever process starts first.

The usual change is an addition: a table, a column with a default, an index. So an older program keeps working beside a
newer one while the roles are replaced one after the other. Renamed tables (`rename_tables`) need all roles to
be stopped first. Changes that neither can handle are refused with a message.
"""

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from app.core.errors import AgentFixError, ExitCode, OutputError
from app.jobs.tables import LOCAL_TABLES, jobs, metadata, writing
from app.llm.sql_ledger import calls, sum_up_costs
from app.llm.sql_ledger import metadata as ledger_tables

ALL: Final = (metadata, ledger_tables)
_ONE_AT_A_TIME = 0x61676673
"""An advisory lock on Postgres; SQLite has one writer anyway."""


def prepare_tables(engine: Engine) -> None:
    """Create missing tables. Raises OutputError if the database is unusable, AgentFixError for an unknown schema."""
    try:
        with writing(engine) as db:
            if db.dialect.name == "postgresql":
                db.execute(sa.select(sa.func.pg_advisory_xact_lock(_ONE_AT_A_TIME)))
            rename_tables(db)
            for tables in ALL:
                tables.create_all(db)
                for table in tables.sorted_tables:
                    _bring_up_to_date(db, table)
            sum_up_costs(db)
    except SQLAlchemyError as error:
        message = f"The database cannot be used: {_reason(engine, error)}."
        raise OutputError(
            message, hint="Check AGENT_FIX_DATABASE_URL and that the database server is running."
        ) from None


def prepare_local_tables(engine: Engine) -> None:
    """Create or migrate the tables of the command line. Raises OutputError if the file cannot be used."""
    try:
        with engine.connect() as db:
            is_former = _has_former_names(db)
        with writing(engine) as db:
            if is_former:
                rename_tables(db)
            metadata.create_all(db, LOCAL_TABLES)
            ledger_tables.create_all(db)
    except sa.exc.DatabaseError as error:
        reason = str(error.orig)
        raise OutputError(
            f"The database {engine.url.database} cannot be used: {reason}.",
            code=ExitCode.DISK_FULL if "full" in reason else ExitCode.OUTPUT,
            hint="Pass another directory with --state DIR, or move this one away.",
        ) from error
    for table in (jobs, calls):
        there = {column["name"] for column in sa.inspect(engine).get_columns(table.name)}
        if not {column.name for column in table.columns} <= there:
            with writing(engine) as db:
                _bring_up_to_date(db, table)


def _reason(engine: Engine, error: SQLAlchemyError) -> str:
    """The driver's message on one line, without the password."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    message = str(cause or "").partition("\n")[0].strip().rstrip(".")
    secret = engine.url.password
    return type(cause or error).__name__ if not message or (secret and str(secret) in message) else message[:300]


def _bring_up_to_date(db: Connection, table: sa.Table) -> None:
    found = sa.inspect(db)
    there = {column["name"]: column for column in found.get_columns(table.name)}
    unknown = [
        name
        for name, column in there.items()
        if name not in table.columns and not column["nullable"] and column["default"] is None
    ]
    if unknown:
        raise AgentFixError(
            f"The database was made by another version of agent-fix: {table.name}.{unknown[0]} is not known here.",
            code=ExitCode.USAGE,
            hint="Use the version that made it, or a newer one.",
        )
    for column in table.columns:
        if column.name not in there:
            db.exec_driver_sql(_addition(db, table, column))
            if column is jobs.c.verdict:
                found_in_result = jobs.c.result[("verification", "verdict")].as_string()
                db.execute(jobs.update().values(verdict=sa.func.coalesce(found_in_result, "")))
    indexes = {index["name"] for index in found.get_indexes(table.name)}
    for index in table.indexes:
        if index.name not in indexes:
            index.create(db, checkfirst=True)


def _addition(db: Connection, table: sa.Table, column: sa.Column[object]) -> str:
    """An `ALTER TABLE … ADD COLUMN …` statement; a NOT NULL column gets its default in the existing rows."""
    made = str(CreateColumn(column).compile(dialect=db.dialect))
    if not column.nullable:
        made += f" DEFAULT {_literal(db, column)}"
    return f"ALTER TABLE {db.dialect.identifier_preparer.format_table(table)} ADD COLUMN {made}"


def _literal(db: Connection, column: sa.Column[object]) -> str:
    default = column.default
    if not isinstance(default, sa.ColumnDefault) or not default.is_scalar:
        message = f"The table {column.table.name} cannot be given its column {column.name}."
        raise AgentFixError(message, hint="Start with an empty database.")
    value = sa.literal(default.arg, column.type)
    return str(value.compile(dialect=db.dialect, compile_kwargs={"literal_binds": True}))


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


def _has_former_names(db: Connection) -> bool:
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
