"""Creates and migrates a server's tables, in whichever process starts first.

The usual change is an addition: a table, a column with a default, an index. So an older program keeps working beside a
newer one while the roles are replaced one after the other. Changes that it cannot handle are refused with a message.
"""

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from app.core.errors import AgentFixError, ExitCode, OutputError
from app.jobs.tables import LOCAL_TABLES, effects, jobs, metadata, receipts, writing
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
            _refuse_former_names(db)
            for tables in ALL:
                tables.create_all(db)
                for table in tables.sorted_tables:
                    _bring_up_to_date(db, table)
            _rename_kinds(db)
            sum_up_costs(db)
    except SQLAlchemyError as error:
        message = f"The database cannot be used: {_reason(engine, error)}."
        raise OutputError(
            message, hint="Check AGENT_FIX_DATABASE_URL and that the database server is running."
        ) from None


def prepare_local_tables(engine: Engine) -> None:
    """Create or migrate the tables of the command line. Raises OutputError if the file cannot be used."""
    try:
        with writing(engine) as db:
            _refuse_former_names(db)
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


def _rename_kinds(db: Connection) -> None:
    """Give effects of an unreleased version the names of today; their receipts follow by their keys."""
    for former, kind in (("tell_draft", "draft_status"), ("dress_pr", "labels_and_review")):
        found = effects.select().where(effects.c.effect["kind"].as_string() == former)
        for row in db.execute(found).mappings().all():
            key = row["key"].replace(f"/{former}", f"/{kind}")
            db.execute(receipts.update().where(receipts.c.key == row["key"]).values(key=key))
            values = {"key": key, "effect": row["effect"] | {"kind": kind}}
            db.execute(effects.update().where(effects.c.seq == row["seq"]).values(values))


def _refuse_former_names(db: Connection) -> None:
    """Raises AgentFixError for a database from before the tables got their names; no release made one."""
    there = set(sa.inspect(db).get_table_names())
    if "commissions" in there and "job_contexts" not in there:
        raise AgentFixError(
            "The database was made by an unreleased version of agent-fix, and its tables have other names.",
            code=ExitCode.USAGE,
            hint="Start with an empty database.",
        )
