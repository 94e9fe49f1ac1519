"""How jobs ended and what became of their pull requests: recorded once, from rows alone."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.job_actions import JobRequests, ProgramRequest
from app.jobs.outcomes import LOOK_AGAIN, Outcomes, pull_number
from app.jobs.queue import JobQueue
from app.jobs.store import JobStore
from app.jobs.tables import jobs, sqlite_engine
from tests.support.clock import SettableClock
from tests.support.seeded_database import seeded
from tests.support.server_jobs import START, issue_ref, job

NOW = START + timedelta(days=2)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return sqlite_engine(seeded(tmp_path, NOW), synced=False)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOW)


@pytest.fixture
def outcomes(engine: Engine, clock: SettableClock) -> Outcomes:
    return Outcomes(engine, clock)


def test_each_ended_job_is_recorded_once(outcomes: Outcomes, engine: Engine, clock: SettableClock) -> None:
    assert outcomes.record_ended() == 14
    assert (outcomes.record_ended(), Outcomes(engine, clock).record_ended()) == (0, 0)
    found = outcomes.since(0.0, NOW.timestamp())
    assert len(found) == 14
    opened = next(each for each in found if each.state == "pr_opened")
    assert (opened.kind, opened.model, opened.verdict) == ("bug", "anthropic/claude-sonnet-4-5", "proved")
    assert (opened.pull, opened.pull_state, opened.changed) == (77, "open", None)
    assert opened.cost > 60_000
    assert opened.tokens > 27_000
    assert opened.reaction_seconds is not None
    assert opened.ended_at > opened.created_at


def test_the_time_of_the_end_does_not_depend_on_the_machines_time_zone(
    outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        outcomes.record_ended()
    finally:
        monkeypatch.undo()
        time.tzset()
    latest = max(each.ended_at for each in outcomes.since(0.0, NOW.timestamp()))
    assert 0 <= NOW.timestamp() - latest < 24 * 3600
    assert all(each.ended_at >= each.created_at for each in outcomes.since(0.0, NOW.timestamp()))


def test_jobs_that_end_later_are_recorded_then(outcomes: Outcomes, engine: Engine, clock: SettableClock) -> None:
    outcomes.record_ended()
    clock.now += timedelta(hours=1)
    JobStore(engine, clock).finish("seed22", "error", "It broke.", {"exit_status": "error"})
    assert outcomes.record_ended() == 1
    assert outcomes.since(0.0, clock.now.timestamp())[-1].state == "error"


def test_a_job_that_asked_a_question_is_recorded_when_it_has_really_ended(
    outcomes: Outcomes, engine: Engine, clock: SettableClock
) -> None:
    with engine.connect() as db:
        asked = db.scalar(sa.select(jobs.c.id).where(jobs.c.state == "needs_input"))
    assert asked is not None
    outcomes.record_ended()
    assert "needs_input" not in {each.state for each in outcomes.since(0.0, NOW.timestamp())}
    clock.now += timedelta(hours=1)
    assert JobQueue(engine, clock).resume(asked)
    assert outcomes.record_ended() == 0
    JobStore(engine, clock).finish(asked, "no_change", "It is right as it is.", {"exit_status": "no_change"})
    assert outcomes.record_ended() == 1
    assert [each.state for each in outcomes.since(0.0, NOW.timestamp()) if each.job == asked] == ["no_change"]


def test_a_search_is_no_ended_job_and_one_of_the_command_line_is(
    outcomes: Outcomes, engine: Engine, clock: SettableClock
) -> None:
    requests, store = JobRequests(engine, clock), JobStore(engine, clock)
    requests.add(ProgramRequest(job="search", repository="ada/sample", by="key ci", at=NOW, search="label:bug"))
    assert requests.end("search", "answered", "The search found no open issue.")
    store.create(job("local", issue_ref(9), created_at=NOW), "a key of a directory")
    store.enter("local", "no_change")
    outcomes.record_ended()
    found = {each.job for each in outcomes.since(0.0, clock.now.timestamp() + 1)}
    assert "local" in found
    assert "search" not in found


def test_a_merged_pull_request_says_whether_it_was_changed_first(outcomes: Outcomes) -> None:
    outcomes.record_ended()
    (place, *_) = outcomes.to_look_up(20)
    assert outcomes.pull_closed(place.repository, place.number, merged=True, head="f" * 40)
    merged = [each for each in outcomes.since(0.0, NOW.timestamp()) if each.pull_state == "merged"]
    assert merged
    assert all(each.changed for each in merged)
    assert outcomes.pull_closed(place.repository, place.number, merged=False, head="") == 0, "merged is for good"


def test_a_closed_pull_request_may_be_opened_again_and_merged(outcomes: Outcomes) -> None:
    outcomes.record_ended()
    (place, *_) = outcomes.to_look_up(20)
    outcomes.pull_closed(place.repository, place.number, merged=False, head="")
    outcomes.pull_reopened(place.repository, place.number)
    ours = "f6e7d8c9b0" * 4
    assert outcomes.pull_closed(place.repository, place.number, merged=True, head=ours)
    found = [each for each in outcomes.since(0.0, NOW.timestamp()) if each.pull_state == "merged"]
    assert found[0].changed is False


def test_open_pull_requests_are_looked_up_again_after_some_hours(outcomes: Outcomes, clock: SettableClock) -> None:
    outcomes.record_ended()
    places = outcomes.to_look_up(20)
    assert {place.number for place in places} == {77}
    assert len({place.repository for place in places}) == len(places) == 3
    assert outcomes.to_look_up(20) == ()
    clock.now += LOOK_AGAIN + timedelta(seconds=1)
    assert len(outcomes.to_look_up(2)) == 2


@pytest.mark.parametrize(
    ("address", "number"),
    [
        ("https://github.com/o/r/pull/7", 7),
        ("https://github.com/o/r/pull/7/", 7),
        ("https://github.com/o/r/issues/7", 0),
        ("https://github.com/o/r/pull/7x", 0),
        ("", 0),
    ],
)
def test_pull_number_is_read_from_its_address(address: str, number: int) -> None:
    assert pull_number(address) == number
