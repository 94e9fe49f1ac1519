"""The list of jobs for dashboard and API: filtered, sorted and in pages, with counts and dollars a day."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.job import JobState
from app.core.money import MicroUSD
from app.jobs.queries import COST, JOBS_AND_CONTEXTS, LISTED, NUMBER, JobSummary, job_summary
from app.jobs.tables import job_contexts, jobs
from app.llm.sql_ledger import calls

SortOrder = Literal["newest", "oldest", "changed", "cost"]
ON_A_PAGE: Final = 50
CHART_DAYS: Final = 14
SUMS_LAST: Final = timedelta(minutes=1)
"""How long sums over many model calls are kept before they are made again."""
_LOGIN = job_contexts.c.context["login"].as_string()
_TITLE = jobs.c.job[("task", "issue", "title")].as_string()
_NAME = jobs.c.job[("task", "repository")].as_string()
_ORDER: Final[dict[SortOrder, tuple[sa.ColumnElement[Any], ...]]] = {
    "newest": (jobs.c.id.desc(),),
    "oldest": (jobs.c.id.asc(),),
    "changed": (jobs.c.updated_at.desc(), jobs.c.id.desc()),
    "cost": (COST.desc(), jobs.c.id.desc()),
}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are listed. An empty value does not filter; `visible` are the repositories that a reader may see."""

    states: tuple[JobState, ...] = ()
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


class JobList:
    """Queries for the list; each call is one short read transaction."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._sums: dict[tuple[int | None, frozenset[int] | None], tuple[datetime, tuple[DayCost, ...]]] = {}

    def page(
        self, job_filter: JobFilter, order: SortOrder = "newest", page: int = 1, limit: int = ON_A_PAGE
    ) -> ListedJobs:
        """Page 1 is the first."""
        where, order_by = _conditions(job_filter), _ORDER[order]
        shown = sa.select(jobs.c.id).select_from(_source(where)).where(*where).order_by(*order_by)
        shown = shown.limit(limit + 1).offset((page - 1) * limit)  # sorted before the rest of each row is read
        query = sa.select(*LISTED).select_from(JOBS_AND_CONTEXTS).where(jobs.c.id.in_(shown)).order_by(*order_by)
        with self._engine.connect() as db:
            found = [job_summary(row) for row in db.execute(query).mappings()]
        return ListedJobs(tuple(found[:limit]), len(found) > limit)

    def counts(self, job_filter: JobFilter) -> dict[str, int]:
        """The number of jobs in each state, whatever states the filter names."""
        where = _conditions(replace(job_filter, states=()))
        query = sa.select(jobs.c.state, sa.func.count()).where(*where).group_by(jobs.c.state)
        with self._engine.connect() as db:
            return {row[0]: row[1] for row in db.execute(query.select_from(_source(where)))}

    def verdicts(self, job_filter: JobFilter) -> dict[str, int]:
        """The number of jobs of the chart's days with each verdict."""
        since = self._clock().date() - timedelta(days=CHART_DAYS - 1)
        where = _conditions(JobFilter(repository=job_filter.repository, visible=job_filter.visible, since=since))
        query = sa.select(jobs.c.verdict, sa.func.count()).where(*where).group_by(jobs.c.verdict)
        with self._engine.connect() as db:
            return {row[0]: row[1] for row in db.execute(query.select_from(_source(where))) if row[0]}

    def day_costs(self, job_filter: JobFilter) -> tuple[DayCost, ...]:
        """The cost of each of the chart's days, oldest first; at most a minute old."""
        key, now = (job_filter.repository, job_filter.visible), self._clock()
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
        cuts = self._engine.dialect.name == "sqlite"  # where Postgres rounds
        day = sa.cast(part if cuts else sa.func.floor(part), sa.Integer)
        query = sa.select(day, sa.func.sum(calls.c.cost)).where(calls.c.at >= begins, calls.c.state != "reserved")
        places = _places(job_filter)
        if places:
            query = query.join_from(calls, job_contexts, job_contexts.c.job == calls.c.job_id).where(*places)
        with self._engine.connect() as db:
            found = {int(row[0]): int(row[1]) for row in db.execute(query.group_by(day))}
        return tuple(DayCost(day, found.get(number, 0)) for number, day in enumerate(days))


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
        found.append(jobs.c.state.in_(job_filter.states))
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
        found.append(sa.func.lower(_NAME).in_([job_filter.named.lower()]))
    if job_filter.number is not None:
        found.append(NUMBER.in_([job_filter.number]))
    if job_filter.before:
        found.append(jobs.c.id < job_filter.before)
    return found


def _matches(text: str) -> sa.ColumnElement[bool]:
    number = text.removeprefix("#")
    either = [jobs.c.id == text, *(each.icontains(text, autoescape=True) for each in (_TITLE, _NAME))]
    if number.isascii() and number.isdigit() and len(number) < 16:
        either.append(job_contexts.c.number == int(number))
    return sa.or_(*either)


def _source(where: list[sa.ColumnElement[bool]]) -> sa.FromClause:
    """Only the jobs where nothing else is asked for: a join would read the whole of both tables."""
    tables = {
        column.table for each in where for column in sa.sql.visitors.iterate(each) if isinstance(column, sa.Column)
    }
    return JOBS_AND_CONTEXTS if job_contexts in tables else jobs


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)
