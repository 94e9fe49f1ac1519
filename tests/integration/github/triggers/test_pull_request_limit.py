"""At the limit of open pull requests, jobs wait for their turn and start when one is merged or closed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.jobs.queue import QueueLimits
from app.llm.sql_ledger import SqlLedger
from app.llm.sql_ledger import metadata as ledger_tables
from app.publish.effects import UpdateStatusComment
from app.publish.status_updater import StatusUpdater
from app.triggers.job_creator import EVERY
from app.triggers.stores import ServerDefaults
from tests.support.event_harness import EventHarness, event_harness
from tests.support.github.world import Issue

FREE = QueueLimits(jobs=10, per_repository=10)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path) as found:
        found.configure("max_open_pull_requests: 1\n")
        yield found


async def closes(harness: EventHarness, pull: Issue) -> None:
    harness.world.tick()
    await harness.hooks.turned(harness.repo, harness.fake_github.installation, harness.owner, pull, "closed")
    await harness.wait_until_handled()


def waits(harness: EventHarness) -> list[str]:
    return [each.waiting_for for each in harness.jobs()]


def another_issue(harness: EventHarness) -> Issue:
    return harness.world.open_issue(harness.repo, harness.owner, "Round down", "It rounds up.")


async def test_a_waiting_job_continues_from_the_merged_base(harness: EventHarness) -> None:
    pull = harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    waiting = harness.job
    assert (waiting.row.state, waiting.waiting_for) == ("queued", "pull_requests")
    assert (
        waiting.row.reason
        == "1 agent-fix pull request is already open or in progress, which is the limit for this repository."
    )
    assert await harness.trigger_loops.release_waiting_jobs() == 0
    assert harness.stores.job_queries.without_base_commit() == ()
    harness.stores.job_queries.mark_ready(waiting.job.id)
    assert harness.stores.queue.claim("w1", FREE) is None
    newest = harness.world.push_as_human(harness.repo, "main", {"app/merged.py": "new = 1\n"})
    await closes(harness, pull)
    assert await harness.trigger_loops.release_waiting_jobs() == 1
    assert (harness.job.waiting_for, harness.job.row.reason) == ("", "")
    assert harness.job.job.task.base == newest
    assert harness.stores.queue.claim("w1", FREE) is not None


async def test_a_renamed_repositorys_waiting_job_continues(harness: EventHarness) -> None:
    pull = harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    harness.world.turn(pull, harness.owner, "closed")
    harness.repo.rename("renamed")
    assert await harness.trigger_loops.release_waiting_jobs() == 1


async def test_waiting_jobs_continue_in_turn_without_a_webhook(harness: EventHarness) -> None:
    pull = harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    await harness.labels(another_issue(harness))
    first, second = harness.jobs()
    places = [harness.stores.queue.place(each.job.id) for each in (first, second)]
    assert [(place.place, place.of, place.waiting_for) for place in places if place] == [
        (1, 2, "pull_requests"),
        (2, 2, "pull_requests"),
    ]
    assert await harness.trigger_loops.release_waiting_jobs() == 0
    harness.world.turn(pull, harness.owner, "closed")
    assert await harness.trigger_loops.release_waiting_jobs() == 0, "it was looked at just now"
    harness.world.tick(EVERY.total_seconds())
    assert await harness.trigger_loops.release_waiting_jobs() == 1
    assert waits(harness) == ["", "pull_requests"]
    harness.world.tick(EVERY.total_seconds())
    assert await harness.trigger_loops.release_waiting_jobs() == 0, "the first one is in progress"
    harness.ends("no_change", first)
    harness.world.tick(EVERY.total_seconds())
    assert await harness.trigger_loops.release_waiting_jobs() == 1, "and ended without a pull request"


async def test_a_job_in_progress_counts_and_so_does_one_that_waits(harness: EventHarness) -> None:
    await harness.labels()
    assert waits(harness) == [""]
    await harness.labels(another_issue(harness))
    assert waits(harness) == ["", "pull_requests"]


async def test_a_job_that_opens_no_pull_request_does_not_wait_for_the_limit(harness: EventHarness) -> None:
    pull = harness.our_pull("agent-fix/issue-77-rates")
    await harness.says("/agent ask why?")
    await harness.says("/agent fix the name", pull)
    assert waits(harness) == ["", ""]


async def test_a_higher_limit_is_enough_and_a_stop_ends_the_wait(harness: EventHarness) -> None:
    harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    other = another_issue(harness)
    await harness.labels(other)
    await harness.says("/agent stop", other)
    assert [each.row.state for each in harness.jobs()] == ["queued", "stopped"]
    harness.configure("max_open_pull_requests: 2\n")
    assert await harness.trigger_loops.release_waiting_jobs() == 1


async def test_a_configuration_that_became_invalid_keeps_no_job_waiting(harness: EventHarness) -> None:
    pull = harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    harness.configure("max_open_pull_requests: [")
    await closes(harness, pull)
    assert await harness.trigger_loops.release_waiting_jobs() == 1


async def test_the_comment_shows_the_place(harness: EventHarness) -> None:
    harness.our_pull("agent-fix/issue-77-rates")
    await harness.labels()
    await harness.labels(another_issue(harness))
    ledger_tables.create_all(harness.engine)
    stores = harness.stores

    def ledger(job: str) -> SqlLedger:
        return SqlLedger(harness.engine, job, 0)

    await StatusUpdater(stores.job_store(), stores.job_queries, stores.outbox, ledger, stores.clock).post_due()
    bodies = [effect.body for _, effect in harness.effects() if isinstance(effect, UpdateStatusComment)]
    for number in (1, 2):
        assert any(f"(number {number} of 2 in the queue)" in body for body in bodies)


async def test_a_workflow_cannot_wait(tmp_path: Path) -> None:
    async with event_harness(tmp_path, defaults=ServerDefaults(model="scripted/one", can_wait=False)) as harness:
        harness.configure("max_open_pull_requests: 1\n")
        harness.our_pull("agent-fix/issue-77-rates")
        await harness.labels()
        assert harness.jobs() == []
        assert "which is the limit for this repository" in harness.answer
