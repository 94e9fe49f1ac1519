"""Our own tables: jobs, their logs and their blobs. SQLite or Postgres, through SQLAlchemy Core."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    sa.Column("verdict", sa.String(16), nullable=False, default=""),
    sa.Index("ix_jobs_counts", "state", "verdict", "created_at", "id"),  # counts without reading the jobs
    sa.Index("ix_jobs_updated_at", "updated_at"),
    sa.Index("ix_jobs_verdict", "created_at", "verdict", "id"),  # those of the last days
)
"""`verdict`: the result's, so that lists need not read the whole result."""


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

job_contexts = sa.Table(
    "job_contexts",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("repository", sa.BigInteger, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("active_key", sa.String(80), unique=True),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("ready", sa.Boolean, nullable=False, default=False),
    sa.Column("context", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("lease_until", sa.Double, nullable=False, default=0.0),
    sa.Column("due", sa.Double, nullable=False, default=0.0),
    sa.Column("crashes", sa.Integer, nullable=False, default=0),
    sa.Column("handed_over", sa.Boolean, nullable=False, default=False),
    sa.Column("posted_at", sa.Double, nullable=False, default=0.0),
    sa.Column("posted_state", sa.String(64), nullable=False, default=""),
    sa.Column("stop_reason", sa.Text, nullable=False, default=""),
    sa.Column("actor", sa.BigInteger, nullable=False, default=0),
    sa.Column("waiting_for", sa.String(16), nullable=False, default=""),
    sa.Index("ix_job_contexts_place", "repository", "number", "job"),
)
"""A server's side of a job. `active_key` names its issue until it is final, so that an issue has one active job.

`ready`: its base commit was fetched. `due`: when it may start. `crashes`: processes that died on it since its last
finished step. `handed_over`: the work is done and its effects are requested. `stop_reason`: why somebody asked to stop
it. `actor`: the id of the person whose daily budget it uses, 0 if the bot started it. `posted_state`, `posted_at`: the
state that the status comment shows, and since when. `waiting_for`: `money` if a paused job needs a higher budget,
`pull_requests` if a queued one waits until fewer pull requests are open; of a published one, `rest` until a worker has
run the rest of its suite, then `rest_ended` until that is published; else empty. Times in seconds since 1970.
"""

# Jobs in progress are few among all that ever were.
_OWNED, _STOPPING = jobs.c.owner.is_not(None), jobs.c.stop_requested.is_(True)
_LEASED = job_contexts.c.lease_until > 0.0
sa.Index("ix_jobs_owner", jobs.c.owner, postgresql_where=_OWNED, sqlite_where=_OWNED)
sa.Index("ix_jobs_stopping", jobs.c.id, postgresql_where=_STOPPING, sqlite_where=_STOPPING)
sa.Index("ix_job_contexts_lease", job_contexts.c.lease_until, postgresql_where=_LEASED, sqlite_where=_LEASED)
sa.Index("ix_job_contexts_waiting_for", job_contexts.c.waiting_for)

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
"""What people write to an active job, in order; never changed, never deleted."""

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
"""Every request, stored once however often it is delivered, with the decision on it."""

poll_cursors = sa.Table(
    "poll_cursors",
    metadata,
    sa.Column("repository", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""Until when a repository was polled for events, in seconds since 1970. Repository 0 is the App's own deliveries."""


def verdict_of(result: Mapping[str, Any] | None) -> str:
    """The verdict in a stored result; empty if there is none."""
    verification = (result or {}).get("verification")
    return str(verification.get("verdict", "")) if isinstance(verification, Mapping) else ""


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
