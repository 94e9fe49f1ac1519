"""Queries behind the dashboard and the API: one job's details, its log and its costs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.job import STREAMED, JobState, ProgressKind
from app.core.money import MicroUSD
from app.jobs.store import ProgressRow, WaitingFor
from app.jobs.tables import effects, job_contexts, jobs, progress, receipts
from app.llm.sql_ledger import calls, job_costs

MAX_REPOSITORIES = 500
JOBS_AND_CONTEXTS = jobs.outerjoin(job_contexts, job_contexts.c.job == jobs.c.id)
COST: sa.ColumnElement[int] = sa.func.coalesce(
    sa.select(job_costs.c.cost).where(job_costs.c.job_id == jobs.c.id).scalar_subquery(), 0
)
_TASK = jobs.c.job
NUMBER: sa.ColumnElement[int] = sa.func.coalesce(job_contexts.c.number, _TASK[("task", "issue", "number")].as_integer())
LISTED: tuple[sa.ColumnElement[Any], ...] = (
    jobs.c.id,
    jobs.c.state,
    jobs.c.reason,
    jobs.c.created_at,
    jobs.c.updated_at,
    jobs.c.stop_requested,
    jobs.c.owner,
    _TASK[("task", "issue", "title")].as_string().label("title"),
    _TASK[("task", "repository")].as_string().label("repository"),
    _TASK[("task", "origin", "is_pull_request")].as_boolean().label("is_pull_request"),
    _TASK[("budget", "usd")].as_integer().label("budget"),
    _TASK["model"].as_string().label("model"),
    _TASK["runner"].as_string().label("runner"),
    NUMBER.label("number"),
    job_contexts.c.context["login"].as_string().label("login"),
    job_contexts.c.context["aim"].as_string().label("aim"),
    job_contexts.c.waiting_for,
    jobs.c.verdict,
    jobs.c.result["url"].as_string().label("url"),
    COST.label("cost"),
)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job in a list. `number` is None for a job from the command line; `url` is its pull request's."""

    id: str
    state: JobState
    reason: str
    created_at: datetime
    updated_at: datetime
    stop_requested: bool
    owner: str | None
    title: str
    repository: str
    is_pull_request: bool
    budget: MicroUSD
    model: str
    runner: str
    number: int | None
    login: str
    aim: str
    verdict: str
    url: str
    cost: MicroUSD
    waiting_for: WaitingFor = ""


@dataclass(frozen=True, slots=True)
class EffectSummary:
    """An effect and its outcome."""

    key: str
    kind: str
    state: str
    reason: str
    attempts: int
    url: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class ModelCallSummary:
    """One model call of a job."""

    name: str
    state: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: MicroUSD


class JobOverview:
    """Queries for details of jobs; each call is one short read transaction."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self.engine = engine
        self.clock = clock

    def one(self, job_id: str) -> JobSummary | None:
        query = sa.select(*LISTED).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id == job_id)
        with self.engine.connect() as db:
            row = db.execute(query).mappings().first()
        return job_summary(row) if row else None

    def repositories(self, visible: frozenset[int] | None = None) -> dict[int, str]:
        """The repositories that have had jobs, all or the visible ones: their latest name by number."""
        newest = sa.select(sa.func.max(job_contexts.c.job)).group_by(job_contexts.c.repository).limit(MAX_REPOSITORIES)
        if visible is not None:
            newest = newest.where(job_contexts.c.repository.in_(sorted(visible)))
        name = jobs.c.job[("task", "repository")].as_string()
        query = sa.select(job_contexts.c.repository, name).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id.in_(newest))
        with self.engine.connect() as db:
            found = {row[0]: row[1] or "" for row in db.execute(query)}
        return dict(sorted(found.items(), key=lambda item: item[1].casefold()))

    def log(
        self, job_id: str, after: int = 0, limit: int = 1_000, *, streamed: bool = False
    ) -> tuple[ProgressRow, ...]:
        """The job's log in order, from after a given `seq`; with `streamed`, also what the model wrote as it came."""
        query = progress.select().where(progress.c.job == job_id, progress.c.seq > after)
        if not streamed:
            query = query.where(progress.c.kind.not_in(STREAMED))
        with self.engine.connect() as db:
            return tuple(
                _progress_row(row) for row in db.execute(query.order_by(progress.c.seq).limit(limit)).mappings()
            )

    def log_end(self, job_id: str, limit: int) -> tuple[ProgressRow, ...]:
        """The last lines of the job's log, in order."""
        lines = progress.select().where(progress.c.job == job_id, progress.c.kind.not_in(STREAMED))
        query = lines.order_by(progress.c.seq.desc()).limit(limit)
        with self.engine.connect() as db:
            return tuple(_progress_row(row) for row in db.execute(query).mappings())[::-1]

    def plan(self, job_id: str) -> str:
        """The plan that the job reported last; empty if there is none yet."""
        plans = progress.select().where(progress.c.job == job_id, progress.c.kind == "plan")
        with self.engine.connect() as db:
            row = db.execute(plans.order_by(progress.c.seq.desc()).limit(1)).mappings().first()
        return row["text"] if row else ""

    def model_calls(self, job_id: str, limit: int) -> tuple[ModelCallSummary, ...]:
        """The job's last model calls, in order."""
        columns = (calls.c.call, calls.c.state, calls.c.prompt_tokens, calls.c.cached_tokens)
        query = sa.select(*columns, calls.c.completion_tokens, calls.c.cost).where(calls.c.job_id == job_id)
        newest = query.order_by(calls.c.at.desc(), calls.c.call.desc(), calls.c.attempt.desc()).limit(limit)
        with self.engine.connect() as db:
            return tuple(ModelCallSummary(*row) for row in db.execute(newest))[::-1]

    def effects(self, job_id: str) -> tuple[EffectSummary, ...]:
        """The job's effects in the order in which they were requested."""
        with self.engine.connect() as db:
            return tuple(_effect_summaries(db, job_id))


def job_summary(row: sa.RowMapping) -> JobSummary:
    return JobSummary(
        id=row["id"],
        state=cast("JobState", row["state"]),
        reason=row["reason"],
        created_at=in_utc(row["created_at"]),
        updated_at=in_utc(row["updated_at"]),
        stop_requested=row["stop_requested"],
        owner=row["owner"],
        title=row["title"] or "",
        repository=row["repository"] or "",
        is_pull_request=bool(row["is_pull_request"]),
        budget=row["budget"] or 0,
        model=row["model"] or "",
        runner=row["runner"] or "native",
        number=row["number"],
        login=row["login"] or "",
        aim=row["aim"] or "",
        verdict=row["verdict"],
        url=row["url"] or "",
        cost=int(row["cost"]),
        waiting_for=row["waiting_for"] or "",
    )


def _progress_row(row: sa.RowMapping) -> ProgressRow:
    return ProgressRow(row["seq"], in_utc(row["at"]), cast("ProgressKind", row["kind"]), row["text"])


def _effect_summaries(db: Connection, job_id: str) -> list[EffectSummary]:
    newest = sa.select(receipts).where(receipts.c.job == job_id).order_by(receipts.c.revision)
    newest_receipts = {row["key"]: row for row in db.execute(newest).mappings()}
    found = []
    for row in db.execute(effects.select().where(effects.c.job == job_id).order_by(effects.c.seq)).mappings():
        receipt = newest_receipts.get(row["key"])
        found.append(
            EffectSummary(
                key=row["key"],
                kind=str(row["effect"].get("kind", "")),
                state=row["state"],
                reason=row["reason"],
                attempts=row["attempts"],
                url=str(receipt["receipt"].get("url", "")) if receipt else "",
                at=datetime.fromtimestamp(receipt["at"], UTC) if receipt else None,
            )
        )
    return found


def in_utc(moment: datetime) -> datetime:
    """Add UTC: SQLite stores no time zone, and all our times are in UTC."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
