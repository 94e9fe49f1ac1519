"""What people ask for: triggers, decided once, and messages to a running job; and the audit log of who did what."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import moment
from app.core.failpoints import failpoint
from app.jobs.tables import TableStore, audit_log, insert_into, messages, poll_cursors, triggers, writing

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
            return {row.repository: moment(row.at) for row in db.execute(query)}

    def mark_polled(self, repository: int, until: datetime) -> None:
        with writing(self._engine) as db:
            row = insert_into(db, poll_cursors).values(repository=repository, at=until.timestamp())
            db.execute(row.on_conflict_do_update(index_elements=["repository"], set_={"at": until.timestamp()}))


IGNORED_OUTCOMES = ("skip no_access", "skip review:")
"""Prefixes of outcomes that are no command: the sender had no access, or a review asked for nothing."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger. `key` identifies it, whichever way it was delivered.

    `verb` is the resulting command, `at` when it was requested by GitHub's clock. `login` is empty if no person asked.
    """

    key: str
    repository: int
    number: int
    actor: int
    verb: str
    at: datetime
    login: str = ""
    withdrawn: bool = False
    """Somebody else has added the label again since, so that later request counts. Not stored."""


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    """What was decided about a trigger."""

    key: str
    verb: str
    at: datetime
    outcome: str
    job: str


class TriggerLog(TableStore):
    """The triggers table, in short transactions."""

    def decided(self, key: str) -> TriggerDecision | None:
        with self._engine.connect() as db:
            row = db.execute(triggers.select().where(triggers.c.key == key)).mappings().first()
        return _decided(row) if row else None

    def record(self, trigger: Trigger, outcome: str, job: str = "") -> bool:
        """Store a decision; False if the trigger was already decided."""
        with writing(self._engine) as db:
            recorded = insert_trigger(db, trigger, outcome, job)
        failpoint("trigger.recorded")
        return recorded

    def recent_count(self, repository: int, actor: int) -> int:
        """How many commands this account gave in this repository in the last hour."""
        since = (self._clock() - timedelta(hours=1)).timestamp()
        mine = (triggers.c.repository == repository, triggers.c.actor == actor, triggers.c.at > since)
        with self._engine.connect() as db:
            return int(db.execute(sa.select(sa.func.count()).where(*mine)).scalar_one())

    def newest_accepted(self, repository: int, number: int, verbs: Collection[str]) -> datetime | None:
        """When an authorised person last gave one of these commands, whatever came of it."""
        place = (triggers.c.repository == repository, triggers.c.number == number, triggers.c.verb.in_(verbs))
        accepted = sa.not_(sa.or_(*(triggers.c.outcome.like(f"{begin}%") for begin in IGNORED_OUTCOMES)))
        with self._engine.connect() as db:
            at = db.execute(sa.select(sa.func.max(triggers.c.at)).where(*place, accepted)).scalar()
        return moment(at) if at is not None else None


def is_decided(db: Connection, key: str) -> bool:
    return db.execute(sa.select(triggers.c.key).where(triggers.c.key == key)).first() is not None


def insert_trigger(db: Connection, trigger: Trigger, outcome: str, job: str) -> bool:
    """Insert a trigger in the caller's transaction, and what a person did into the audit log; False if it exists."""
    values = {"key": trigger.key, "repository": trigger.repository, "number": trigger.number, "actor": trigger.actor}
    values |= {"verb": trigger.verb, "at": trigger.at.timestamp(), "outcome": outcome, "job": job}
    statement = insert_into(db, triggers).values(values).on_conflict_do_nothing().returning(triggers.c.key)
    inserted = db.execute(statement).first() is not None
    if inserted and trigger.login and not outcome.startswith(IGNORED_OUTCOMES):
        insert_audit(db, AuditEntry(trigger.at, trigger.login, "github", trigger.verb, job, outcome))
    return inserted


def _decided(row: sa.RowMapping) -> TriggerDecision:
    return TriggerDecision(row["key"], row["verb"], moment(row["at"]), row["outcome"], row["job"])


MessageKind = Literal["approve", "answer", "continue", "steer"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message. For `approve`, the text is the edited plan, or empty if the plan was not edited."""

    seq: int
    kind: MessageKind
    who: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class JobMessage:
    """A message to store. `key` is its trigger's key: a message with a known key is stored already."""

    kind: MessageKind
    key: str
    who: str
    text: str = ""


class JobMessages(TableStore):
    """The messages table, in short transactions."""

    def add(self, job: str, kind: MessageKind, *, key: str, who: str, text: str = "") -> bool:
        """Add a message once; `key` is its trigger's key. False if the message was added before."""
        with writing(self._engine) as db:
            added = insert_message(db, job, JobMessage(kind, key, who, text), self._clock())
        failpoint("message.added")
        return added

    def has(self, job: str, key: str) -> bool:
        """True if the message with this key was added."""
        with self._engine.connect() as db:
            return db.scalar(sa.select(messages.c.seq).where(messages.c.job == job, messages.c.key == key)) is not None

    def since(self, job: str, seq: int, *kinds: MessageKind) -> tuple[StoredMessage, ...]:
        """The messages after a sequence number, of the given kinds or of all."""
        query = messages.select().where(messages.c.job == job, messages.c.seq > seq).order_by(messages.c.seq)
        if kinds:
            query = query.where(messages.c.kind.in_(kinds))
        with self._engine.connect() as db:
            return tuple(_stored_message(row) for row in db.execute(query).mappings())


def insert_message(db: Connection, job: str, message: JobMessage, now: datetime) -> bool:
    """Insert a message in the caller's transaction; False if it exists."""
    values = {"key": message.key, "job": job, "kind": message.kind, "who": message.who, "text": message.text}
    statement = insert_into(db, messages).values(**values, at=now.timestamp()).on_conflict_do_nothing()
    return db.execute(statement.returning(messages.c.seq)).first() is not None


def _stored_message(row: sa.RowMapping) -> StoredMessage:
    at = moment(row["at"])
    return StoredMessage(row["seq"], cast("MessageKind", row["kind"]), row["who"], row["text"], at)
