"""When each repository was last polled for events that no webhook delivered."""

from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine

from app.jobs.tables import poll_cursors, writing

OWN_DELIVERIES = 0
"""In a repository's place: the App's own webhooks."""


class PollCursors:
    """The poll cursors table, in short transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def last_poll(self, repositories: Collection[int]) -> dict[int, datetime]:
        """The time up to which each repository was polled; repositories that were never polled are left out."""
        query = poll_cursors.select().where(poll_cursors.c.repository.in_(list(repositories)))
        with self._engine.connect() as db:
            return {row.repository: datetime.fromtimestamp(row.at, UTC) for row in db.execute(query)}

    def mark_polled(self, repository: int, until: datetime) -> None:
        with writing(self._engine) as db:
            insert = sqlite.insert if db.dialect.name == "sqlite" else postgresql.insert
            row = insert(poll_cursors).values(repository=repository, at=until.timestamp())
            db.execute(row.on_conflict_do_update(index_elements=["repository"], set_={"at": until.timestamp()}))
