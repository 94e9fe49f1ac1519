"""Opens a server's database: SQLite in its state directory, or the configured Postgres."""

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from app.core.errors import AgentFixError
from app.jobs.tables import sqlite_engine

DatabaseError = SQLAlchemyError
"""What is raised where a database does not answer; its text may show the password."""


def open_database(url: str, state: Path) -> Engine:
    """Create an engine for `AGENT_FIX_DATABASE_URL`, or for a file in `state` if that is empty.

    Does not connect yet.
    """
    if not url:
        return sqlite_engine(state / "agent-fix.db")
    try:
        parsed = sa.make_url(url)
    except ArgumentError:  # the error's text would show the password
        raise _wrong() from None
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return sqlite_engine(Path(parsed.database))
    if parsed.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return sa.create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    raise _wrong()


def _wrong() -> AgentFixError:
    return AgentFixError(
        "AGENT_FIX_DATABASE_URL is not a database URL that agent-fix supports.",
        hint="Use postgresql://user:password@host/name, or sqlite:////path/to/file.db, or leave it empty.",
    )
