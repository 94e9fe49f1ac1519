"""Failing checks on our own pull requests are fixed: once per commit, with their logs, as often as is configured."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.publish.effects import ChangeLabels
from tests.support.event_harness import EventHarness, event_harness
from tests.support.github.authentication import APP_ID
from tests.support.github.world import Check, Issue

LOG = "collecting\nE   AssertionError: 2 != 3\n"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path) as made:
        await made.says("/agent ask are you there?")
        made.ends("answered")
        yield made


def new_jobs(harness: EventHarness) -> list[str]:
    return [job.job_context.aim for job in harness.jobs() if job.job_context.aim != "ask"]


async def fails(harness: EventHarness, pull: Issue, kind: str = "check_run", name: str = "tests") -> Check:
    assert pull.pull is not None
    head = harness.repo.branches[pull.pull.head]
    check = harness.world.add_check(harness.repo, head, name, "failure", log=LOG)
    await harness.hooks.check_ended(harness.repo, harness.fake_github.installation, check, kind)
    await harness.wait_until_handled()
    return check


@pytest.mark.parametrize("kind", ["check_run", "check_suite", "workflow_run"])
async def test_failing_checks_of_ours_begin_a_job_with_their_logs(harness: EventHarness, kind: str) -> None:
    pull = harness.our_pull()
    check = await fails(harness, pull, kind)
    (job,) = [each for each in harness.jobs() if each.job_context.aim == "fix_checks"]
    head = harness.repo.branches["agent-fix/issue-1-totals"]
    assert (job.job_context.login, job.job_context.publish_target, job.job_context.expected) == (
        "",
        "same_branch",
        head,
    )
    assert job.job_context.trigger == f"{kind}:{check.id}"
    assert (job.job.branch, job.job.task.base) == ("agent-fix/issue-1-totals", head)
    assert job.job.task.issue.title == "Round better"
    assert "Checks fail on this pull request: tests." in job.job.task.request
    (failing,) = [section for section in job.job.task.sections if section.title == "Failing checks"]
    assert "AssertionError: 2 != 3" in failing.text
    assert job.job.task.requester is None


async def test_retry_fixes_the_checks_again(harness: EventHarness) -> None:
    pull = harness.our_pull()
    await fails(harness, pull)
    harness.ends("error", harness.active_jobs()[0])
    await harness.says("/agent retry but keep the API", pull)
    (job,) = harness.active_jobs()
    assert (job.job_context.aim, job.job_context.login) == ("fix_checks", "ada")
    assert job.job.task.request == "Checks fail on this pull request: tests. Fix the cause.\n\nbut keep the API"


async def test_retry_starts_nothing_if_no_check_fails_any_more(harness: EventHarness) -> None:
    pull = harness.our_pull()
    check = await fails(harness, pull)
    harness.ends("error", harness.active_jobs()[0])
    check.conclusion = "success"
    await harness.says("/agent retry", pull)
    assert harness.active_jobs() == []
    assert "no check fails on this pull request any more." in harness.answer


async def test_all_that_fail_on_one_commit_are_one_job(harness: EventHarness) -> None:
    pull = harness.our_pull()
    for name in ("tests", "lint"):
        for kind in ("check_run", "check_suite"):
            await fails(harness, pull, kind, name)
    assert new_jobs(harness) == ["fix_checks"]
    for job in harness.active_jobs():
        harness.stores.queue.end(job.job.id, "no_change", "")
    await fails(harness, pull, "check_suite", "types")
    assert new_jobs(harness) == ["fix_checks"], "one attempt for one commit"


async def test_the_next_commit_is_another_round_until_people_are_called(harness: EventHarness) -> None:
    pull = harness.our_pull()
    for number in range(4):
        harness.world.push_as_human(harness.repo, "agent-fix/issue-1-totals", {"app/money.py": f"half = 0.{number}\n"})
        await fails(harness, pull)
        for job in harness.active_jobs():
            harness.stores.queue.end(job.job.id, "pr_updated", "")
    assert new_jobs(harness) == ["fix_checks"] * 3
    assert "still fail after 3 rounds" in harness.answer
    assert [effect.add for _, effect in harness.effects() if isinstance(effect, ChangeLabels)] == [
        ("agent-needs-human",)
    ]


async def test_a_pull_request_waits_while_checks_still_run(harness: EventHarness) -> None:
    pull = harness.our_pull()
    assert pull.pull is not None
    going = harness.world.add_check(harness.repo, harness.repo.branches[pull.pull.head], "slow", "")
    going.status, going.conclusion = "in_progress", None
    await fails(harness, pull)
    assert new_jobs(harness) == []
    going.conclusion = "success"
    await fails(harness, pull, "check_suite", "suite")
    assert new_jobs(harness) == ["fix_checks"]


@pytest.mark.parametrize("why", ["somebody's", "fork", "off", "closed", "ours", "older", "at work", "broken"])
async def test_failing_checks_of_other_pull_requests_are_ignored(harness: EventHarness, why: str) -> None:
    pull = harness.open_pull() if why == "somebody's" else harness.our_pull()
    assert pull.pull is not None
    match why:
        case "fork":
            pull.pull.fork = 999
        case "off":
            harness.configure("iterate: {ci: false}\n")
        case "closed":
            pull.state = "closed"
        case "broken":
            harness.configure("iterate: [ci]\n")
        case "at work":
            await harness.says("/agent fix it", pull)
    head = harness.repo.branches[pull.pull.head]
    check = harness.world.add_check(harness.repo, head, "tests", "failure", log=LOG)
    if why == "ours":
        check.app_id = APP_ID
    harness.hooks.held = True
    await harness.hooks.check_ended(harness.repo, harness.fake_github.installation, check)
    if why == "older":
        harness.world.push_as_human(harness.repo, pull.pull.head, {"app/money.py": "half = 0.9\n"})
    await harness.deliver()
    assert "fix_checks" not in new_jobs(harness)
    assert harness.answers() == []


async def test_failing_checks_of_other_branches_cost_one_request(tmp_path: Path) -> None:
    async with event_harness(tmp_path) as harness:
        await harness.says("/agent status")
        before = len(harness.fake_github.github.calls)
        await fails(harness, harness.open_pull())
        assert [call.path for call in harness.fake_github.github.calls[before:]] == ["/repos/ada/sample"]


@pytest.mark.parametrize("state", ["failure", "error"])
async def test_a_commit_status_that_fails_is_found_by_looking(harness: EventHarness, state: str) -> None:
    """Jenkins and others set statuses, of which no webhook tells us."""
    pull = harness.our_pull()
    assert pull.pull is not None
    head = harness.repo.branches[pull.pull.head]
    harness.repo.statuses += [(head, "jenkins/build", state), (head, "license/cla", "pending")]
    await harness.poller.poll_all()
    (job,) = [each for each in harness.jobs() if each.job_context.aim == "fix_checks"]
    assert "Checks fail on this pull request: jenkins/build." in job.job.task.request
    await harness.poller.poll_all()
    assert new_jobs(harness) == ["fix_checks"]


async def test_lost_webhooks_of_checks_are_found(harness: EventHarness) -> None:
    pull = harness.our_pull()
    assert pull.pull is not None
    check = harness.world.add_check(harness.repo, harness.repo.branches[pull.pull.head], "tests", "failure", log=LOG)
    await harness.poller.poll_all()
    assert new_jobs(harness) == ["fix_checks"]
    await harness.hooks.check_ended(harness.repo, harness.fake_github.installation, check)
    await harness.wait_until_handled()
    await harness.poller.poll_all()
    assert new_jobs(harness) == ["fix_checks"]
