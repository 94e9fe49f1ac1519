"""The audit log: who did what, when, from where and to which job."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import moment
from app.jobs.tables import TableStore, audit_log, writing

AuditWay = Literal["dashboard", "api", "github", "terminal"]
MAX_DETAIL: Final = 300
KEPT: Final = timedelta(days=400)
"""A year and a month, so that a yearly review still sees the whole year."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action. `job` is empty for actions that concern no job, `address` for actions from GitHub or a terminal."""

    at: datetime
    who: str
    way: AuditWay
    action: str
    job: str = ""
    detail: str = ""
    address: str = ""
    seq: int = 0
    """The entry's number, once it is stored."""


class AuditLog(TableStore):
    """The log, in short transactions."""

    def record(
        self, who: str, way: AuditWay, action: str, job: str = "", *, detail: str = "", address: str = ""
    ) -> None:
        with writing(self._engine) as db:
            insert_audit(db, AuditEntry(self._clock(), who, way, action, job, detail, address))

    def newest(self, limit: int, before: int = 0) -> tuple[AuditEntry, ...]:
        """The newest entries, newest first; with `before`, those older than this one."""
        query = audit_log.select().order_by(audit_log.c.seq.desc()).limit(limit)
        if before:
            query = query.where(audit_log.c.seq < before)
        with self._engine.connect() as db:
            return tuple(_entry(row) for row in db.execute(query).mappings())


def prune_audit_log(engine: Engine, now: datetime) -> int:
    """Delete entries that are older than `KEPT`; return their number."""
    with writing(engine) as db:
        return db.execute(audit_log.delete().where(audit_log.c.at < (now - KEPT).timestamp())).rowcount


def insert_audit(db: Connection, entry: AuditEntry) -> None:
    """Add an entry in the caller's transaction, so that it is stored if and only if the action is."""
    values = {"who": entry.who[:100], "way": entry.way, "action": entry.action[:32], "job": entry.job[:40]}
    values |= {"detail": entry.detail[:MAX_DETAIL], "address": entry.address[:45]}
    db.execute(audit_log.insert().values(**values, at=entry.at.timestamp()))


def _entry(row: sa.RowMapping) -> AuditEntry:
    values = {name: row[name] for name in ("who", "action", "job", "detail", "address", "seq")}
    return AuditEntry(at=moment(row["at"]), way=cast("AuditWay", row["way"]), **values)
