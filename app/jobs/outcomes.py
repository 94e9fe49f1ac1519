"""How jobs ended and what became of their pull requests: one narrow row for each ended job, and their totals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.clock import in_utc
from app.core.job import FINAL, WAITING
from app.core.model_usage import DOLLAR, MicroUSD
from app.core.task import IssueRef
from app.jobs.context import JobContext
from app.jobs.queries import JOBS_AND_CONTEXTS
from app.jobs.store import job_row
from app.jobs.tables import effects, job_contexts, job_requests, jobs, outcomes, receipts, triggers, writing
from app.llm.sql_ledger import calls

PullState = Literal["", "open", "merged", "closed"]
AT_ONCE: Final = 500
OVERLAP: Final = timedelta(minutes=20)
"""The maximum clock difference between machines that is tolerated."""
LOOK_AGAIN: Final = timedelta(hours=6)
VERIFICATION: Final = "verification"
"""The kind of a job that judged somebody's change."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row, as reports use it."""

    job: str
    repository: str
    kind: str
    model: str
    verdict: str
    state: str
    created_at: float
    ended_at: float
    reaction_seconds: float | None
    pull_request_seconds: float | None
    tokens: int
    cost: MicroUSD
    pull: int
    pull_state: PullState
    changed: bool | None


_FIELDS: Final = tuple(outcomes.c[name] for name in Outcome.__slots__)


class Outcomes:
    """Writes and reads the outcomes."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._recorded_until: datetime | None = None

    def record_ended(self) -> int:
        """Add a row for each job that ended since; returns how many. Idempotent.

        A job of which the remaining tests run is added when they have ended: they may change its verdict. One that
        asked a question may go on, and what a program requested is not counted if no job of its own began.
        """
        now = self._clock()
        missing = sa.select(jobs.c.id).outerjoin(outcomes, outcomes.c.job == jobs.c.id)
        missing = missing.outerjoin(job_contexts, job_contexts.c.job == jobs.c.id)
        rests = sa.func.coalesce(job_contexts.c.waiting_for, "").in_(("rest", "rest_ended"))
        requested = sa.exists().where(job_requests.c.job == jobs.c.id)
        begun = sa.or_(job_contexts.c.job.is_not(None), sa.not_(requested))
        missing = missing.where(jobs.c.state.in_(FINAL - WAITING), outcomes.c.job.is_(None), sa.not_(rests), begun)
        if self._recorded_until is not None:  # so that its cost depends on what is new
            missing = missing.where(jobs.c.updated_at >= self._recorded_until - OVERLAP)
        with self._engine.connect() as db:
            found = db.scalars(missing.order_by(jobs.c.id).limit(AT_ONCE)).all()
        for job in found:
            with writing(self._engine) as db:
                if db.execute(sa.select(outcomes.c.job).where(outcomes.c.job == job)).first() is None:
                    db.execute(outcomes.insert().values(_values(db, job)))
        if len(found) < AT_ONCE:
            self._recorded_until = now
        return len(found)

    def pull_closed(self, repository: int, pull: int, *, merged: bool, head: str) -> int:
        """Record whether a pull request was merged or closed; returns the number of its jobs. A merge is final."""
        here = (outcomes.c.repository_id == repository, outcomes.c.pull == pull)
        with writing(self._engine) as db:
            ours = set(db.scalars(sa.select(outcomes.c.commit_id).where(*here)))
            values: dict[str, object] = {"pull_state": "merged" if merged else "closed"}
            if merged and head:
                values["changed"] = head not in ours
            return db.execute(outcomes.update().where(*here, outcomes.c.pull_state != "merged").values(values)).rowcount

    def pull_reopened(self, repository: int, pull: int) -> None:
        here = (outcomes.c.repository_id == repository, outcomes.c.pull == pull, outcomes.c.pull_state == "closed")
        with writing(self._engine) as db:
            db.execute(outcomes.update().where(*here).values(pull_state="open"))

    def to_look_up(self, most: int) -> tuple[IssueRef, ...]:
        """Open pull requests that were not looked at for some hours; each is due again later."""
        now = self._clock().timestamp()
        due = (outcomes.c.pull_state == "open", outcomes.c.looked_at < now - LOOK_AGAIN.total_seconds())
        place = (outcomes.c.installation, outcomes.c.repository_id, outcomes.c.repository, outcomes.c.pull)
        query = sa.select(*place).where(*due, outcomes.c.repository_id > 0).distinct().limit(most)
        with writing(self._engine) as db:
            found = db.execute(query).all()
            for row in found:
                here = (outcomes.c.repository_id == row.repository_id, outcomes.c.pull == row.pull)
                db.execute(outcomes.update().where(*here).values(looked_at=now))
        return tuple(map(_place, found))

    def since(self, moment: float, until: float) -> Sequence[Outcome]:
        """The outcomes of jobs that were requested in that time, oldest first."""
        query = sa.select(*_FIELDS).where(outcomes.c.created_at >= moment, outcomes.c.created_at < until)
        with self._engine.connect() as db:
            return [Outcome(*row) for row in db.execute(query.order_by(outcomes.c.created_at))]


def _place(row: Any) -> IssueRef:
    owner, _, name = row.repository.partition("/")
    return IssueRef(
        installation=row.installation, repository=row.repository_id, owner=owner, name=name, number=row.pull
    )


def _values(db: Connection, job_id: str) -> dict[str, object]:
    found = db.execute(
        sa.select(jobs, job_contexts.c.context).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id == job_id)
    )
    raw = found.mappings().one()
    row, result = job_row(raw), raw["result"] or {}
    job_context = JobContext.model_validate(raw["context"]) if raw["context"] else None
    place = job_context.issue_ref if job_context else None
    requested_at = db.scalar(sa.select(sa.func.min(triggers.c.at)).where(triggers.c.job == job_id))
    requested_at = requested_at if requested_at is not None else row.job.created_at.timestamp()
    reacted, opened = _receipt_times(db, job_id)
    spent = sa.select(
        sa.func.coalesce(sa.func.sum(calls.c.prompt_tokens + calls.c.completion_tokens), 0),
        sa.func.coalesce(sa.func.sum(calls.c.cost), 0),
    ).where(calls.c.job_id == job_id, calls.c.state != "reserved")
    tokens, cost = db.execute(spent).one()
    pull = pull_number(str(result.get("url", ""))) or (job_context.pull if job_context and job_context.pull else 0)
    judged = row.job.aim == "verify"  # somebody else's pull request is no result of ours
    pull = 0 if judged else pull
    return {
        "job": job_id,
        "installation": place.installation if place else 0,
        "repository_id": place.repository if place else 0,
        "repository": f"{place.owner}/{place.name}" if place else row.job.task.repository,
        "kind": VERIFICATION if judged else row.job.kind,
        "model": "recorded" if row.job.main_model.startswith("recorded/") else row.job.main_model,
        "verdict": raw["verdict"],
        "state": row.state,
        "created_at": row.job.created_at.timestamp(),
        "ended_at": in_utc(row.updated_at).timestamp(),
        "reaction_seconds": max(reacted - requested_at, 0.0) if reacted is not None else None,
        "pull_request_seconds": max(opened - requested_at, 0.0) if opened is not None else None,
        "tokens": int(tokens),
        "cost": int(cost),
        "pull": pull,
        "pull_state": "open" if pull and place else "",
        "commit_id": str(result.get("commit", "")),
    }


def _receipt_times(db: Connection, job_id: str) -> tuple[float | None, float | None]:
    """When something was first shown on GitHub, and when the pull request was opened."""
    first = db.scalar(sa.select(sa.func.min(receipts.c.at)).where(receipts.c.job == job_id))
    opening = effects.c.effect["kind"].as_string() == "open_draft_pr"
    both = receipts.join(effects, effects.c.key == receipts.c.key)
    query = sa.select(sa.func.min(receipts.c.at)).select_from(both).where(receipts.c.job == job_id, opening)
    return first, db.scalar(query)


def pull_number(address: str) -> int:
    """The number at the end of a pull request's address; 0 for anything else."""
    before, _, last = address.rstrip("/").rpartition("/")
    return int(last) if before.endswith("/pull") and last.isascii() and last.isdigit() else 0


_SECONDS: Final = (5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
_TOKENS: Final = (10_000.0, 30_000.0, 100_000.0, 300_000.0, 1_000_000.0, 3_000_000.0, 10_000_000.0)
_DOLLARS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0)
DISTRIBUTIONS: Final[Mapping[str, tuple[sa.ColumnElement[Any], Sequence[float]]]] = {
    "first_reaction_seconds": (outcomes.c.reaction_seconds, _SECONDS),
    "pull_request_seconds": (outcomes.c.pull_request_seconds, _SECONDS),
    "job_tokens": (outcomes.c.tokens, _TOKENS),
    "job_cost_dollars": (outcomes.c.cost / sa.literal(float(DOLLAR)), _DOLLARS),
}
"""What is counted by its size: the figure and the upper bounds of its buckets."""
_GROUPED: Final = tuple(outcomes.c[name] for name in ("repository", "kind", "model", "verdict", "state"))


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """The number and the cost of ended jobs that have these five in common."""

    repository: str
    kind: str
    model: str
    verdict: str
    state: str
    count: int
    cost: MicroUSD


@dataclass(frozen=True, slots=True)
class Distribution:
    """One figure of all ended jobs of a kind: how many are at most each bound, how many there are, and their sum."""

    name: str
    kind: str
    at_most: tuple[int, ...]
    count: int
    sum: float


@dataclass(frozen=True, slots=True)
class OutcomeTotals:
    """All ended jobs, those that ended first in front, and pull requests by what became of them."""

    ended: tuple[EndedJobs, ...]
    pulls: Mapping[str, int]
    distributions: tuple[Distribution, ...]


def outcome_totals(engine: Engine) -> OutcomeTotals:
    """As many rows as there are kinds, models and repositories, however many jobs there were."""
    sums = (sa.func.count(), sa.func.sum(outcomes.c.cost))
    ended = sa.select(*_GROUPED, *sums).group_by(*_GROUPED)
    ended = ended.order_by(sa.func.min(outcomes.c.ended_at), *_GROUPED)
    with engine.connect() as db:
        return OutcomeTotals(
            ended=tuple(EndedJobs(*row[:6], cost=int(row[6])) for row in db.execute(ended)),
            pulls=_pulls(db),
            distributions=tuple(_distributions(db)),
        )


def _pulls(db: Connection) -> dict[str, int]:
    """Each pull request once, as its newest job left it."""
    place = (outcomes.c.repository, outcomes.c.pull)
    known = outcomes.c.pull_state != ""
    newest = sa.select(*place, sa.func.max(outcomes.c.created_at).label("at")).where(known).group_by(*place).subquery()
    same = sa.and_(*(newest.c[each.name] == each for each in place), newest.c.at == outcomes.c.created_at)
    each = sa.select(*place, outcomes.c.pull_state).join_from(outcomes, newest, same).where(known).distinct().subquery()
    states = sa.select(each.c.pull_state, sa.func.count()).group_by(each.c.pull_state)
    return {row[0]: row[1] for row in db.execute(states)}


def _distributions(db: Connection) -> list[Distribution]:
    columns: list[sa.ColumnElement[Any]] = [outcomes.c.kind]
    for figure, bounds in DISTRIBUTIONS.values():
        columns += [sa.func.count(figure), sa.func.coalesce(sa.func.sum(figure), 0)]
        columns += [sa.func.count(sa.case((figure <= bound, 1))) for bound in bounds]
    found = []
    for row in db.execute(sa.select(*columns).group_by(outcomes.c.kind).order_by(outcomes.c.kind)):
        rest = iter(row[1:])
        for name, (_, bounds) in DISTRIBUTIONS.items():
            count, total = next(rest), next(rest)
            at_most = tuple(next(rest) for _ in bounds)
            if count:
                found.append(Distribution(name, row[0], at_most, count, float(total)))
    return found
