"""Requested effects and their receipts in the database; the only way from a worker to a forge.

    worker ─add─► wanted ─claim─► claimed ─done─► receipt
                     ▲               │ failed for now, or the publisher died
                     └───────────────┘            └─► failed, for a person to see

A worker whose job was taken over has an old epoch: it can neither add an effect nor have one claimed. Comparing the
epoch and claiming are one transaction that locks the job's row.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.core.task import IssueRef
from app.jobs.tables import EFFECTS, adopt_effects, effects, jobs, receipts
from app.publish.effects import (
    EDITS_APART,
    EFFECT_ADAPTER,
    LEASE,
    MAX_DEATHS,
    Effect,
    EffectState,
    NextAttempt,
    Receipt,
    after_failure,
    after_success,
    after_want,
    digest_of,
    key_of,
)

NO_JOB = "d-"
"""The prefix of names for effects that belong to no job (`name_without_job`)."""
_NEVER_FINISHED = f"It was started {MAX_DEATHS} times and never finished."
MAX_EFFECTS = 60
"""Different effects of one job, so that no job floods a repository."""


class StaleEpoch(AgentFixError):  # noqa: N818  # a fact about the caller
    """Another process took over the caller's job."""

    def __init__(self, job: str) -> None:
        super().__init__(f"Job {job} belongs to another process now.", code=ExitCode.BUSY)


class TooManyEffects(AgentFixError):  # noqa: N818  # a limit
    """The job has requested too many effects."""

    def __init__(self, job: str) -> None:
        super().__init__(f"Job {job} requests more than {MAX_EFFECTS} effects.", code=ExitCode.LIMIT_REACHED)


@dataclass(frozen=True, slots=True)
class EffectClaim:
    """One effect, claimed by one publisher until its lease ends."""

    key: str
    job: str
    issue_ref: IssueRef
    effect: Effect
    revision: int
    attempts: int
    owner: str
    pushed: Mapping[str, str]
    """The `branch` and `compare` of the newest error that names them (`ForgeError`); empty if none does."""


@dataclass(frozen=True, slots=True)
class EffectStatus:
    """The status of an effect, for callers that wait for it."""

    key: str
    effect: Effect
    state: EffectState
    reason: str
    receipt: Receipt | None
    pushed: Mapping[str, str]
    error: AgentFixError | None = None
    """The error, if it failed."""


class Outbox:
    """Reads and writes both tables, each in one short transaction."""

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now

    def add(self, job: str, epoch: int, issue_ref: IssueRef, effect: Effect) -> str:
        """Add an effect; returns its key. Idempotent; another version replaces the earlier one."""
        key, digest, now = key_of(job, effect), digest_of(effect), self._now()
        with self._engine.begin() as db:
            if not _holds(db, job, epoch):
                raise StaleEpoch(job)
            # Locked: a publisher that records its receipt between this read and the write would be overwritten.
            row = _row(db, key, lock=True)
            values: dict[str, Any] = {"epoch": epoch, "issue_ref": issue_ref.model_dump(mode="json")}
            values |= {"installation": issue_ref.installation}
            if row is None:
                requested = sa.select(sa.func.count()).where(effects.c.job == job)
                if db.execute(requested).scalar_one() >= MAX_EFFECTS:
                    raise TooManyEffects(job)
                values |= {"key": key, "job": job, "revision": 1, "digest": digest, "owner": "", "reason": ""}
                values |= {"effect": effect.model_dump(mode="json"), **_columns(NextAttempt("wanted", now, 0))}
                db.execute(effects.insert().values(values))
            elif row["digest"] == digest and row["state"] != "withdrawn":
                db.execute(effects.update().where(effects.c.key == key).values(epoch=epoch))
            else:
                changed = after_want(row["state"], moment(row["due"]), row["attempts"], now)
                values |= {"revision": row["revision"] + 1, "digest": digest, "reason": ""}
                values |= {"effect": effect.model_dump(mode="json"), **_columns(changed)}
                db.execute(effects.update().where(effects.c.key == key).values(values))
        failpoint("effect.wanted")
        return key

    def adopt(self, job: str, epoch: int, *, branches: bool = True) -> int:
        """`adopt_effects`, in a transaction of its own. Raises StaleEpoch if the job has another owner."""
        with self._engine.begin() as db:
            if not _holds(db, job, epoch):
                raise StaleEpoch(job)
            return adopt_effects(db, job, epoch, branches=branches)

    def claim(self, owner: str, busy: Collection[int] = (), kinds: Collection[str] = ()) -> EffectClaim | None:
        """Claim the next due effect with a valid epoch for this publisher; None if there is none.

        Effects of `busy` installations wait, and so do other kinds than `kinds` if any are given. If the publisher
        dies, an effect is due again after its lease, and failed after too many deaths in succession.
        """
        now = self._now()
        with self._engine.connect() as db:
            dead = EFFECTS.gone_owners(db, now)
        if dead:
            with self._engine.begin() as db:
                EFFECTS.end_leases(db, dead, now)
        for key, job, epoch in self._due(busy, kinds):
            this = effects.c.key == key
            with self._engine.begin() as db:
                if not _holds(db, job, epoch):
                    continue
                if EFFECTS.give_up(db, this, now, MAX_DEATHS, _NEVER_FINISHED, error=None):
                    continue
                rows = EFFECTS.claim(db, this, owner, now, now + LEASE)
            if rows:
                failpoint("effect.claimed")
                row = rows[0]
                return EffectClaim(
                    key=row["key"],
                    job=row["job"],
                    issue_ref=IssueRef.model_validate(row["issue_ref"]),
                    effect=EFFECT_ADAPTER.validate_python(row["effect"]),
                    revision=row["revision"],
                    attempts=row["attempts"],
                    owner=row["owner"],
                    pushed=_pushed(row),
                )
        return None

    def done(self, claim: EffectClaim, receipt: Receipt) -> None:
        """Record that it happened, even after the lease has ended."""
        now = self._now()
        with self._engine.begin() as db:
            # The write comes first: SQLite gives no lock to a transaction that has read an older state.
            db.execute(effects.update().where(effects.c.key == claim.key).values(reason=""))
            row = _row(db, claim.key)
            known = sa.select(receipts.c.key).filter_by(key=claim.key, revision=claim.revision)
            if db.execute(known).first() is None:
                values = {"key": claim.key, "revision": claim.revision, "job": claim.job, "at": now.timestamp()}
                db.execute(receipts.insert().values(receipt=receipt.model_dump(mode="json"), **values))
            if row is not None:
                then = _columns(after_success(claim.revision, row["revision"], now))
                ended = effects.update().where(effects.c.key == claim.key, EFFECTS.open)
                db.execute(ended.values(**then, owner="", error=None))

    def failed(self, claim: EffectClaim, error: AgentFixError) -> NextAttempt:
        """Record the failure, and when to try again, if at all. A version that was added meanwhile is not refused."""
        now = self._now()
        then = after_failure(error, claim.attempts, now)
        newer = NextAttempt("wanted", max(then.due, now + EDITS_APART), 0)
        values = {**_columns(then), "owner": "", "reason": error.message}
        values["error"] = {**claim.pushed, **error.to_json()}
        same = effects.c.revision == claim.revision
        with self._engine.begin() as db:
            if EFFECTS.change(db, claim.key, claim.owner, claim.attempts, same, **values):
                return then
            EFFECTS.change(db, claim.key, claim.owner, claim.attempts, **_columns(newer), owner="")
        return newer

    def amend(self, claim: EffectClaim, effect: Effect) -> None:
        """Replace a claimed effect by the publisher's version, due at once."""
        then = NextAttempt("wanted", self._now(), claim.attempts)
        values = {**_columns(then), "owner": "", "effect": effect.model_dump(mode="json")}
        same = effects.c.revision == claim.revision
        with self._engine.begin() as db:
            EFFECTS.change(db, claim.key, claim.owner, claim.attempts, same, **values)

    def withdraw(self, job: str) -> int:
        """Withdraw effects that nobody has claimed; returns how many are claimed at this moment."""
        with self._engine.begin() as db:
            mine = effects.c.job == job
            unclaimed = effects.update().where(mine, effects.c.state == "wanted")
            db.execute(unclaimed.values(state="withdrawn", reason="The job was stopped."))
            claimed = sa.select(sa.func.count()).select_from(effects).where(mine, effects.c.state == "claimed")
            return int(db.execute(claimed).scalar_one())

    def status(self, key: str) -> EffectStatus | None:
        with self._engine.connect() as db:
            row = _row(db, key)
            return _status(db, row) if row is not None else None

    def of(self, job: str) -> tuple[EffectStatus, ...]:
        """All effects of a job, in the order of their request."""
        query = effects.select().where(effects.c.job == job).order_by(effects.c.seq)
        with self._engine.connect() as db:
            return tuple(_status(db, row) for row in db.execute(query).mappings().all())

    def next_due(self) -> datetime | None:
        """When the next effect may be claimed; None if none is open."""
        with self._engine.connect() as db:
            soonest = sa.select(sa.func.min(effects.c.due)).where(EFFECTS.open)
            found = db.execute(soonest).scalar()
        return None if found is None else moment(found)

    def _due(self, busy: Collection[int], kinds: Collection[str]) -> list[tuple[str, str, int]]:
        """The next due effects, without those of former owners: these may be many, and would hide all others."""
        valid = sa.or_(effects.c.epoch == jobs.c.epoch, effects.c.job.like(f"{NO_JOB}%"))
        query = sa.select(effects.c.key, effects.c.job, effects.c.epoch).select_from(
            effects.outerjoin(jobs, jobs.c.id == effects.c.job)
        )
        query = query.where(EFFECTS.due(self._now()), valid, effects.c.installation.not_in(list(busy)))
        if kinds:
            query = query.where(effects.c.effect["kind"].as_string().in_(list(kinds)))
        with self._engine.connect() as db:
            found = db.execute(query.order_by(effects.c.due, effects.c.seq).limit(50)).all()
        return [(row.key, row.job, row.epoch) for row in found]


def name_without_job(trigger: str) -> str:
    """The name for replies that belong to a trigger instead of a job; the same for the same trigger. Its epoch is 0."""
    return NO_JOB + hashlib.sha256(trigger.encode()).hexdigest()[:12]


def _holds(db: Connection, job: str, epoch: int) -> bool:
    """True if the job has this epoch; locks its row until the transaction ends (on SQLite the whole database).

    Effects without a job cannot be taken over; their own rows are locked.
    """
    if job.startswith(NO_JOB):
        db.execute(effects.update().where(effects.c.job == job).values(job=job))
        return epoch == 0
    held = sa.update(jobs).where(jobs.c.id == job, jobs.c.epoch == epoch).values(epoch=epoch)
    return db.execute(held).rowcount == 1


def _status(db: Connection, row: RowMapping) -> EffectStatus:
    newest = sa.select(receipts.c.receipt).where(receipts.c.key == row["key"]).order_by(receipts.c.revision.desc())
    kept = db.execute(newest.limit(1)).scalar()
    return EffectStatus(
        key=row["key"],
        effect=EFFECT_ADAPTER.validate_python(row["effect"]),
        state=row["state"],
        reason=row["reason"],
        receipt=Receipt.model_validate(kept) if kept is not None else None,
        pushed=_pushed(row),
        error=AgentFixError.from_json(row["error"]) if row["error"] and row["state"] == "failed" else None,
    )


def _pushed(row: RowMapping) -> Mapping[str, str]:
    return {name: text for name, text in (row["error"] or {}).items() if name in {"branch", "compare"}}


def _row(db: Connection, key: str, *, lock: bool = False) -> RowMapping | None:
    query = effects.select().where(effects.c.key == key)
    return db.execute(query.with_for_update() if lock else query).mappings().first()


def _columns(then: NextAttempt) -> dict[str, Any]:
    return {"state": then.state, "due": then.due.timestamp(), "attempts": max(0, then.attempts)}
