"""Our own tables: jobs, what they say, and the bytes they keep. SQLite or Postgres, through SQLAlchemy Core."""

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

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


def sqlite_engine(path: Path, *, synced: bool = True) -> Engine:
    """An engine on a SQLite file in WAL mode: readers (`jobs logs -f`) never block the writer.

    What is committed survives its process; with `synced` a power cut too, at the price of waiting for the disk.
    """
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})

    def configure(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]  # DBAPI connections are untyped
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        cursor.close()

    sa.event.listen(engine, "connect", configure)
    return engine
