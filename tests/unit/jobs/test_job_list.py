"""The list of jobs: what the database reads for each order and filter, as SQLite and Postgres plan it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.job import JobState
from app.core.state_words import in_group
from app.jobs.queries import MAX_REPOSITORIES, JobFilter, JobOverview, SortOrder
from app.jobs.schema import prepare_tables
from tests.support.databases import DIALECTS, database
from tests.support.job_queue import Server

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with database(request.param, tmp_path) as made:
        prepare_tables(made)
        yield made


def plan_of(engine: Engine, query: Callable[[JobOverview], object]) -> str:
    """How the database executes the statements of this query."""
    seen: list[tuple[str, object]] = []

    def note(_db: object, _cursor: object, statement: str, values: object, *_: object) -> None:
        seen.append((statement, values))

    sa.event.listen(engine, "before_cursor_execute", note)
    query(JobOverview(engine, lambda: NOW))
    sa.event.remove(engine, "before_cursor_execute", note)
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as db:
        plans = [db.exec_driver_sql(f"{explain} {statement}", values) for statement, values in seen]  # type: ignore[arg-type]
        return "\n".join(str(row) for plan in plans for row in plan)


@pytest.mark.parametrize(("written", "stored"), [("a\0b", "ab"), ("a\ud800b", "a\ufffdb"), ("\\u0000\0", "\\u0000")])
def test_text_that_no_database_can_hold_is_stored_without_it(engine: Engine, written: str, stored: str) -> None:
    server = Server(engine)
    server.admit("one")
    server.store.add_progress("one", "text", written)
    server.store.finish("one", "no_change", written, {"exit_status": "no_change", "summary": [{written: written}]})
    row = server.row("one")
    assert (row.reason, row.result) == (stored, {"exit_status": "no_change", "summary": [{stored: stored}]})
    assert [each.text for each in server.store.recent_progress("one", 9, "text")] == [stored]
    listing = JobOverview(engine, lambda: NOW)
    assert [each.id for each in listing.page(JobFilter()).jobs] == ["one"]
    assert listing.page(JobFilter(text=written, person=written)).jobs == ()


def test_a_repository_is_found_beside_many_others(engine: Engine) -> None:
    server = Server(engine)
    listing = JobOverview(engine, lambda: NOW)
    for number in range(MAX_REPOSITORIES + 1):
        server.admit(f"j{number:03}", repository=MAX_REPOSITORIES + 1 - number)
    assert set(listing.repositories()) == set(range(1, MAX_REPOSITORIES + 1)), "the newest ones are listed"
    assert listing.repository("Ada/Sample") == 1
    assert listing.repository("ada/sample", frozenset({MAX_REPOSITORIES + 1})) == MAX_REPOSITORIES + 1
    assert listing.repository("ada/other") is None


@pytest.mark.parametrize("order", get_args(SortOrder))
def test_no_order_adds_up_model_calls(engine: Engine, order: SortOrder) -> None:
    plan = plan_of(engine, lambda listing: listing.page(JobFilter(), order))
    assert "job_costs" in plan
    assert " calls" not in plan


@pytest.mark.parametrize("job_filter", [JobFilter(), JobFilter(verdict="proved"), JobFilter(since=NOW.date())])
def test_counts_read_an_index_and_no_job(tmp_path: Path, job_filter: JobFilter) -> None:
    with database("sqlite", tmp_path) as engine:
        prepare_tables(engine)
        plan = plan_of(engine, lambda listing: listing.counts(job_filter))
    assert "jobs USING COVERING INDEX ix_jobs" in plan
    assert "SCAN jobs'" not in plan


def test_jobs_that_need_a_person_come_first(engine: Engine) -> None:
    server = Server(engine)
    states: dict[str, JobState] = {"a": "paused", "b": "pr_opened", "c": "needs_input", "d": "error", "e": "answered"}
    for number, (name, state) in enumerate(states.items()):
        aim = "plan" if state == "answered" else "fix"
        server.admit(name, number=number, aim=aim)
        server.store.finish(name, state, "", {"exit_status": state})
    listing = JobOverview(engine, lambda: NOW)
    assert [each.id for each in listing.page(JobFilter(), "needs_you").jobs] == list("ecadb")
    pages = [listing.page(JobFilter(), "needs_you", page, limit=2) for page in (1, 2, 3)]
    assert [[each.id for each in page.jobs] for page in pages] == [["e", "c"], ["a", "d"], ["b"]]
    assert [page.more for page in pages] == [True, True, False]
    assert listing.counts(JobFilter()) == {"waiting": 3, "active": 0, "done": 1, "ended": 1}
    assert [each.id for each in listing.page(JobFilter(states=in_group("waiting"))).jobs] == list("eca")
    assert listing.page(JobFilter(states=in_group("answered"))).jobs == ()
    server.admit("f", number=4)  # the approved work
    assert listing.counts(JobFilter())["done"] == 2
    assert [each.id for each in listing.page(JobFilter(states=in_group("done"))).jobs] == list("eb")


def test_a_repository_s_jobs_are_found_by_an_index(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        prepare_tables(engine)
        plan = plan_of(engine, lambda listing: listing.counts(JobFilter(repository=7)))
    assert "job_contexts USING COVERING INDEX ix_job_contexts_place (repository=?)" in plan
