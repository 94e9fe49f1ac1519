"""Failing checks on our own pull requests are mended: once for a commit, with their logs, as often as is wanted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.publish.intent import Label
from tests.fakes.github.gate import APP_ID
from tests.fakes.github.world import Check, Issue
from tests.front_desk import FrontDesk, front_desk

LOG = "collecting\nE   AssertionError: 2 != 3\n"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        await made.says("/agent ask are you there?")
        made.ends("answered")
        yield made


def new_jobs(desk: FrontDesk) -> list[str]:
    return [job.commission.aim for job in desk.jobs() if job.commission.aim != "ask"]


async def fails(desk: FrontDesk, pull: Issue, kind: str = "check_run", name: str = "tests") -> Check:
    assert pull.pull is not None
    head = desk.repo.branches[pull.pull.head]
    check = desk.world.add_check(desk.repo, head, name, "failure", log=LOG)
    await desk.hooks.check_ended(desk.repo, desk.ground.installation, check, kind)
    await desk.settle()
    return check


@pytest.mark.parametrize("kind", ["check_run", "check_suite", "workflow_run"])
async def test_failing_checks_of_ours_begin_a_job_with_their_logs(desk: FrontDesk, kind: str) -> None:
    pull = desk.our_pull()
    check = await fails(desk, pull, kind)
    (job,) = [each for each in desk.jobs() if each.commission.aim == "mend"]
    head = desk.repo.branches["agent-fix/issue-1-totals"]
    assert (job.commission.login, job.commission.goal, job.commission.expected) == ("", "same_branch", head)
    assert job.commission.trigger == f"{kind}:{check.id}"
    assert (job.job.branch, job.job.task.base) == ("agent-fix/issue-1-totals", head)
    assert job.job.task.issue.title == "Round better"
    assert "Checks fail on this pull request: tests." in job.job.task.request
    (failing,) = [section for section in job.job.task.sections if section.title == "Failing checks"]
    assert "AssertionError: 2 != 3" in failing.text
    assert job.job.task.requester is None


async def test_all_that_fail_on_one_commit_are_one_job(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    for name in ("tests", "lint"):
        for kind in ("check_run", "check_suite"):
            await fails(desk, pull, kind, name)
    assert new_jobs(desk) == ["mend"]
    for job in desk.living():
        desk.books.queue.end(job.job.id, "no_change", "")
    await fails(desk, pull, "check_suite", "types")
    assert new_jobs(desk) == ["mend"], "one attempt for one commit"


async def test_the_next_commit_is_another_round_until_people_are_called(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    for number in range(4):
        desk.world.push_as_human(desk.repo, "agent-fix/issue-1-totals", {"app/money.py": f"half = 0.{number}\n"})
        await fails(desk, pull)
        for job in desk.living():
            desk.books.queue.end(job.job.id, "pr_updated", "")
    assert new_jobs(desk) == ["mend"] * 3
    assert "still fail after 3 rounds" in desk.answer
    assert [wish.add for _, wish in desk.wishes() if isinstance(wish, Label)] == [("agent-needs-human",)]


async def test_while_others_are_still_going_it_waits(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    assert pull.pull is not None
    going = desk.world.add_check(desk.repo, desk.repo.branches[pull.pull.head], "slow", "")
    going.status, going.conclusion = "in_progress", None
    await fails(desk, pull)
    assert new_jobs(desk) == []
    going.conclusion = "success"
    await fails(desk, pull, "check_suite", "suite")
    assert new_jobs(desk) == ["mend"]


@pytest.mark.parametrize("why", ["somebody's", "fork", "off", "closed", "ours", "older", "at work", "broken"])
async def test_what_is_not_ours_to_mend_is_left(desk: FrontDesk, why: str) -> None:
    pull = desk.open_pull() if why == "somebody's" else desk.our_pull()
    assert pull.pull is not None
    match why:
        case "fork":
            pull.pull.fork = 999
        case "off":
            desk.configure("iterate: {ci: false}\n")
        case "closed":
            pull.state = "closed"
        case "broken":
            desk.configure("iterate: [ci]\n")
        case "at work":
            await desk.says("/agent fix it", pull)
    head = desk.repo.branches[pull.pull.head]
    check = desk.world.add_check(desk.repo, head, "tests", "failure", log=LOG)
    if why == "ours":
        check.app_id = APP_ID
    desk.hooks.held = True
    await desk.hooks.check_ended(desk.repo, desk.ground.installation, check)
    if why == "older":
        desk.world.push_as_human(desk.repo, pull.pull.head, {"app/money.py": "half = 0.9\n"})
    await desk.deliver()
    assert "mend" not in new_jobs(desk)
    assert desk.answers() == []


async def test_where_we_never_worked_failing_checks_cost_one_request(tmp_path: Path) -> None:
    async with front_desk(tmp_path) as desk:
        await desk.says("/agent status")
        before = len(desk.ground.github.calls)
        await fails(desk, desk.open_pull())
        assert [call.path for call in desk.ground.github.calls[before:]] == ["/repos/ada/sample"]


async def test_lost_webhooks_of_checks_are_found(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    assert pull.pull is not None
    check = desk.world.add_check(desk.repo, desk.repo.branches[pull.pull.head], "tests", "failure", log=LOG)
    await desk.reception.reconcile()
    assert new_jobs(desk) == ["mend"]
    await desk.hooks.check_ended(desk.repo, desk.ground.installation, check)
    await desk.settle()
    await desk.reception.reconcile()
    assert new_jobs(desk) == ["mend"]
