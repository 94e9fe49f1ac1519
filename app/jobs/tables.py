"""Our own tables: jobs, their logs and their blobs. SQLite or Postgres, through SQLAlchemy Core."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

metadata = sa.MetaData()

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("key", sa.String(64), nullable=False, index=True),
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("job", sa.JSON, nullable=False),
    sa.Column("result", sa.JSON),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("reported", sa.Boolean, nullable=False, default=False),
    sa.Column("stop_requested", sa.Boolean, nullable=False, default=False),
    sa.Column("owner", sa.String(80)),
    sa.Column("epoch", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    sa.Index("ix_jobs_state", "state"),
    sa.Index("ix_jobs_updated_at", "updated_at"),
)

progress = sa.Table(
    "progress",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

commissions = sa.Table(
    "commissions",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("repository", sa.BigInteger, nullable=False, index=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("living", sa.String(80), unique=True),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("ready", sa.Boolean, nullable=False, default=False),
    sa.Column("commission", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("lease_until", sa.Double, nullable=False, default=0.0),
    sa.Column("due", sa.Double, nullable=False, default=0.0),
    sa.Column("crashes", sa.Integer, nullable=False, default=0),
    sa.Column("handed_over", sa.Boolean, nullable=False, default=False),
    sa.Column("told_at", sa.Double, nullable=False, default=0.0),
    sa.Column("told", sa.String(64), nullable=False, default=""),
    sa.Column("stop_reason", sa.Text, nullable=False, default=""),
    sa.Column("actor", sa.BigInteger, nullable=False, default=0),
    sa.Column("wants", sa.String(16), nullable=False, default=""),
)
"""A server's side of a job. `living` is its place while it is not final, so that one place has one living job.

`ready`: its base commit can be had. `due`: not to be begun before. `crashes`: processes that died on it since a step
was finished. `handed_over`: the work is done, and what is wished for is written down. `stop_reason`: why it is to be
stopped, for whoever ends it. `actor`: whose money it spends, 0 where the bot began by itself. `wants`: what a paused
job cannot go on without: `money`, or nothing that a command could give. Times in seconds since 1970.
"""

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(160), nullable=False, unique=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("who", sa.String(80), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What people say to a living job, in order; never changed, never deleted."""

triggers = sa.Table(
    "triggers",
    metadata,
    sa.Column("key", sa.String(160), primary_key=True),
    sa.Column("repository", sa.BigInteger, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.BigInteger, nullable=False),
    sa.Column("verb", sa.String(32), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("job", sa.String(40), nullable=False, default=""),
    sa.Index("ix_triggers_place", "repository", "number"),
    sa.Index("ix_triggers_actor", "repository", "actor", "at"),
)
"""Everything that was asked, each once however often it is delivered, with what was decided."""

looks = sa.Table(
    "looks",
    metadata,
    sa.Column("repository", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""Until when what happened in a repository is known without webhooks, in seconds since 1970; 0 is the App itself."""


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a write transaction from its start: on SQLite, a reader that starts to write may be refused."""
    with engine.begin() as db:
        if db.dialect.name == "sqlite":
            db.exec_driver_sql("BEGIN IMMEDIATE")
        yield db


def sqlite_engine(path: Path, *, synced: bool = True) -> Engine:
    """Create an engine on a SQLite file in WAL mode, so that readers (`jobs logs -f`) never block the writer.

    Committed data survives the process; with `synced` it also survives a power cut, at the cost of waiting for the
    disk.
    """
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})

    def configure(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]  # DBAPI connections are untyped
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        cursor.close()

    sa.event.listen(engine, "connect", configure)
    return engine
