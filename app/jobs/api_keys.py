"""Keys for the API: each has a name and scopes, and is shown once; the database holds only its digest."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast, get_args

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode
from app.jobs.tables import TableStore, api_keys, writing

Scope = Literal["read", "write", "admin"]
"""`read` sees jobs; `write` starts, approves, answers, continues, retries and cancels them.
`admin` sees the audit log."""
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
PREFIX: Final = "afk_"


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Whoever made a request, by a key's name."""

    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class ApiKey:
    name: str
    scopes: frozenset[Scope]
    created_at: datetime


class ApiKeys(TableStore):
    """The keys, in short transactions."""

    def create(self, name: str, scopes: Collection[Scope]) -> str:
        """A new key. Raises AgentFixError if the name is taken."""
        key = PREFIX + secrets.token_urlsafe(32)
        values = {"name": name, "digest": _digest(key), "scopes": " ".join(sorted(scopes))}
        try:
            with writing(self._engine) as db:
                db.execute(api_keys.insert().values(**values, created_at=self._clock().timestamp()))
        except IntegrityError:
            hint = f"Delete it with `agent-fix keys delete {name}`, or choose another name."
            raise AgentFixError(f"There is a key named {name} already.", code=ExitCode.USAGE, hint=hint) from None
        return key

    def caller(self, key: str) -> ApiCaller | None:
        """Whose key it is; None if it is nobody's."""
        if not key.startswith(PREFIX):
            return None
        with self._engine.connect() as db:
            row = db.execute(api_keys.select().where(api_keys.c.digest == _digest(key))).mappings().first()
        return ApiCaller(row["name"], _scopes(row["scopes"])) if row else None

    def all(self) -> tuple[ApiKey, ...]:
        with self._engine.connect() as db:
            rows = db.execute(api_keys.select().order_by(api_keys.c.name)).mappings()
            return tuple(ApiKey(row["name"], _scopes(row["scopes"]), moment(row["created_at"])) for row in rows)

    def delete(self, name: str) -> bool:
        """Delete a key, which is refused from now on; False if there is none of this name."""
        with writing(self._engine) as db:
            return db.execute(sa.delete(api_keys).where(api_keys.c.name == name)).rowcount == 1


def _scopes(stored: str) -> frozenset[Scope]:
    return frozenset(cast("list[Scope]", stored.split()))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
