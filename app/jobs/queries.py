"""Queries behind the dashboard and the API: the list of jobs, and one job with everything stored about it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.clock import in_utc, moment
from app.core.job import FINAL, PUBLISHED, Job, JobResult, JobState
from app.core.model_usage import MicroUSD, Totals
from app.core.plan import render_plan
from app.core.state_words import GROUP_NAMES, WORDS, Condition, Group, StateWords, condition_of
from app.jobs.context import JobContext
from app.jobs.job_actions import PlanVersions
from app.jobs.status import BOTH, PLAN_WAITS, WaitingFor
from app.jobs.store import JobBlobs, JobQueries, JobStore, ProgressRow
from app.jobs.tables import effects, job_contexts, jobs, receipts
from app.jobs.trigger_log import JobMessages, StoredMessage
from app.llm.sql_ledger import SqlLedger, calls, job_costs

MAX_REPOSITORIES = 500
JOBS_AND_CONTEXTS = jobs.outerjoin(job_contexts, job_contexts.c.job == jobs.c.id)
COST: sa.ColumnElement[int] = sa.func.coalesce(
    sa.select(job_costs.c.cost).where(job_costs.c.job_id == jobs.c.id).scalar_subquery(), 0
)
_TASK = jobs.c.job
TITLE = _TASK[("task", "issue", "title")].as_string()
REPOSITORY_NAME = _TASK[("task", "repository")].as_string()
_URL = jobs.c.result["url"].as_string()
_LOGIN = job_contexts.c.context["login"].as_string()
NUMBER: sa.ColumnElement[int] = sa.func.coalesce(job_contexts.c.number, _TASK[("task", "issue", "number")].as_integer())
LISTED: tuple[sa.ColumnElement[Any], ...] = (
    jobs.c.id,
    jobs.c.state,
    jobs.c.reason,
    jobs.c.created_at,
    jobs.c.updated_at,
    jobs.c.stop_requested,
    jobs.c.owner,
    TITLE.label("title"),
    REPOSITORY_NAME.label("repository"),
    _TASK[("task", "origin", "is_pull_request")].as_boolean().label("is_pull_request"),
    _TASK[("budget", "usd")].as_integer().label("budget"),
    _TASK["model"].as_string().label("model"),
    _TASK["runner"].as_string().label("runner"),
    NUMBER.label("number"),
    _LOGIN.label("login"),
    job_contexts.c.context["aim"].as_string().label("aim"),
    job_contexts.c.waiting_for,
    jobs.c.verdict,
    _URL.label("url"),
    (_TASK["plan_mode"].as_string() == "only").label("plan_only"),
    PLAN_WAITS.label("plan_waits"),
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
    verdict: str
    cost: MicroUSD
    owner: str | None = None
    title: str = ""
    repository: str = ""
    is_pull_request: bool = False
    budget: MicroUSD = 0
    model: str = ""
    runner: str = "native"
    number: int | None = None
    login: str = ""
    aim: str = ""
    url: str = ""
    waiting_for: WaitingFor = ""
    plan_only: bool = False
    plan_waits: bool = False
    """True if the plan that it made can still be approved."""

    @property
    def condition(self) -> Condition:
        """What people see of its state; a job from the command line makes a branch, not a pull request."""
        return condition_of(
            self.state,
            plan_only=self.plan_only,
            plan_waits=self.plan_waits,
            local=not self.url,
            broken=self.verdict == "broken",
        )

    @property
    def words(self) -> StateWords:
        return WORDS[self.condition]


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


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are listed. An empty value does not filter; `visible` are the repositories that a reader may see."""

    states: tuple[Condition, ...] = ()
    repository: int | None = None
    person: str = ""
    verdict: str = ""
    text: str = ""
    """Part of a title or of a repository's name, a number with or without #, or an id."""
    since: date | None = None
    until: date | None = None
    visible: frozenset[int] | None = None
    named: str = ""
    """OWNER/NAME, in any case."""
    number: int | None = None
    before: str = ""
    """An id: only older jobs are listed."""


@dataclass(frozen=True, slots=True)
class ListedJobs:
    """One page of a list; `more` says whether another follows."""

    jobs: tuple[JobSummary, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class DayCost:
    """What model calls cost on a day."""

    day: date
    cost: MicroUSD


@dataclass(frozen=True, slots=True)
class JobPage:
    """Everything about one job.

    `job_context` is None for a job from the command line; `log` holds the last lines.
    """

    listed: JobSummary
    job: Job
    job_context: JobContext | None
    result: JobResult | None
    plan: str
    """The plan in force, as text."""
    plan_version: int
    totals: Totals
    messages: tuple[StoredMessage, ...]
    effects: tuple[EffectSummary, ...]
    log: tuple[ProgressRow, ...]
    attempts: int
    crashes: int
    worker_deaths: int

    @property
    def final(self) -> bool:
        return self.listed.state in FINAL

    @property
    def is_over(self) -> bool:
        """True if nothing more happens by itself: all that GitHub is to be told is sent."""
        sending = any(effect.state in UNSENT for effect in self.effects)
        return self.final and not sending and not self.remaining_tests

    @property
    def waits(self) -> bool:
        """True if the job may be waiting for its turn."""
        return self.listed.state == "queued" and self.listed.owner is None

    @property
    def may_be_stopped(self) -> bool:
        is_worked_on = not self.final or self.remaining_tests
        return self.job_context is not None and is_worked_on and not self.listed.stop_requested

    @property
    def remaining_tests(self) -> bool:
        """True while the remaining tests of a published job run or wait."""
        return self.listed.waiting_for == "rest"

    @property
    def last_seq(self) -> int:
        return self.log[-1].seq if self.log else 0


SortOrder = Literal["needs_you", "newest", "oldest", "changed", "cost"]
ON_A_PAGE: Final = 50
CHART_DAYS: Final = 14
SUMS_LAST: Final = timedelta(minutes=1)
"""How long sums over many model calls are kept before they are made again."""
_NEEDS_YOU = (
    jobs.c.state.in_([*(name for name, words in WORDS.items() if words.needs_you), "answered"]),
    sa.or_(jobs.c.state != "answered", PLAN_WAITS),
)
"""True for a job that goes on only if a person decides something; an index has the states."""
_ORDER: Final[dict[SortOrder, tuple[sa.ColumnElement[Any], ...]]] = {
    "needs_you": (jobs.c.id.desc(),),
    "newest": (jobs.c.id.desc(),),
    "oldest": (jobs.c.id.asc(),),
    "changed": (jobs.c.updated_at.desc(), jobs.c.id.desc()),
    "cost": (COST.desc(), jobs.c.id.desc()),
}
UNSENT: Final = ("wanted", "claimed")
"""States of effects that are still to be sent to GitHub."""
LINES_SHOWN = 300


class JobOverview:
    """The queries, in short read transactions."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self.engine = engine
        self.clock = clock
        self._store = JobStore(engine, clock)
        self._sums: dict[tuple[int | None, frozenset[int] | None], tuple[datetime, tuple[DayCost, ...]]] = {}

    def one(self, job_id: str) -> JobSummary | None:
        query = sa.select(*LISTED).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id == job_id)
        with self.engine.connect() as db:
            row = db.execute(query).mappings().first()
        return _job_summary(row) if row else None

    def repositories(self, visible: frozenset[int] | None = None) -> dict[int, str]:
        """The repositories with the newest jobs, all or the visible ones: their latest name by number."""
        last = sa.func.max(job_contexts.c.job)
        newest = sa.select(last).group_by(job_contexts.c.repository).order_by(last.desc()).limit(MAX_REPOSITORIES)
        if visible is not None:
            newest = newest.where(job_contexts.c.repository.in_(sorted(visible)))
        query = (
            sa.select(job_contexts.c.repository, REPOSITORY_NAME)
            .select_from(JOBS_AND_CONTEXTS)
            .where(jobs.c.id.in_(newest))
        )
        with self.engine.connect() as db:
            found = {row[0]: row[1] or "" for row in db.execute(query)}
        return dict(sorted(found.items(), key=lambda item: item[1].casefold()))

    def repository(self, name: str, visible: frozenset[int] | None = None) -> int | None:
        """The number of the repository of the newest visible job under this name; None without such a job."""
        of_name = _conditions(JobFilter(named=name, visible=visible))
        query = sa.select(job_contexts.c.repository).select_from(BOTH).where(*of_name)
        with self.engine.connect() as db:
            return db.execute(query.order_by(jobs.c.id.desc()).limit(1)).scalar()

    def log(
        self, job_id: str, after: int = 0, limit: int = 1_000, *, streamed: bool = False
    ) -> tuple[ProgressRow, ...]:
        """The job's log in order, from after a given `seq`; with `streamed`, also what the model wrote as it came."""
        return tuple(self._store.progress_since(job_id, after, limit, streamed=streamed))

    def plan(self, job_id: str) -> str:
        """The plan that the job reported last; empty if there is none yet."""
        return "".join(row.text for row in self._store.recent_progress(job_id, 1, "plan"))

    def model_calls(self, job_id: str, limit: int) -> tuple[ModelCallSummary, ...]:
        """The job's last model calls, in order."""
        columns = (calls.c.call, calls.c.state, calls.c.prompt_tokens, calls.c.cached_tokens)
        query = sa.select(*columns, calls.c.completion_tokens, calls.c.cost).where(calls.c.job_id == job_id)
        newest = query.order_by(calls.c.at.desc(), calls.c.call.desc(), calls.c.attempt.desc()).limit(limit)
        with self.engine.connect() as db:
            return tuple(ModelCallSummary(*row) for row in db.execute(newest))[::-1]

    def effects(self, job_id: str) -> tuple[EffectSummary, ...]:
        """The job's effects in the order in which they were requested."""
        by_revision = sa.select(receipts).where(receipts.c.job == job_id).order_by(receipts.c.revision)
        requested = effects.select().where(effects.c.job == job_id).order_by(effects.c.seq)
        with self.engine.connect() as db:
            newest = {row.key: row for row in db.execute(by_revision)}
            rows = db.execute(requested).all()
        found = []
        for row in rows:
            receipt = newest.get(row.key)
            kind, url = row.effect.get("kind", ""), receipt.receipt.get("url", "") if receipt else ""
            at = moment(receipt.at) if receipt else None
            found.append(EffectSummary(row.key, str(kind), row.state, row.reason, row.attempts, str(url), at))
        return tuple(found)

    def unsent(self, job_id: str) -> int:
        """How many of the job's effects are still to be sent."""
        query = sa.select(sa.func.count()).where(effects.c.job == job_id, effects.c.state.in_(UNSENT))
        with self.engine.connect() as db:
            return int(db.execute(query).scalar_one())

    def page(
        self, job_filter: JobFilter, order: SortOrder = "newest", page: int = 1, limit: int = ON_A_PAGE
    ) -> ListedJobs:
        """Page 1 is the first."""
        where, order_by, begin = _conditions(job_filter), _ORDER[order], (page - 1) * limit
        with self.engine.connect() as db:
            first: list[str] = []
            if order == "needs_you":  # a page of them at most, so that none of the others has to be sorted
                needed = sa.select(jobs.c.id).select_from(JOBS_AND_CONTEXTS).where(*where, *_NEEDS_YOU)
                first = list(db.scalars(needed.order_by(*order_by).limit(ON_A_PAGE)))
            ids = first[begin : begin + limit + 1]
            others = sa.select(jobs.c.id).select_from(_source(where)).where(*where, jobs.c.id.not_in(first))
            others = others.order_by(*order_by).limit(limit + 1 - len(ids)).offset(max(begin - len(first), 0))
            ids += db.scalars(others)  # sorted before the rest of each row is read
            query = sa.select(*LISTED).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id.in_(ids))
            found = {row["id"]: _job_summary(row) for row in db.execute(query).mappings()}
        listed = [found[name] for name in ids if name in found]
        return ListedJobs(tuple(listed[:limit]), len(ids) > limit)

    def counts(self, job_filter: JobFilter) -> dict[Group, int]:
        """The number of jobs in each group, whatever states the filter names."""
        where = _conditions(replace(job_filter, states=()))
        query = sa.select(jobs.c.state, jobs.c.verdict, sa.func.count()).where(*where)
        plans = sa.select(sa.func.count()).where(*where, PLAN_WAITS).select_from(JOBS_AND_CONTEXTS)
        found = dict.fromkeys(GROUP_NAMES, 0)
        with self.engine.connect() as db:
            for state, verdict, number in db.execute(
                query.group_by(jobs.c.state, jobs.c.verdict).select_from(_source(where))
            ):
                found[WORDS[condition_of(state, broken=verdict == "broken")].group] += number
            waiting = db.execute(plans).scalar_one()
        found["waiting"] += waiting
        found["done"] -= waiting  # where their state has them
        return found

    def verdicts(self, job_filter: JobFilter) -> dict[str, int]:
        """The number of jobs of the chart's days with each verdict."""
        since = self.clock().date() - timedelta(days=CHART_DAYS - 1)
        where = _conditions(JobFilter(repository=job_filter.repository, visible=job_filter.visible, since=since))
        query = sa.select(jobs.c.verdict, sa.func.count()).where(*where).group_by(jobs.c.verdict)
        with self.engine.connect() as db:
            return {row[0]: row[1] for row in db.execute(query.select_from(_source(where))) if row[0]}

    def day_costs(self, job_filter: JobFilter) -> tuple[DayCost, ...]:
        """The cost of each of the chart's days, oldest first; at most a minute old."""
        key, now = (job_filter.repository, job_filter.visible), self.clock()
        at, kept = self._sums.get(key, (now, ()))
        if not kept or now - at >= SUMS_LAST:
            kept = self._day_costs(job_filter, now)
            self._sums = {known: (then, sums) for known, (then, sums) in self._sums.items() if now - then < SUMS_LAST}
            self._sums[key] = now, kept
        return kept

    def _day_costs(self, job_filter: JobFilter, now: datetime) -> tuple[DayCost, ...]:
        days = [now.date() - timedelta(days=back) for back in range(CHART_DAYS)][::-1]
        begins = datetime.combine(days[0], datetime.min.time(), UTC).timestamp()
        part = (calls.c.at - begins) / 86_400.0
        cuts = self.engine.dialect.name == "sqlite"  # where Postgres rounds
        day = sa.cast(part if cuts else sa.func.floor(part), sa.Integer)
        query = sa.select(day, sa.func.sum(calls.c.cost)).where(calls.c.at >= begins, calls.c.state != "reserved")
        places = _places(job_filter)
        if places:
            query = query.join_from(calls, job_contexts, job_contexts.c.job == calls.c.job_id).where(*places)
        with self.engine.connect() as db:
            found = {int(row[0]): int(row[1]) for row in db.execute(query.group_by(day))}
        return tuple(DayCost(day, found.get(number, 0)) for number, day in enumerate(days))

    def details(self, job_id: str, *, lines: int = LINES_SHOWN) -> JobPage | None:
        """One job with everything stored about it; `lines` is how much of its log."""
        listed, job = self.one(job_id), JobQueries(self.engine, self.clock).get(job_id)
        row = job.row if job else self._store.get(job_id)
        if listed is None or row is None:
            return None
        versions = PlanVersions(self.engine, self.clock).of(job_id)
        return JobPage(
            listed=listed,
            job=row.job,
            job_context=job.job_context if job else None,
            result=JobResult.read(row.result),
            plan=render_plan(versions[-1].plan) if versions else self.plan(job_id),
            plan_version=versions[-1].version if versions else 0,
            totals=SqlLedger(self.engine, job_id, 0).totals(),
            messages=JobMessages(self.engine, self.clock).since(job_id, 0),
            effects=self.effects(job_id),
            log=self._store.recent_progress(job_id, lines) if lines else (),
            attempts=row.epoch,
            crashes=job.crashes if job else 0,
            worker_deaths=job.worker_deaths if job else 0,
        )

    def change(self, job_id: str) -> bytes | None:
        """The job's change as a diff for `git apply`; None if none is stored."""
        return self._blob(job_id, "diff")

    def trajectory(self, job_id: str) -> bytes | None:
        """The job's steps as JSON lines; None if none are stored."""
        return self._blob(job_id, "trajectory")

    def _blob(self, job_id: str, name: Literal["diff", "trajectory"]) -> bytes | None:
        row = self._store.get(job_id)
        result = JobResult.read(row.result) if row else None
        digest = getattr(result, name) if result else ""
        return JobBlobs(self.engine, job_id).get(digest) if digest else None


def _job_summary(row: sa.RowMapping) -> JobSummary:
    known = {name: value for name, value in row.items() if value is not None}
    return JobSummary(**known | {name: in_utc(row[name]) for name in ("created_at", "updated_at")})


def _places(job_filter: JobFilter) -> list[sa.ColumnElement[bool]]:
    found = []
    if job_filter.repository is not None:
        found.append(job_contexts.c.repository == job_filter.repository)
    if job_filter.visible is not None:
        found.append(job_contexts.c.repository.in_(sorted(job_filter.visible)))
    return found


def _conditions(job_filter: JobFilter) -> list[sa.ColumnElement[bool]]:
    found = _places(job_filter)
    if job_filter.states:
        found.append(sa.or_(*_seen_as(job_filter.states)))
    if job_filter.verdict:
        found.append(jobs.c.verdict == job_filter.verdict)
    if job_filter.person:
        found.append(sa.func.lower(_LOGIN) == job_filter.person.lower())
    if job_filter.since is not None:
        found.append(jobs.c.created_at >= _midnight(job_filter.since))
    if job_filter.until is not None:
        found.append(jobs.c.created_at < _midnight(job_filter.until) + timedelta(days=1))
    if job_filter.text:
        found.append(_matches(job_filter.text))
    if job_filter.named:
        found.append(sa.func.lower(REPOSITORY_NAME).in_([job_filter.named.lower()]))
    if job_filter.number is not None:
        found.append(NUMBER.in_([job_filter.number]))
    if job_filter.before:
        found.append(jobs.c.id < job_filter.before)
    return found


def _seen_as(conditions: Sequence[Condition]) -> Iterator[sa.ColumnElement[bool]]:
    """One of these is true for a job of which people see one of these conditions."""
    wanted = set(conditions)
    special = {"answered", "plan_made", "plan_waits", "pr_opened", "pr_updated", "branch_made", "broken_draft"}
    yield jobs.c.state.in_(sorted(wanted - special))
    if "plan_waits" in wanted:
        yield PLAN_WAITS
    if wanted & {"answered", "plan_made"}:
        yield sa.and_(jobs.c.state == "answered", sa.not_(PLAN_WAITS))
    published, is_local = jobs.c.state.in_(sorted(PUBLISHED)), sa.func.coalesce(_URL, "") == ""
    broken = sa.func.coalesce(jobs.c.verdict, "") == "broken"
    if "broken_draft" in wanted:
        yield sa.and_(published, broken)
    if "branch_made" in wanted:
        yield sa.and_(published, sa.not_(broken), is_local)
    yield sa.and_(jobs.c.state.in_(sorted(wanted & PUBLISHED)), sa.not_(broken), sa.not_(is_local))


def _matches(text: str) -> sa.ColumnElement[bool]:
    number = text.removeprefix("#")
    either = [jobs.c.id == text, *(each.icontains(text, autoescape=True) for each in (TITLE, REPOSITORY_NAME))]
    if number.isascii() and number.isdigit() and len(number) < 16:
        either.append(job_contexts.c.number == int(number))
    return sa.or_(*either)


def _source(where: list[sa.ColumnElement[bool]]) -> sa.FromClause:
    """Only the jobs if nothing else is wanted for: a join would read the whole of both tables."""
    tables = {
        column.table for each in where for column in sa.sql.visitors.iterate(each) if isinstance(column, sa.Column)
    }
    return JOBS_AND_CONTEXTS if job_contexts in tables else jobs


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)
