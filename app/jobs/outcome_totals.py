"""Totals of all ended jobs for the metrics, added up by the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from app.core.money import DOLLAR, MicroUSD
from app.jobs.outcomes import outcomes

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
