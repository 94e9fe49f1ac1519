"""Totals for the metrics: the database's sums are those of the rows, on SQLite and Postgres."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.outcomes import DISTRIBUTIONS, outcome_totals
from app.jobs.schema import prepare_tables
from app.jobs.tables import outcomes
from tests.support.databases import DIALECTS, database

ROWS = [
    {
        "job": f"j{number}",
        "repository": f"octo/r{number % 3}",
        "kind": ("bug", "feature")[number % 2],
        "model": f"acme/m{number % 5}",
        "verdict": ("proved", "broken")[number % 4 == 0],
        "state": "pr_opened",
        "created_at": 1_000.0 + number,
        "ended_at": 1_000.0 - number,
        "reaction_seconds": None if number % 7 == 0 else number / 2,
        "pull_request_seconds": None,
        "tokens": number * 9_000,
        "cost": number * 31_000,
        "pull": number % 4,
        "pull_state": ("", "open", "merged", "closed")[number % 4],
    }
    for number in range(120)
]


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with database(request.param, tmp_path) as made:
        prepare_tables(made)
        with made.begin() as db:
            db.execute(outcomes.insert(), ROWS)
        yield made


def test_sums_are_those_of_the_rows(engine: Engine) -> None:
    totals = outcome_totals(engine)
    names = ("repository", "kind", "model", "verdict", "state")
    counted = Counter(tuple(row[name] for name in names) for row in ROWS)
    assert {tuple(getattr(each, name) for name in names): each.count for each in totals.ended} == counted
    assert sum(each.cost for each in totals.ended) == sum(int(str(row["cost"])) for row in ROWS)
    assert totals.ended[0].repository == "octo/r2", "the one whose job ended first"
    assert totals.pulls == {"open": 3, "merged": 3, "closed": 3}
    bugs = {each.name: each for each in totals.distributions if each.kind == "bug"}
    assert set(bugs) == {"first_reaction_seconds", "job_tokens", "job_cost_dollars"}, "no figure, no distribution"
    waits = [row["reaction_seconds"] for row in ROWS if row["kind"] == "bug"]
    seconds = [float(str(each)) for each in waits if each is not None]
    found, bounds = bugs["first_reaction_seconds"], DISTRIBUTIONS["first_reaction_seconds"][1]
    assert found.at_most == tuple(sum(each <= bound for each in seconds) for bound in bounds)
    assert found.count == len(seconds)
    assert found.sum == pytest.approx(sum(seconds))
    dollars = [number * 0.031 for number in range(0, 120, 2)]
    assert bugs["job_cost_dollars"].at_most[3] == sum(each <= 0.5 for each in dollars)
    assert bugs["job_cost_dollars"].sum == pytest.approx(sum(dollars))


def test_a_pull_request_counts_once_as_its_newest_job_left_it(engine: Engine) -> None:
    again = {**ROWS[1], "job": "again", "created_at": 2_000.0, "pull_state": "merged"}
    with engine.begin() as db:
        db.execute(outcomes.insert().values(again))
        db.execute(sa.update(outcomes).where(outcomes.c.pull == 2).values(pull_state=""))
    assert outcome_totals(engine).pulls == {"open": 2, "merged": 1, "closed": 3}
