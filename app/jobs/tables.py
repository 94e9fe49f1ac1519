"""Our own tables (jobs, their logs and their blobs) through SQLAlchemy Core, and the SQLite or Postgres they are in."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError, SQLAlchemyError

from app.core.errors import AgentFixError
from app.core.text import storable
from app.jobs.leases import LeasedQueue

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
    sa.Column("worker_deaths", sa.Integer, nullable=False, default=0),
    sa.Column("error_pause_seconds", sa.Double, nullable=False, default=0.0),
    sa.Column("handed_over", sa.Boolean, nullable=False, default=False),
    sa.Column("posted_at", sa.Double, nullable=False, default=0.0),
    sa.Column("posted_state", sa.String(64), nullable=False, default=""),
    sa.Column("stop_reason", sa.Text, nullable=False, default=""),
    sa.Column("actor", sa.BigInteger, nullable=False, default=0),
    sa.Column("waiting_for", sa.String(16), nullable=False, default=""),
    sa.Index("ix_job_contexts_place", "repository", "number", "job"),
)
"""A server's side of a job. `active_key` names its issue until it is final, so that an issue has one active job.

`ready`: its base commit was fetched. `due`: when it may start. `crashes`, `worker_deaths`: how often its process, or
its worker, died since its last finished step. `error_pause_seconds`: how long it was postponed after errors since then.
`handed_over`: the work is done and its effects are requested. `stop_reason`: why somebody asked to stop it.
`actor`: the id of the person whose daily budget it uses, 0 if the bot started it. `posted_state`, `posted_at`: the
state that the status comment shows, and since when. `waiting_for`: see `app.jobs.status`. Times in seconds since 1970.
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

lessons = sa.Table(
    "lessons",
    metadata,
    sa.Column("repository", sa.String(80), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("topic", sa.String(80), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("citation", sa.JSON),
    sa.Column("job", sa.String(40), nullable=False, default=""),
    sa.Column("author", sa.String(80), nullable=False),
    sa.Column("key", sa.String(160), nullable=False, default=""),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("forgotten", sa.Boolean, nullable=False, default=False),
    sa.Column("uses", sa.Integer, nullable=False, default=0),
    sa.Column("vector_of", sa.String(160), nullable=False, default=""),
    sa.Index("ix_lessons_topic", "repository", "topic", unique=True),
)
"""`repository` is the forge's number of it, or the digest of a path of this machine. `key` is of what was said last:
to remember, or to forget. A forgotten lesson keeps its topic and nothing else until it expires, so that it is not
learned again. `vector_of` is unused, and there for programs of 0.1. Times in seconds since 1970.
"""

lesson_numbers = sa.Table(
    "lesson_numbers",
    metadata,
    sa.Column("repository", sa.String(80), primary_key=True),
    sa.Column("last", sa.Integer, nullable=False),
)

recalled_lessons = sa.Table(
    "recalled_lessons",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("repository", sa.String(80), nullable=False),
    sa.Column("lessons", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What a job was shown, as it was then: its prompt is the same whichever process makes it."""


job_requests = sa.Table(
    "job_requests",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What programs asked for, by the id of the job that they were promised. Times in seconds since 1970."""

plan_versions = sa.Table(
    "plan_versions",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("who", sa.String(80), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""Every version of a job's plan, from 1; never changed, never deleted."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.String(80), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)
"""Keys for the API, of which only digests are stored."""

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("request", sa.String(64), nullable=False),
    sa.Column("id", sa.String(40), nullable=False),
    sa.Column("answer", sa.JSON),
    sa.Column("at", sa.Double, nullable=False, index=True),
)
"""Requests that may be repeated: `id` names what they create, `answer` is what they were answered."""


web_sessions = sa.Table(
    "web_sessions",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("user", sa.BigInteger, nullable=False),
    sa.Column("login", sa.String(100), nullable=False),
    sa.Column("token", sa.LargeBinary, nullable=False),
    sa.Column("rights", sa.JSON, nullable=False),
    sa.Column("rights_at", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
)
"""Sessions by the digest of their cookie. `token` is the person's GitHub token, encrypted with a key that is made from
the cookie, so that the database alone reveals nothing. `rights`: their permission by repository, as of `rights_at`.
Times in seconds since 1970."""

login_holders = sa.Table(
    "login_holders",
    metadata,
    sa.Column("login", sa.String(100), primary_key=True),
    sa.Column("user", sa.BigInteger, nullable=False),
)
"""The account that signed in first with a login, in lower case: a login that was given up can be taken by anybody."""

audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False, index=True),
    sa.Column("who", sa.String(100), nullable=False),
    sa.Column("way", sa.String(16), nullable=False),
    sa.Column("action", sa.String(32), nullable=False),
    sa.Column("address", sa.String(45), nullable=False, default=""),
    sa.Column("job", sa.String(40), nullable=False, default=""),
    sa.Column("detail", sa.Text, nullable=False, default=""),
)
"""Who did what, when, from where and to which job; never changed, deleted after 400 days. `way`: `dashboard`, `api`,
`github` or `terminal`; `address` is the client's for the first two."""

github_limits = sa.Table(
    "github_limits",
    metadata,
    sa.Column("installation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("resource", sa.String(40), primary_key=True),
    sa.Column("remaining", sa.BigInteger, nullable=False),
    sa.Column("limit", sa.BigInteger, nullable=False),
    sa.Column("resets_at", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What the publisher's last answers from GitHub said of each rate limit. Installation 0 is the App itself."""


# Effects that a worker requested, and receipts of what happened.

effects = sa.Table(
    "effects",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(160), nullable=False, unique=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("installation", sa.BigInteger, nullable=False, default=0),
    sa.Column("issue_ref", sa.JSON, nullable=False),
    sa.Column("effect", sa.JSON, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("due", sa.Double, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(80), nullable=False, default=""),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("error", sa.JSON),
    sa.Column("deaths", sa.Integer, nullable=False, default=0),
    sa.Index("ix_effects_state_due", "state", "due"),
)
EFFECTS: Final = LeasedQueue(effects, effects.c.key, effects.c.due, "reason", waiting="wanted", dead="failed")
_BRANCHES = ("open_draft_pr", "push_commits")
"""Effects that only the job's current owner may request."""

receipts = sa.Table(
    "receipts",
    metadata,
    sa.Column("key", sa.String(160), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("receipt", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)


transfers = sa.Table(
    "commit_transfers",
    metadata,
    sa.Column("repository", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("commit_id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("pack", sa.String(32), nullable=False, default=""),
    sa.Column("chunks", sa.Integer, nullable=False, default=0),
    sa.Column("digest", sa.String(64), nullable=False, default=""),
    sa.Column("failures", sa.Integer, nullable=False, default=0),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("requested_at", sa.Float(53), nullable=False),
    sa.Column("used_at", sa.Float(53), nullable=False),
    sa.Column("log", sa.LargeBinary),
)
"""`state` is wanted, there or refused; `pack` is the id of the valid chunks."""

transfer_chunks = sa.Table(
    "commit_transfer_chunks",
    metadata,
    sa.Column("pack", sa.String(32), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("written_at", sa.Float(53), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""The content is the last column, because SQLite reads a row from its beginning."""

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(64), nullable=False, unique=True),
    sa.Column("content", sa.String(64), nullable=False, unique=True),
    sa.Column("event", sa.String(64), nullable=False),
    sa.Column("body", sa.LargeBinary),
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("owner", sa.String(80)),
    sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("done_at", sa.DateTime(timezone=True)),
    sa.Column("outcome", sa.Text, nullable=False, default=""),
    sa.Column("deaths", sa.Integer, nullable=False, default=0),
    sa.Index("deliveries_due", "state", "due_at"),
)
DELIVERIES: Final = LeasedQueue(
    deliveries, deliveries.c.seq, deliveries.c.due_at, "outcome", waiting="waiting", dead="dead"
)

write_checks = sa.Table(
    "inbox_write_checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False),
)
"""One row, written to check that the database accepts writes."""

outcomes = sa.Table(
    "outcomes",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("installation", sa.BigInteger, nullable=False, default=0),
    sa.Column("repository_id", sa.BigInteger, nullable=False, default=0),
    sa.Column("repository", sa.String(200), nullable=False, default=""),
    sa.Column("kind", sa.String(20), nullable=False, default=""),
    sa.Column("model", sa.String(200), nullable=False, default=""),
    sa.Column("verdict", sa.String(16), nullable=False, default=""),
    sa.Column("state", sa.String(32), nullable=False, default=""),
    sa.Column("created_at", sa.Double, nullable=False, default=0.0),
    sa.Column("ended_at", sa.Double, nullable=False, default=0.0),
    sa.Column("reaction_seconds", sa.Double),
    sa.Column("pull_request_seconds", sa.Double),
    sa.Column("tokens", sa.BigInteger, nullable=False, default=0),
    sa.Column("cost", sa.BigInteger, nullable=False, default=0),
    sa.Column("pull", sa.BigInteger, nullable=False, default=0),
    sa.Column("pull_state", sa.String(8), nullable=False, default=""),
    sa.Column("changed", sa.Boolean),
    sa.Column("commit_id", sa.String(64), nullable=False, default=""),
    sa.Column("looked_at", sa.Double, nullable=False, default=0.0),
    sa.Index("ix_outcomes_pull", "repository_id", "pull"),
    sa.Index("ix_outcomes_created_at", "created_at"),
)
"""`pull`: the pull request that the job opened or followed up, 0 for none. `changed`: whether its last commit was
another than ours when it was merged; null until then. `commit_id`: the commit that the job pushed. Seconds count from
the request by GitHub's clock. Times in seconds since 1970."""

LOCAL_TABLES: Final = (
    jobs,
    progress,
    blobs,
    job_contexts,
    messages,
    triggers,
    poll_cursors,
    login_holders,
    lessons,
    lesson_numbers,
    recalled_lessons,
)
"""The tables in the database of the command line."""


def verdict_of(result: Mapping[str, Any] | None) -> str:
    """The verdict in a stored result; empty if there is none."""
    verification = (result or {}).get("verification")
    return str(verification.get("verdict", "")) if isinstance(verification, Mapping) else ""


class TableStore:
    """Short transactions over some of the tables."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock


def insert_into(db: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """The dialect's own INSERT, which supports conflict handling."""
    return sqlite.insert(table) if db.dialect.name == "sqlite" else postgresql.insert(table)


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a write transaction from its start: on SQLite, a reader that starts to write may be refused."""
    with engine.begin() as db:
        if db.dialect.name == "sqlite":
            db.exec_driver_sql("BEGIN IMMEDIATE")
        yield db


def _engine(url: sa.URL, **options: Any) -> Engine:
    """An engine that stores any text, without the characters that a database refuses (`storable`)."""
    engine = sa.create_engine(url, json_serializer=_json_text, **options)

    def cleaned(_db: object, _cursor: object, statement: str, values: Any, *_: object) -> tuple[str, Any]:
        return statement, _storable_value(values)

    sa.event.listen(engine, "before_cursor_execute", cleaned, retval=True)
    return engine


def _json_text(value: object) -> str:
    """JSON; Postgres stores escaped characters that it cannot store as text, but fails when it reads the document."""
    return json.dumps(_storable_value(value))


def _storable_value(value: Any) -> Any:
    """The value with all text in it as a database takes it."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {_storable_value(key): _storable_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        inner = map(_storable_value, value)
        return tuple(inner) if isinstance(value, tuple) else list(inner)
    return value


def sqlite_engine(path: Path, *, synced: bool = True) -> Engine:
    """Create an engine on a SQLite file in WAL mode, so that readers (`jobs logs -f`) never block the writer.

    Committed data survives the process; with `synced` it also survives a power cut, at the cost of waiting for the
    disk.
    """
    engine = _engine(sa.make_url(f"sqlite:///{path}"), connect_args={"timeout": 30})

    def configure(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]  # DBAPI connections are untyped
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        cursor.close()

    sa.event.listen(engine, "connect", configure)
    return engine


def adopt_effects(db: Connection, job: str, epoch: int, *, branches: bool) -> int:
    """Move a job's open effects to its new owner; returns how many there are.

    Without `branches`, only effects about the job's status, which stay valid under the next owner.
    """
    mine = effects.update().where(effects.c.job == job, EFFECTS.open)
    for kind in () if branches else _BRANCHES:
        mine = mine.where(effects.c.key.not_like(f"{job}/{kind}/%"))
    return db.execute(mine.values(epoch=epoch)).rowcount


def request_branch_again(db: Connection, job: str, now: datetime) -> bool:
    """Make a job's failed branch due again; False if it has none."""
    ofbranch = sa.or_(*(effects.c.key.startswith(f"{job}/{kind}/", autoescape=True) for kind in _BRANCHES))
    failed = effects.update().where(effects.c.job == job, effects.c.state == "failed", ofbranch)
    values = {"state": "wanted", "due": now.timestamp(), "attempts": 0, "owner": "", "reason": "", "error": None}
    return db.execute(failed.values(values)).rowcount > 0


DatabaseError = SQLAlchemyError
"""What is raised if a database does not answer; its text may show the password."""


def is_unreachable(error: Exception) -> bool:
    """True if the database server could not be reached, closed the connection or is about to. SQLite has no server."""
    if not isinstance(error, OperationalError):
        return False
    code = getattr(error.orig, "sqlstate", "")  # psycopg's is None if no server answered
    return error.connection_invalidated or code is None or code.startswith(("08", "57P"))


def may_pass(error: SQLAlchemyError) -> bool:
    """True if the same write may succeed later: the database is away, full, busy or read-only. False for wrong data."""
    if isinstance(error, InternalError):
        return getattr(error.orig, "sqlstate", "") == "25006"  # read-only, as a standby is
    return isinstance(error, OperationalError | sa.exc.TimeoutError)  # the second: all connections are in use


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
        return _engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    raise _wrong()


def _wrong() -> AgentFixError:
    return AgentFixError(
        "AGENT_FIX_DATABASE_URL is not a database URL that agent-fix supports.",
        hint="Use postgresql://user:password@host/name, or sqlite:////path/to/file.db, or leave it empty.",
    )
