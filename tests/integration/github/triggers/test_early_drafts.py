"""Comments on a draft that was opened early reach the job that opened it, which belongs to an issue."""

import pytest

from app.publish.effects import OpenEarlyDraft, Receipt
from tests.support.event_harness import EventHarness
from tests.support.github.world import Issue

EARLY = "pull_request: early\n"


async def draft(harness: EventHarness, branch: str = "") -> Issue:
    """A job of the issue, at work, and the draft that it opened."""
    harness.configure(EARLY)
    await harness.labels()
    job = harness.job
    harness.put("working")
    effect = OpenEarlyDraft(branch=job.job.branch, base="main", title="x", body="x")
    harness.stores.outbox.add(job.job.id, job.row.epoch, job.job_context.issue_ref, effect)
    while claim := harness.stores.outbox.claim("publisher"):
        harness.stores.outbox.done(claim, Receipt(url="…", branch=branch or job.job.branch))
    return harness.our_pull(branch or job.job.branch)


async def test_messages_reach_the_job_that_opened_the_pull_request(harness: EventHarness) -> None:
    pull = await draft(harness)
    await harness.says("/agent mind the tests", pull)
    await harness.says_inline("/agent rename this", pull)
    await harness.reviews("Not this way.", pull)
    await harness.labels(pull)
    assert len(harness.jobs()) == 1
    assert [each.text for each in harness.said()] == [
        "mind the tests",
        "(about app/money.py:1)\nrename this",
        "Not this way.",
    ]


async def test_a_draft_is_found_by_its_actual_branch(harness: EventHarness) -> None:
    pull = await draft(harness, "agent-fix/issue-1-2")
    await harness.says("/agent mind the tests", pull)
    assert [each.text for each in harness.said()] == ["mind the tests"]
    await harness.says("/agent fix it", harness.our_pull("agent-fix/issue-9"))
    assert len(harness.jobs()) == 2, "another pull request of ours has nothing to do with it"


async def test_a_job_is_stopped_from_its_draft(harness: EventHarness) -> None:
    await harness.says("/agent stop", await draft(harness))
    assert harness.job.row.state == "stopped"


async def test_closing_the_issue_stops_the_job(harness: EventHarness) -> None:
    pull = await draft(harness)
    pull.state = "closed"
    harness.world.tick()
    await harness.hooks.turned(harness.repo, harness.fake_github.installation, harness.owner, pull, "closed")
    await harness.wait_until_handled()
    assert (harness.job.row.state, harness.job.row.reason) == ("stopped", "The pull request was closed.")


@pytest.mark.parametrize("verb", ["retry", "rebase", "ci", "plan"])
async def test_nothing_else_is_begun_there_meanwhile(harness: EventHarness, verb: str) -> None:
    pull = await draft(harness)
    await harness.says(f"/agent {verb}", pull)
    assert [job.row.state for job in harness.jobs()] == ["working"]
    assert harness.answer.startswith("Nothing was started: ")


async def test_failing_checks_on_an_early_draft_start_no_job(harness: EventHarness) -> None:
    pull = await draft(harness)
    assert pull.pull is not None
    check = harness.world.add_check(harness.repo, harness.repo.branches[pull.pull.head], "lint", "failure")
    await harness.hooks.check_ended(harness.repo, harness.fake_github.installation, check)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1


async def test_once_the_job_has_ended_it_is_a_pull_request_like_any_other(harness: EventHarness) -> None:
    pull = await draft(harness)
    harness.ends("pr_opened")
    await harness.says("/agent fix it", pull)
    assert [job.job_context.aim for job in harness.jobs()] == ["fix", "follow_up"]


async def test_a_persons_pull_request_of_that_branch_is_theirs(harness: EventHarness) -> None:
    await draft(harness)
    theirs = harness.open_pull(branch=harness.job.job.branch)
    await harness.says("/agent fix it", theirs)
    assert len(harness.jobs()) == 2
