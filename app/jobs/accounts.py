"""Who may use the pages and the API: keys for programs, and sessions of people who signed in with GitHub."""

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, cast, get_args

import sqlalchemy as sa
from cryptography.fernet import Fernet
from sqlalchemy.exc import IntegrityError

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode
from app.jobs.tables import TableStore, api_keys, insert_into, login_holders, web_sessions, writing

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
        values = {"name": name, "digest": _key_digest(key), "scopes": " ".join(sorted(scopes))}
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
            row = db.execute(api_keys.select().where(api_keys.c.digest == _key_digest(key))).mappings().first()
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


def _key_digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


SESSION_LASTS: Final = timedelta(hours=8)
"""The lifetime of GitHub's user tokens."""


@dataclass(frozen=True, slots=True)
class WebSession:
    """A signed-in person, and their permission by repository as of `rights_at`."""

    user: int
    login: str
    token: str = field(repr=False)
    rights: Mapping[int, str]
    rights_at: datetime


class WebSessions(TableStore):
    """The sessions, in short transactions. A cookie is a secret: the table has its digest only."""

    def create(self, user: int, login: str, token: str, rights: Mapping[int, str]) -> str:
        """Create a session and return its cookie.

        Also deletes expired sessions, and makes this account the login's holder if it has none.
        """
        cookie, now = secrets.token_urlsafe(32), self._clock()
        values = {
            "digest": _cookie_digest(cookie),
            "user": user,
            "login": login[:100],
            "token": _cipher(cookie).encrypt(token.encode()),
            "created_at": now.timestamp(),
            "expires_at": (now + SESSION_LASTS).timestamp(),
            **_columns(rights, now),
        }
        with writing(self._engine) as db:
            db.execute(sa.delete(web_sessions).where(web_sessions.c.expires_at <= now.timestamp()))
            db.execute(web_sessions.insert().values(values))
            db.execute(insert_into(db, login_holders).values(login=login.lower(), user=user).on_conflict_do_nothing())
        return cookie

    def holder(self, login: str) -> int | None:
        """The numeric id of the account that signed in first with this login."""
        with self._engine.connect() as db:
            return db.execute(
                sa.select(login_holders.c.user).where(login_holders.c.login == login.lower())
            ).scalar_one_or_none()

    def get(self, cookie: str) -> WebSession | None:
        """The session of this cookie; None if there is none, or it has expired."""
        mine = (web_sessions.c.digest == _cookie_digest(cookie), web_sessions.c.expires_at > self._clock().timestamp())
        with self._engine.connect() as db:
            row = db.execute(web_sessions.select().where(*mine)).mappings().first()
        if row is None:
            return None
        return WebSession(
            user=row["user"],
            login=row["login"],
            token=_cipher(cookie).decrypt(row["token"]).decode(),
            rights={int(repository): right for repository, right in row["rights"].items()},
            rights_at=moment(row["rights_at"]),
        )

    def update_rights(self, cookie: str, rights: Mapping[int, str]) -> None:
        mine = web_sessions.update().where(web_sessions.c.digest == _cookie_digest(cookie))
        with writing(self._engine) as db:
            db.execute(mine.values(_columns(rights, self._clock())))

    def delete(self, cookie: str) -> None:
        with writing(self._engine) as db:
            db.execute(sa.delete(web_sessions).where(web_sessions.c.digest == _cookie_digest(cookie)))


def _columns(rights: Mapping[int, str], now: datetime) -> dict[str, object]:
    return {"rights": {str(repository): right for repository, right in rights.items()}, "rights_at": now.timestamp()}


def _cookie_digest(cookie: str) -> str:
    return hashlib.sha256(f"session:{cookie}".encode()).hexdigest()


def _cipher(cookie: str) -> Fernet:
    """A key derived from the cookie. The cookie is random, so one hash suffices; the prefix keeps the key different
    from the stored digest."""
    return Fernet(urlsafe_b64encode(hashlib.sha256(f"token:{cookie}".encode()).digest()))
