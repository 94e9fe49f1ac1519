"""What the guarantees about triggers rest on, on both kinds of database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from app.jobs.inbox import MAX_ATTEMPTS, Delivery, Inbox
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.store import JobQueries, JobStore
from app.jobs.tables import metadata
from app.jobs.trigger_log import PollCursors, Trigger, TriggerLog
from app.publish.effects import Receipt, UpdateStatusComment
from app.publish.outbox import Outbox, StaleEpoch, name_without_job
from tests.support import server_jobs as made
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with database(request.param, tmp_path) as engine:
        metadata.create_all(engine)
        yield engine


def trigger(key: str, verb: str = "fix", minutes: int = 0) -> Trigger:
    at = datetime(2026, 1, 2, 3, tzinfo=UTC) + timedelta(minutes=minutes)
    return Trigger(key, repository=2, number=3, actor=7, verb=verb, at=at)


def parked(engine: Engine) -> JobQueue:
    queue = JobQueue(engine, SettableClock())
    queue.admit(made.job("one"), made.job_context(), trigger("r2/issue:3/labelled@x"), ready=True)
    JobStore(engine, SettableClock()).enter("one", "paused")
    return queue


def test_a_resume_decides_its_trigger_with_it(engine: Engine) -> None:
    queue, triggers = parked(engine), TriggerLog(engine, SettableClock())
    more = made.job("one").model_copy(update={"plan_file": "x"})
    assert queue.resume("one", more, trigger=trigger("r2/comment:1", "continue"), outcome="continue one")
    decided = triggers.decided("r2/comment:1")
    assert decided is not None
    assert (decided.outcome, decided.job) == ("continue one", "one")
    JobStore(engine, SettableClock()).enter("one", "paused")
    assert not queue.resume("one", made.job("one"), trigger=trigger("r2/comment:1", "continue"), outcome="again")
    row = JobStore(engine, SettableClock()).get("one")
    assert row is not None
    assert (row.state, row.job.plan_file) == ("paused", "x"), "nothing was changed by the second time"


def test_a_resume_that_comes_too_late_decides_nothing(engine: Engine) -> None:
    queue = parked(engine)
    assert queue.resume("one")
    assert not queue.resume("one", trigger=trigger("r2/comment:1"), outcome="x")
    assert TriggerLog(engine, SettableClock()).decided("r2/comment:1") is None


def test_ending_a_job_stops_its_workers_later_writes(engine: Engine) -> None:
    queue = JobQueue(engine, SettableClock())
    queue.admit(made.job("one"), made.job_context(), trigger("a"), ready=True)
    claim = queue.claim("worker", QueueLimits(jobs=4, per_repository=2))
    assert claim
    assert queue.end("one", "no_access", "gone")
    assert not queue.heartbeat(claim)
    assert not queue.hand_over(claim, {})
    with pytest.raises(StaleEpoch):
        Outbox(engine, SettableClock()).add("one", claim.epoch, made.issue_ref(), UpdateStatusComment(body="x"))
    assert not queue.end("one", "error", "twice")
    assert JobQueries(engine, SettableClock()).active(2, 3) is None
    assert queue.admit(made.job("two"), made.job_context(), trigger("b")) == "two", "its place is free"


def test_the_newest_of_what_was_asked_by_those_who_may(engine: Engine) -> None:
    triggers = TriggerLog(engine, SettableClock())
    assert triggers.newest_accepted(2, 3, {"stop"}) is None
    triggers.record(trigger("a", "stop", 1), "stop one")
    triggers.record(trigger("b", "stop", 9), "skip no_access: they have no write access")
    triggers.record(trigger("c", "fix", 5), "job two")
    assert triggers.newest_accepted(2, 3, {"stop"}) == trigger("a", "stop", 1).at
    assert triggers.newest_accepted(2, 3, {"stop", "fix"}) == trigger("c", "fix", 5).at
    assert triggers.newest_accepted(2, 4, {"stop"}) is None


def test_an_attempt_that_does_not_count_is_spared(engine: Engine) -> None:
    clock = SettableClock()
    inbox = Inbox(engine, clock)
    inbox.store([Delivery("d-1", "issues", b"{}")])
    for _ in range(10 * MAX_ATTEMPTS):
        (claimed,) = inbox.claim("me")
        assert claimed.attempt == 1
        assert inbox.put_back(claimed, "GitHub is down", timedelta(seconds=1), counts=False)
        clock.passes(timedelta(seconds=2))
    for _ in range(MAX_ATTEMPTS):
        (claimed,) = inbox.claim("me")
        inbox.put_back(claimed, "our fault", timedelta(seconds=1))
        clock.passes(timedelta(seconds=2))
    assert (inbox.claim("me"), inbox.health().dead) == ([], 1)


def test_effects_without_a_job_need_no_lease(engine: Engine) -> None:
    outbox = Outbox(engine, SettableClock())
    name = name_without_job("r2/comment:1")
    assert name == name_without_job("r2/comment:1") != name_without_job("r2/comment:2")
    outbox.add(name, 0, made.issue_ref(), UpdateStatusComment(body="one"))
    outbox.add(name, 0, made.issue_ref(), UpdateStatusComment(body="one"))
    claim = outbox.claim("publisher")
    assert claim is not None
    assert (claim.job, claim.effect) == (name, UpdateStatusComment(body="one"))
    assert outbox.claim("another") is None
    outbox.done(claim, Receipt(url="u"))
    assert outbox.claim("publisher") is None
    with pytest.raises(StaleEpoch):
        outbox.add(name, 1, made.issue_ref(), UpdateStatusComment(body="two"))
    with pytest.raises(StaleEpoch):
        outbox.add("no-such-job", 0, made.issue_ref(), UpdateStatusComment(body="two"))


def test_poll_cursors_are_stored_and_advanced(engine: Engine) -> None:
    poll_cursors, clock = PollCursors(engine), SettableClock()
    poll_cursors.mark_polled(2, clock())
    poll_cursors.mark_polled(2, clock() + timedelta(minutes=5))
    assert poll_cursors.last_poll([2, 3]) == {2: clock() + timedelta(minutes=5)}
