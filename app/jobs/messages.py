"""Messages from people to a running job, kept in order: approvals, answers, higher limits, guidance for the agent."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

import sqlalchemy as sa

from app.core.clock import moment
from app.core.failpoints import failpoint
from app.jobs.tables import TableStore, insert_into, messages, writing

MessageKind = Literal["approve", "answer", "continue", "steer"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message. For `approve`, the text is the edited plan, or empty if the plan was not edited."""

    seq: int
    kind: MessageKind
    who: str
    text: str
    at: datetime


class JobMessages(TableStore):
    """The messages table, in short transactions."""

    def add(self, job: str, kind: MessageKind, *, key: str, who: str, text: str = "") -> bool:
        """Add a message once; `key` is its trigger's key. False if the message was added before."""
        values = {"key": key, "job": job, "kind": kind, "who": who, "text": text, "at": self._clock().timestamp()}
        with writing(self._engine) as db:
            statement = insert_into(db, messages).values(values).on_conflict_do_nothing().returning(messages.c.seq)
            added = db.execute(statement).first() is not None
        failpoint("message.added")
        return added

    def since(self, job: str, seq: int, *kinds: MessageKind) -> tuple[StoredMessage, ...]:
        """The messages after a sequence number, of the given kinds or of all."""
        query = messages.select().where(messages.c.job == job, messages.c.seq > seq).order_by(messages.c.seq)
        if kinds:
            query = query.where(messages.c.kind.in_(kinds))
        with self._engine.connect() as db:
            return tuple(_stored_message(row) for row in db.execute(query).mappings())


def _stored_message(row: sa.RowMapping) -> StoredMessage:
    at = moment(row["at"])
    return StoredMessage(row["seq"], cast("MessageKind", row["kind"]), row["who"], row["text"], at)
