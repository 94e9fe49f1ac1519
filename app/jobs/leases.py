"""Rows that one process at a time works on: deliveries, jobs and effects are claimed under the same lease.

    waiting ─claim─► claimed ─change─► done
       ▲                │ put back, or its lease or its process ended
       └────────────────┘            └─give_up─► dead, until a person asks for a retry

The owner is the process that claimed a row; it extends the lease while it works.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from app.core.processes import is_gone


class Lease:
    """Who holds a row, and until when. `until` is in the table of `key`; `rows` has the column `owner` too."""

    def __init__(
        self,
        rows: sa.FromClause,
        key: sa.Column[Any],
        owner: sa.Column[Any],
        until: sa.Column[Any],
        claimed: sa.ColumnElement[bool],
    ) -> None:
        self._rows = rows
        self._key = key
        self._owner = owner
        self._until = until
        self._claimed = claimed

    def held(self, now: datetime) -> sa.ColumnElement[bool]:
        """True for a row that a process works on."""
        return sa.and_(self._claimed, self._until > self._stored(now))

    def free(self, now: datetime) -> sa.ColumnElement[bool]:
        """True for a row that nobody has claimed, or whose lease has expired."""
        return sa.or_(sa.not_(self._claimed), self._until <= self._stored(now))

    def gone_owners(self, db: Connection, now: datetime) -> list[str]:
        """Processes of this machine that have ended and still hold rows."""
        owners = sa.select(self._owner).select_from(self._rows).where(self.held(now)).distinct()
        return [owner for owner in db.execute(owners).scalars().all() if owner and is_gone(owner)]

    def end_leases_of_dead(self, db: Connection, now: datetime) -> None:
        """End the leases of processes of this machine that have ended."""
        self.end_leases(db, self.gone_owners(db, now), now)

    def end_leases(self, db: Connection, owners: Collection[str], now: datetime) -> None:
        """End the leases of these owners."""
        if owners:
            theirs = sa.select(self._key).select_from(self._rows).where(self.held(now), self._owner.in_(owners))
            ended = sa.update(self._key.table).where(self._key.in_(theirs))
            db.execute(ended.values({self._until.name: self._stored(now)}))

    def _stored(self, moment: datetime) -> datetime | float:
        return moment if isinstance(self._until.type, sa.DateTime) else moment.timestamp()


class LeasedQueue(Lease):
    """A table with the columns `state`, `attempts`, `deaths` and `owner`. `until` is also when a waiting row is due.

    `deaths`: how many attempts before this one died in succession: their process ended, or let its lease expire.
    `waiting` and `dead` are the table's words for these states; the column `reason` says why a row is in its state.
    Jobs are claimed by `app.jobs.queue`: their lease is in a second table, and a claim checks budgets and limits.
    """

    def __init__(
        self, table: sa.Table, key: sa.Column[Any], until: sa.Column[Any], reason: str, *, waiting: str, dead: str
    ) -> None:
        super().__init__(table, key, table.c.owner, until, table.c.state == "claimed")
        self.open = table.c.state.in_((waiting, "claimed"))
        self.dead = table.c.state == dead
        self._table = table
        self._reason = reason
        self._fresh: dict[str, Any] = {"state": waiting, "owner": None if table.c.owner.nullable else ""}
        self._dead_row = self._fresh | {"state": dead}

    def due(self, now: datetime) -> sa.ColumnElement[bool]:
        """True for a row that may be claimed."""
        return sa.and_(self.open, self._until <= self._stored(now))

    def claim(
        self, db: Connection, these: sa.ColumnElement[bool], owner: str, now: datetime, until: datetime
    ) -> list[RowMapping]:
        """Claim those of these rows that are due; each row as it is then, its attempt counted."""
        found = self._table.update().where(these, self.due(now)).returning(self._table)
        columns = self._table.c
        deaths = sa.case((self._claimed, columns.deaths + 1), else_=0)
        values = {"state": "claimed", "owner": owner, "attempts": columns.attempts + 1, "deaths": deaths}
        return list(db.execute(found.values({**values, self._until.name: self._stored(until)})).mappings())

    def give_up(
        self, db: Connection, these: sa.ColumnElement[bool], now: datetime, most: int, reason: Any, **values: Any
    ) -> bool:
        """Give up those of these rows whose processes died in `most` attempts in succession; True if there are any."""
        died = sa.and_(these, self._claimed, self._until <= self._stored(now), self._table.c.deaths + 1 >= most)
        given_up = self._table.update().where(died).values({**self._dead_row, self._reason: reason, **values})
        return db.execute(given_up).rowcount > 0

    def change(
        self, db: Connection, key: object, owner: str, attempt: int, /, *where: sa.ColumnElement[bool], **values: Any
    ) -> bool:
        """Change a claimed row; False if the lease expired and the row was claimed again."""
        ours = (self._key == key, self._claimed, self._owner == owner, self._table.c.attempts == attempt)
        return db.execute(self._table.update().where(*ours, *where).values(values)).rowcount == 1

    def retry(self, db: Connection, these: sa.ColumnElement[bool], now: datetime, **values: Any) -> bool:
        """Give those of these rows that are dead new attempts, at once; True if there are any."""
        fresh = {**self._fresh, "attempts": 0, self._until.name: self._stored(now), **values}
        return db.execute(self._table.update().where(these, self.dead).values(fresh)).rowcount > 0
