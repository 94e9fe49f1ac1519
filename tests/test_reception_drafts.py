"""What is said at a draft that was opened early reaches the job that opened it, which belongs to an issue."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.publish.intent import OpenEarlyDraft, Receipt
from tests.fakes.github.world import Issue
from tests.front_desk import FrontDesk, front_desk

EARLY = "pull_request: early\n"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def draft(desk: FrontDesk, branch: str = "") -> Issue:
    """A job of the issue, at work, and the draft that it opened."""
    desk.configure(EARLY)
    await desk.labels()
    job = desk.job
    desk.put("working")
    wish = OpenEarlyDraft(branch=job.job.branch, base="main", title="x", body="x")
    desk.books.intents.want(job.job.id, job.row.epoch, job.commission.place, wish)
    while claim := desk.books.intents.claim("publisher"):
        desk.books.intents.done(claim, Receipt(url="…", branch=branch or job.job.branch))
    return desk.our_pull(branch or job.job.branch)


async def test_words_go_to_the_job_that_opened_it(desk: FrontDesk) -> None:
    pull = await draft(desk)
    await desk.says("/agent mind the tests", pull)
    await desk.says_inline("/agent rename this", pull)
    await desk.reviews("Not this way.", pull)
    await desk.labels(pull)
    assert len(desk.jobs()) == 1
    assert [each.text for each in desk.said()] == [
        "mind the tests",
        "(about app/money.py:1)\nrename this",
        "Not this way.",
    ]


async def test_it_is_found_by_the_name_that_it_got(desk: FrontDesk) -> None:
    pull = await draft(desk, "agent-fix/issue-1-2")
    await desk.says("/agent mind the tests", pull)
    assert [each.text for each in desk.said()] == ["mind the tests"]
    await desk.says("/agent fix it", desk.our_pull("agent-fix/issue-9"))
    assert len(desk.jobs()) == 2, "another pull request of ours has nothing to do with it"


async def test_it_is_stopped_from_there(desk: FrontDesk) -> None:
    await desk.says("/agent stop", await draft(desk))
    assert desk.job.row.state == "stopped"


async def test_to_close_it_is_to_call_the_work_off(desk: FrontDesk) -> None:
    pull = await draft(desk)
    pull.state = "closed"
    desk.world.tick()
    await desk.hooks.turned(desk.repo, desk.ground.installation, desk.owner, pull, "closed")
    await desk.settle()
    assert (desk.job.row.state, desk.job.row.reason) == ("stopped", "The pull request was closed.")


@pytest.mark.parametrize("verb", ["retry", "rebase", "ci", "plan"])
async def test_nothing_else_is_begun_there_meanwhile(desk: FrontDesk, verb: str) -> None:
    pull = await draft(desk)
    await desk.says(f"/agent {verb}", pull)
    assert [job.row.state for job in desk.jobs()] == ["working"]
    assert desk.answer.startswith("Nothing was started: ")


async def test_failing_checks_there_are_not_mended_meanwhile(desk: FrontDesk) -> None:
    pull = await draft(desk)
    assert pull.pull is not None
    check = desk.world.add_check(desk.repo, desk.repo.branches[pull.pull.head], "lint", "failure")
    await desk.hooks.check_ended(desk.repo, desk.ground.installation, check)
    await desk.settle()
    assert len(desk.jobs()) == 1


async def test_once_the_job_has_ended_it_is_a_pull_request_like_any_other(desk: FrontDesk) -> None:
    pull = await draft(desk)
    desk.ends("pr_opened")
    await desk.says("/agent fix it", pull)
    assert [job.commission.aim for job in desk.jobs()] == ["fix", "follow_up"]


async def test_a_persons_pull_request_of_that_branch_is_theirs(desk: FrontDesk) -> None:
    await draft(desk)
    theirs = desk.open_pull(branch=desk.job.job.branch)
    await desk.says("/agent fix it", theirs)
    assert len(desk.jobs()) == 2
