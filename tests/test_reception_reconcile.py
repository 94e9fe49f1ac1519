"""Webhooks that never came: what was lost is found in what GitHub says now, once, and by the same rules (R6, R7)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.jobs.looks import OURSELVES
from app.reception.reconcile import pause_between
from tests.fakes.github.faults import Fault
from tests.fakes.github.world import User
from tests.front_desk import FrontDesk, front_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def looked(desk: FrontDesk, minutes: float = 5) -> None:
    """Some minutes pass, and GitHub is asked; nothing comes by webhook."""
    desk.world.tick(minutes * 60)
    await desk.reception.reconcile()


async def begun(desk: FrontDesk) -> None:
    """A first look, as at the start of a server: from then on words count that were said since."""
    await desk.reception.reconcile()
    desk.world.tick()


def label(desk: FrontDesk, by: User | None = None) -> None:
    desk.world.label(desk.issue, by or desk.owner, "agent-fix")


async def test_a_label_is_found(desk: FrontDesk) -> None:
    label(desk)
    await looked(desk)
    assert (desk.job.commission.aim, desk.job.commission.trigger, desk.job.commission.login) == ("fix", "issue", "ada")
    assert desk.reactions() == [("issue", desk.issue.number, "eyes")]
    await looked(desk)
    assert len(desk.jobs()) == 1


async def test_without_webhooks_github_is_asked_every_minute(desk: FrontDesk) -> None:
    """Until one arrives."""
    desk.world.webhooks = False
    await desk.reception.reconcile_when_due()
    label(desk)
    for seconds, jobs in ((59, 0), (1, 1), (59, 1)):
        desk.world.tick(seconds)
        await desk.reception.reconcile_when_due()
        assert len(desk.jobs()) == jobs
    desk.world.webhooks = True
    await desk.says("good morning")
    desk.world.label(desk.world.open_issue(desk.repo, desk.owner, "Another"), desk.owner, "agent-fix")
    for seconds, jobs in ((200, 1), (60, 2)):
        desk.world.tick(seconds)
        await desk.reception.reconcile_when_due()
        assert len(desk.jobs()) == jobs


def test_many_repositories_are_asked_about_less_often() -> None:
    """So that an hour never takes much more than half of the requests that GitHub allows."""
    pauses = [pause_between(webhooks=False, repositories=count).total_seconds() for count in (0, 12, 13, 60)]
    assert pauses == [60, 60, 65, 300]
    assert pause_between(webhooks=True, repositories=1).total_seconds() == 300


async def test_a_label_counts_by_who_put_it_on(desk: FrontDesk) -> None:
    label(desk, desk.person("stranger", "triage"))
    await looked(desk)
    assert desk.jobs() == []


async def test_a_label_on_a_pull_request_is_found(desk: FrontDesk) -> None:
    desk.world.label(desk.open_pull(), desk.owner, "agent-fix")
    await looked(desk)
    assert desk.job.commission.aim == "follow_up"


async def test_words_are_found_wherever_they_were_said(desk: FrontDesk) -> None:
    pulls = [desk.open_pull(branch=f"topic-{number}") for number in range(3)]
    await begun(desk)
    desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent fix the issue")
    desk.world.comment(desk.repo, pulls[0], desk.owner, "/agent fix the pull request")
    desk.world.start_thread(desk.repo, pulls[1], desk.owner, path="app/money.py", line=1, body="/agent fix the line")
    desk.world.tick()
    desk.world.review(pulls[2], desk.owner, "/agent fix the review")
    await looked(desk)
    requests = sorted(job.job.task.request for job in desk.jobs())
    assert requests == ["the issue", "the line", "the pull request", "the review"]
    triggers = sorted(job.commission.trigger.partition(":")[0] for job in desk.jobs())
    assert triggers == ["comment", "comment", "review", "review_comment"]
    await looked(desk)
    assert len(desk.jobs()) == 4


async def test_reviews_that_ask_for_changes_are_found(desk: FrontDesk) -> None:
    """On our own pull request, by a person; and once."""
    ours, theirs, approved = desk.our_pull(), desk.open_pull(), desk.our_pull("agent-fix/issue-2")
    await begun(desk)
    desk.world.review(ours, desk.owner, "Not this way.")
    desk.world.review(theirs, desk.owner, "Not this way.")
    desk.world.review(approved, desk.owner, "Well done.", "APPROVED")
    desk.world.review(approved, desk.person("critic[bot]", kind="Bot"), "Not this way.")
    await looked(desk)
    assert (desk.job.commission.aim, desk.job.commission.place.number) == ("revise", ours.number)
    await looked(desk)
    assert len(desk.jobs()) == 1


async def test_conflicts_of_our_own_are_found(desk: FrontDesk) -> None:
    await desk.labels()
    desk.ends("pr_opened")
    ours, theirs = desk.our_pull(), desk.open_pull()
    desk.world.push_as_human(desk.repo, "main", {"app/money.py": "half = 0.7\n"})
    for pull in (ours, theirs):
        assert pull.pull is not None
        pull.pull.mergeable = False
    await begun(desk)
    await looked(desk)
    (found,) = (job for job in desk.jobs() if job.commission.aim == "conflicts")
    assert found.commission.place.number == ours.number
    desk.ends("error", found)
    await looked(desk)
    assert len(desk.jobs()) == 2, "once for each pair of commits"


async def test_words_from_before_the_first_look_are_history(desk: FrontDesk) -> None:
    desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent fix it")
    desk.world.tick(3_600)
    await looked(desk)
    await looked(desk)
    assert desk.jobs() == []


async def test_what_was_edited_is_not_acted_on(desk: FrontDesk) -> None:
    await begun(desk)
    comment = desk.world.comment(desk.repo, desk.issue, desk.owner, "good morning")
    desk.world.tick(5)
    desk.world.edit(comment, "/agent fix it")
    await looked(desk)
    assert desk.jobs() == []


async def test_what_a_webhook_told_is_not_done_again(desk: FrontDesk) -> None:
    await begun(desk)
    await desk.labels()
    await desk.says("/agent mind the tests")
    await desk.says("/agent status")
    before = (len(desk.jobs()), len(desk.said()), len(desk.wishes()), len(desk.decided()))
    await looked(desk, 1)
    assert (len(desk.jobs()), len(desk.said()), len(desk.wishes()), len(desk.decided())) == before


async def test_what_was_found_is_not_done_again_by_a_late_webhook(desk: FrontDesk) -> None:
    await begun(desk)
    desk.hooks.held = True
    await desk.labels()
    await desk.says("/agent mind the tests")
    await looked(desk)
    assert (len(desk.jobs()), len(desk.said())) == (1, 1)
    await desk.deliver()
    assert (len(desk.jobs()), len(desk.said())) == (1, 1)


async def test_an_hour_without_webhooks_is_made_up_for_within_five_minutes(desk: FrontDesk) -> None:
    """R6: everything is dropped; the next look finds who asked for what, and what is not wished any more."""
    await begun(desk)
    await desk.labels(desk.world.open_issue(desk.repo, desk.owner, "Another"))
    issues = [desk.world.open_issue(desk.repo, desk.owner, f"Issue {number}") for number in range(4)]
    other = desk.living()[0].commission.place.number
    with desk.hooks.down():
        desk.world.label(issues[0], desk.owner, "agent-fix")
        desk.world.tick(600)
        desk.world.comment(desk.repo, issues[1], desk.owner, "/agent fix it")
        desk.world.tick(600)
        desk.world.label(issues[2], desk.owner, "agent-fix")
        desk.world.label(issues[2], desk.owner, "agent-fix", off=True)
        desk.world.comment(desk.repo, issues[3], desk.owner, "/agent fix it")
        desk.world.tick(600)
        desk.world.comment(desk.repo, issues[3], desk.owner, "/agent stop")
        desk.world.turn(desk.repo.issues[other], desk.owner, "closed")
        desk.world.tick(600)
    await looked(desk)
    living = sorted(job.commission.place.number for job in desk.living())
    assert living == [issues[0].number, issues[1].number]


@pytest.mark.parametrize("what", ["closed", "unlabelled", "in progress", "deleted", "by ourselves", "nothing"])
async def test_work_that_was_called_off_is_stopped(desk: FrontDesk, what: str) -> None:
    await desk.labels()
    desk.world.tick()
    match what:
        case "closed":
            desk.world.turn(desk.issue, desk.owner, "closed")
        case "unlabelled":
            desk.world.label(desk.issue, desk.owner, "agent-fix", off=True)
        case "in progress":
            desk.world.label(desk.issue, desk.world.bot, "agent-in-progress")
            desk.world.label(desk.issue, desk.owner, "agent-in-progress", off=True)
        case "deleted":
            del desk.repo.issues[desk.issue.number]
        case "by ourselves":
            desk.world.label(desk.issue, desk.world.bot, "agent-fix", off=True)
    await looked(desk)
    assert desk.job.row.state == ("queued" if what in {"by ourselves", "nothing"} else "stopped")


async def test_a_label_taken_off_before_the_job_began_is_history(desk: FrontDesk) -> None:
    desk.world.label(desk.issue, desk.owner, "agent-fix")
    desk.world.tick()
    desk.world.label(desk.issue, desk.owner, "agent-fix", off=True)
    desk.world.tick()
    await desk.says("/agent fix it")
    await looked(desk)
    assert desk.job.row.state == "queued"


@pytest.mark.parametrize("gone", ["suspended", "deleted", "removed"])
async def test_a_door_that_closed_unheard_ends_the_jobs_behind_it(desk: FrontDesk, gone: str) -> None:
    await desk.labels()
    installation = desk.ground.installation
    match gone:
        case "suspended":
            installation.suspended = True
        case "deleted":
            del desk.world.installations[installation.id]
        case _:
            installation.repositories.clear()
    await looked(desk)
    assert desk.job.row.state == "no_access"


async def test_two_hundred_webhooks_that_failed_are_sent_again(desk: FrontDesk) -> None:
    """R7: the receiver was down for ten minutes; GitHub never tries a second time by itself."""
    await begun(desk)
    people = [desk.person(f"u{number}") for number in range(10)]
    with desk.hooks.down():
        await desk.labels()
        for number in range(199):
            await desk.says(f"/agent mind {number}", by=people[number % 10])
    assert desk.jobs() == []
    desk.world.tick(60)
    began = desk.world.now
    await desk.reception.reconcile()
    assert await desk.hooks.attempt_asked() == 200
    await desk.settle()
    assert (desk.world.now - began).total_seconds() <= 300
    assert len(desk.jobs()) == 1
    texts = {said.text for said in desk.said()} | {desk.job.job.task.request}
    assert {f"mind {number}" for number in range(199)} <= texts


async def test_what_never_arrives_is_asked_for_a_few_times_only(desk: FrontDesk) -> None:
    await begun(desk)
    with desk.hooks.down():
        await desk.hooks.send("ping", "x", desk.repo, desk.ground.installation, desk.owner)
        for _ in range(12):
            await looked(desk)
            await desk.hooks.attempt_asked()
    assert len(desk.world.deliveries) == 1 + 5


async def test_a_repository_that_cannot_be_looked_at_is_looked_at_the_next_time(desk: FrontDesk) -> None:
    await begun(desk)
    desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent fix it")
    down = Fault("GET /repos/ada/sample/issues/comments", 502, times=100)
    desk.ground.github.faults.append(down)
    await looked(desk)
    assert desk.jobs() == []
    down.times = 0
    await looked(desk)
    assert len(desk.jobs()) == 1


async def test_silence_that_github_wants_ends_the_round(desk: FrontDesk) -> None:
    second = desk.world.add_repo(desk.owner, "other", {"a.txt": "a\n"})
    desk.ground.installation.repositories.add(second.id)
    await begun(desk)
    desk.ground.github.faults.append(Fault("GET /repos/ada/.*/issues", 403, "{}", {"retry-after": "600"}))
    before = len(desk.ground.github.calls)
    await looked(desk)
    asked = [call.path for call in desk.ground.github.calls[before:] if call.path.startswith("/repos/")]
    assert len([path for path in asked if path.endswith("/issues")]) == 1


async def test_a_quiet_repository_costs_four_requests(desk: FrontDesk) -> None:
    for number in range(30):
        desk.world.comment(desk.repo, desk.issue, desk.owner, f"comment {number}")
    await begun(desk)
    await looked(desk)
    before = len(desk.ground.github.calls)
    await looked(desk, 2)
    asked = [call.path for call in desk.ground.github.calls[before:] if call.path.startswith("/repos/")]
    assert asked == [
        "/repos/ada/sample/issues",
        "/repos/ada/sample/issues/comments",
        "/repos/ada/sample/pulls/comments",
        "/repos/ada/sample/pulls",
    ]


async def test_a_new_installation_is_looked_into_at_once(desk: FrontDesk) -> None:
    label(desk)
    await desk.hooks.installation_changed(desk.ground.installation, "created", desk.owner)
    await desk.settle()
    assert len(desk.jobs()) == 1


async def test_how_far_it_was_looked_is_kept(desk: FrontDesk) -> None:
    await begun(desk)
    looks = desk.books.looks.of([desk.repo.id, OURSELVES, 99])
    assert set(looks) == {desk.repo.id, OURSELVES}
