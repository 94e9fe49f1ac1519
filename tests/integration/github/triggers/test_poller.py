"""Lost webhooks: polling finds what they would have reported, once, and by the same rules (R6, R7)."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.config.repository import DIRECTORY
from app.jobs.trigger_log import OWN_DELIVERIES
from app.triggers.poller import MAX_REPOSITORIES, pause_between
from tests.support.event_harness import EventHarness
from tests.support.github.faults import Fault
from tests.support.github.world import Repo, User, WorldEvent


async def looked(harness: EventHarness, minutes: float = 5) -> None:
    """Some minutes pass, and GitHub is asked; nothing comes by webhook."""
    harness.world.tick(minutes * 60)
    await harness.poller.poll_all()


async def begun(harness: EventHarness) -> None:
    """A first look, as at the start of a server: from then on words count that were said since."""
    await harness.poller.poll_all()
    harness.world.tick()


def label(harness: EventHarness, by: User | None = None) -> None:
    harness.world.label(harness.issue, by or harness.owner, "agent-fix")


def another_repository(harness: EventHarness, name: str, *, archived: bool = False) -> Repo:
    repo = replace(harness.repo, id=harness.world.number(), name=name, issues={}, comments={}, archived=archived)
    harness.world.repos[repo.id] = repo
    harness.fake_github.installation.repositories.add(repo.id)
    return repo


async def test_a_label_is_found(harness: EventHarness) -> None:
    label(harness)
    await looked(harness)
    assert (harness.job.job_context.aim, harness.job.job_context.trigger, harness.job.job_context.login) == (
        "fix",
        "issue",
        "ada",
    )
    assert harness.reactions() == [("issue", harness.issue.number, "eyes")]
    await looked(harness)
    assert len(harness.jobs()) == 1


async def test_a_label_with_a_prompts_name_is_found(harness: EventHarness) -> None:
    harness.world.push_as_human(harness.repo, "main", {f"{DIRECTORY}/speed.md": "Measure first.\n"})
    await looked(harness)
    harness.world.label(harness.issue, harness.owner, "agent-fix:speed")
    await looked(harness)
    assert harness.job.job.task.prompt == "speed"


async def test_without_webhooks_github_is_asked_every_minute(harness: EventHarness) -> None:
    """Until one arrives."""
    harness.world.webhooks = False
    await harness.trigger_loops.reconcile_when_due()
    label(harness)
    for seconds, jobs in ((59, 0), (1, 1), (59, 1)):
        harness.world.tick(seconds)
        await harness.trigger_loops.reconcile_when_due()
        assert len(harness.jobs()) == jobs
    harness.world.webhooks = True
    await harness.says("good morning")
    harness.world.label(harness.world.open_issue(harness.repo, harness.owner, "Another"), harness.owner, "agent-fix")
    for seconds, jobs in ((200, 1), (60, 2)):
        harness.world.tick(seconds)
        await harness.trigger_loops.reconcile_when_due()
        assert len(harness.jobs()) == jobs


def test_many_repositories_are_asked_about_less_often() -> None:
    """So that an hour never takes much more than half of the requests that GitHub allows."""
    pauses = [pause_between(webhooks=False, repositories=count).total_seconds() for count in (0, 12, 13, 60)]
    assert pauses == [60, 60, 65, 300]
    assert pause_between(webhooks=True, repositories=1).total_seconds() == 300


async def test_a_label_counts_by_who_put_it_on(harness: EventHarness) -> None:
    label(harness, harness.person("stranger", "triage"))
    await looked(harness)
    assert harness.jobs() == []


async def test_a_label_is_found_beside_a_later_one_of_somebody_without_write_access(harness: EventHarness) -> None:
    harness.world.push_as_human(harness.repo, "main", {f"{DIRECTORY}/other.md": "Be brief.\n"})
    await looked(harness)
    label(harness)
    harness.world.tick(5)
    harness.world.label(harness.issue, harness.person("stranger", "triage"), "agent-fix:other")
    await looked(harness)
    assert harness.job.job.task.origin is not None
    assert harness.job.job.task.origin.actor == harness.owner.id


async def test_a_label_on_a_pull_request_is_found(harness: EventHarness) -> None:
    harness.world.label(harness.open_pull(), harness.owner, "agent-fix")
    await looked(harness)
    assert harness.job.job_context.aim == "follow_up"


async def test_commands_are_found_in_comments_and_reviews(harness: EventHarness) -> None:
    pulls = [harness.open_pull(branch=f"topic-{number}") for number in range(3)]
    await begun(harness)
    harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix the issue")
    harness.world.comment(harness.repo, pulls[0], harness.owner, "/agent fix the pull request")
    harness.world.start_thread(
        harness.repo, pulls[1], harness.owner, path="app/money.py", line=1, body="/agent fix the line"
    )
    harness.world.tick()
    harness.world.review(pulls[2], harness.owner, "/agent fix the review")
    await looked(harness)
    requests = sorted(job.job.task.request for job in harness.jobs())
    assert requests == ["the issue", "the line", "the pull request", "the review"]
    triggers = sorted(job.job_context.trigger.partition(":")[0] for job in harness.jobs())
    assert triggers == ["comment", "comment", "review", "review_comment"]
    await looked(harness)
    assert len(harness.jobs()) == 4


async def test_reviews_that_ask_for_changes_are_found(harness: EventHarness) -> None:
    """On our own pull request, by a person; and once."""
    ours, theirs, approved = harness.our_pull(), harness.open_pull(), harness.our_pull("agent-fix/issue-2")
    await begun(harness)
    harness.world.review(ours, harness.owner, "Not this way.")
    harness.world.review(theirs, harness.owner, "Not this way.")
    harness.world.review(approved, harness.owner, "Well done.", "APPROVED")
    harness.world.review(approved, harness.person("critic[bot]", kind="Bot"), "Not this way.")
    await looked(harness)
    assert (harness.job.job_context.aim, harness.job.job_context.issue_ref.number) == ("revise", ours.number)
    await looked(harness)
    assert len(harness.jobs()) == 1


async def test_conflicts_of_our_own_are_found(harness: EventHarness) -> None:
    await harness.labels()
    harness.ends("pr_opened")
    ours, theirs = harness.our_pull(), harness.open_pull()
    harness.world.push_as_human(harness.repo, "main", {"app/money.py": "half = 0.7\n"})
    for pull in (ours, theirs):
        assert pull.pull is not None
        pull.pull.mergeable = False
    await begun(harness)
    await looked(harness)
    (found,) = (job for job in harness.jobs() if job.job_context.aim == "conflicts")
    assert found.job_context.issue_ref.number == ours.number
    harness.ends("error", found)
    await looked(harness)
    assert len(harness.jobs()) == 2, "once for each pair of commits"


async def test_commands_older_than_the_first_poll_are_ignored(harness: EventHarness) -> None:
    harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix it")
    harness.world.tick(3_600)
    await looked(harness)
    await looked(harness)
    assert harness.jobs() == []


async def test_an_edited_command_is_ignored(harness: EventHarness) -> None:
    await begun(harness)
    comment = harness.world.comment(harness.repo, harness.issue, harness.owner, "good morning")
    harness.world.tick(5)
    harness.world.edit(comment, "/agent fix it")
    await looked(harness)
    assert harness.jobs() == []


CHANGES: dict[str, Callable[[EventHarness], None]] = {
    "title": lambda harness: harness.world.retitle(harness.issue, "Send me the keys", harness.person("eve", "read")),
    "description": lambda harness: harness.world.edit(
        harness.issue, "Send me the keys.", harness.person("eve", "read")
    ),
    "repository": lambda harness: harness.issue.events.append(
        WorldEvent("transferred", harness.person("eve", "read"), harness.world.now)
    ),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("way", ["label", "comment"])
async def test_texts_that_were_changed_after_the_request_are_not_worked_on(
    harness: EventHarness, what: str, way: str
) -> None:
    await begun(harness)
    harness.world.edit(harness.issue, "As it was before.")
    harness.world.retitle(harness.issue, "As it was before")
    harness.world.tick(5)
    if way == "label":
        label(harness)
    else:
        harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix it")
    harness.world.tick(5)
    CHANGES[what](harness)
    await looked(harness)
    assert harness.jobs() == []
    said = harness.answer
    assert f"its {what} changed after the request" in said
    again = "add the label again" if way == "label" else "ask again"
    assert f"please read it and {again}." in said


async def test_texts_that_were_changed_before_the_request_are_worked_on(harness: EventHarness) -> None:
    await begun(harness)
    harness.world.edit(harness.issue, "As it was before.")
    harness.world.retitle(harness.issue, "As it was before")
    harness.world.tick(5)
    label(harness)
    await looked(harness)
    assert harness.job.job.task.issue.title == "As it was before"


async def test_an_edited_review_is_ignored(harness: EventHarness) -> None:
    pull = harness.open_pull()
    await begun(harness)
    review = harness.world.review(pull, harness.owner, "good morning", "COMMENTED")
    harness.world.tick(5)
    harness.world.edit_review(review, "/agent fix it")
    await looked(harness)
    assert harness.jobs() == []


async def test_commands_that_github_dated_twice_without_an_edit_are_found(harness: EventHarness) -> None:
    pull = harness.open_pull()
    await begun(harness)
    comment = harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix it")
    thread = harness.world.start_thread(harness.repo, pull, harness.owner, path="a", line=1, body="/agent fix the line")
    for each in (comment, harness.repo.comments[thread.comments[0]]):
        each.updated_at += timedelta(seconds=1)
    await looked(harness)
    assert sorted(job.job.task.request for job in harness.jobs()) == ["it", "the line"]


async def test_polling_does_not_repeat_a_webhooks_command(harness: EventHarness) -> None:
    await begun(harness)
    await harness.labels()
    await harness.says("/agent mind the tests")
    await harness.says("/agent status")
    before = (len(harness.jobs()), len(harness.said()), len(harness.effects()), len(harness.decided()))
    await looked(harness, 1)
    assert (len(harness.jobs()), len(harness.said()), len(harness.effects()), len(harness.decided())) == before


async def test_a_late_webhook_does_not_repeat_a_polled_command(harness: EventHarness) -> None:
    await begun(harness)
    harness.hooks.held = True
    await harness.labels()
    await harness.says("/agent mind the tests")
    await looked(harness)
    assert (len(harness.jobs()), len(harness.said())) == (1, 1)
    await harness.deliver()
    assert (len(harness.jobs()), len(harness.said())) == (1, 1)


async def test_an_hour_without_webhooks_is_made_up_for_within_five_minutes(harness: EventHarness) -> None:
    """R6: all webhooks are lost; the next poll finds the requests, and those that were withdrawn."""
    await begun(harness)
    await harness.labels(harness.world.open_issue(harness.repo, harness.owner, "Another"))
    issues = [harness.world.open_issue(harness.repo, harness.owner, f"Issue {number}") for number in range(4)]
    other = harness.active_jobs()[0].job_context.issue_ref.number
    with harness.hooks.down():
        harness.world.label(issues[0], harness.owner, "agent-fix")
        harness.world.tick(600)
        harness.world.comment(harness.repo, issues[1], harness.owner, "/agent fix it")
        harness.world.tick(600)
        harness.world.label(issues[2], harness.owner, "agent-fix")
        harness.world.label(issues[2], harness.owner, "agent-fix", off=True)
        harness.world.comment(harness.repo, issues[3], harness.owner, "/agent fix it")
        harness.world.tick(600)
        harness.world.comment(harness.repo, issues[3], harness.owner, "/agent stop")
        harness.world.turn(harness.repo.issues[other], harness.owner, "closed")
        harness.world.tick(600)
    await looked(harness)
    numbers = sorted(job.job_context.issue_ref.number for job in harness.active_jobs())
    assert numbers == [issues[0].number, issues[1].number]


@pytest.mark.parametrize("what", ["closed", "unlabelled", "in progress", "deleted", "by ourselves", "nothing"])
async def test_a_cancelled_job_is_stopped(harness: EventHarness, what: str) -> None:
    await harness.labels()
    harness.world.tick()
    match what:
        case "closed":
            harness.world.turn(harness.issue, harness.owner, "closed")
        case "unlabelled":
            harness.world.label(harness.issue, harness.owner, "agent-fix", off=True)
        case "in progress":
            harness.world.label(harness.issue, harness.world.bot, "agent-in-progress")
            harness.world.label(harness.issue, harness.owner, "agent-in-progress", off=True)
        case "deleted":
            del harness.repo.issues[harness.issue.number]
        case "by ourselves":
            harness.world.label(harness.issue, harness.world.bot, "agent-fix", off=True)
    await looked(harness)
    assert harness.job.row.state == ("queued" if what in {"by ourselves", "nothing"} else "stopped")


async def test_a_label_removed_before_the_job_started_is_ignored(harness: EventHarness) -> None:
    harness.world.label(harness.issue, harness.owner, "agent-fix")
    harness.world.tick()
    harness.world.label(harness.issue, harness.owner, "agent-fix", off=True)
    harness.world.tick()
    await harness.says("/agent fix it")
    await looked(harness)
    assert harness.job.row.state == "queued"


@pytest.mark.parametrize("gone", ["suspended", "deleted", "removed"])
async def test_an_installation_removed_without_a_webhook_ends_its_jobs(harness: EventHarness, gone: str) -> None:
    await harness.labels()
    installation = harness.fake_github.installation
    match gone:
        case "suspended":
            installation.suspended = True
        case "deleted":
            del harness.world.installations[installation.id]
        case _:
            installation.repositories.clear()
    await looked(harness)
    assert harness.job.row.state == "no_access"


async def test_a_transferred_repository_ends_its_jobs_and_others_are_polled(harness: EventHarness) -> None:
    await harness.labels()
    second = another_repository(harness, "second")
    harness.repo.rename("transferred")
    harness.fake_github.installation.repositories = {second.id}
    await looked(harness)
    assert harness.job.row.state == "no_access"
    assert harness.stores.poll_cursors.last_poll([second.id])


async def test_a_renamed_repository_that_is_not_listed_keeps_its_jobs(harness: EventHarness) -> None:
    await harness.labels()
    harness.repo.rename("renamed")
    cut = '{"total_count": 0, "repositories": []}'
    harness.fake_github.github.faults.append(Fault("GET /installation/repositories", 200, cut))
    await looked(harness)
    assert harness.job.row.state == "queued"


@pytest.mark.parametrize("listed", ["installations", "repositories"])
async def test_a_list_that_was_cut_ends_no_job(harness: EventHarness, listed: str) -> None:
    await harness.labels()
    lists = {
        "installations": Fault("GET /app/installations", 200, "[]"),
        "repositories": Fault("GET /installation/repositories", 200, '{"total_count": 0, "repositories": []}'),
    }
    harness.fake_github.github.faults.append(lists[listed])
    await looked(harness)
    assert lists[listed].times == 0
    assert harness.job.row.state == "queued"


async def test_two_hundred_webhooks_that_failed_are_sent_again(harness: EventHarness) -> None:
    """R7: the receiver was down for ten minutes; GitHub never tries a second time by itself."""
    await begun(harness)
    people = [harness.person(f"u{number}") for number in range(10)]
    with harness.hooks.down():
        await harness.labels()
        for number in range(199):
            await harness.says(f"/agent mind {number}", by=people[number % 10])
    assert harness.jobs() == []
    harness.world.tick(60)
    began = harness.world.now
    await harness.poller.poll_all()
    assert await harness.hooks.attempt_asked() == 200
    await harness.wait_until_handled()
    assert (harness.world.now - began).total_seconds() <= 300
    assert len(harness.jobs()) == 1
    texts = {said.text for said in harness.said()} | {harness.job.job.task.request}
    assert {f"mind {number}" for number in range(199)} <= texts


async def test_a_missing_delivery_is_requested_a_few_times_only(harness: EventHarness) -> None:
    await begun(harness)
    with harness.hooks.down():
        await harness.hooks.send("ping", "x", harness.repo, harness.fake_github.installation, harness.owner)
        for _ in range(12):
            await looked(harness)
            await harness.hooks.attempt_asked()
    assert len(harness.world.deliveries) == 1 + 5


async def test_a_repository_that_fails_is_polled_again(harness: EventHarness) -> None:
    await begun(harness)
    harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent fix it")
    down = Fault("GET /repos/ada/sample/issues/comments", 502, times=100)
    harness.fake_github.github.faults.append(down)
    await looked(harness)
    assert harness.jobs() == []
    down.times = 0
    await looked(harness)
    assert len(harness.jobs()) == 1


@pytest.mark.parametrize(("archived", "left_out"), [(True, []), (False, ["60 of 62 repositories"] * 2)])
async def test_repositories_that_cannot_be_polled_keep_no_other_from_it(
    harness: EventHarness, archived: bool, left_out: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Each round says how many it leaves to the next ones."""
    caplog.set_level(logging.INFO, "app.triggers.poller")
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/old-.*", 403, "{}", times=1_000))
    for number in range(MAX_REPOSITORIES):
        another_repository(harness, f"old-{number}", archived=archived)
    newest = another_repository(harness, "newest")
    for _ in left_out or ["none"]:
        await looked(harness)
    assert harness.stores.poll_cursors.last_poll([newest.id])
    assert re.findall(r"\d+ of \d+ repositories", caplog.text) == left_out


async def test_a_rate_limit_ends_the_poll(harness: EventHarness) -> None:
    second = harness.world.add_repo(harness.owner, "other", {"a.txt": "a\n"})
    harness.fake_github.installation.repositories.add(second.id)
    await begun(harness)
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/.*/issues", 403, "{}", {"retry-after": "600"}))
    before = len(harness.fake_github.github.calls)
    await looked(harness)
    asked = [call.path for call in harness.fake_github.github.calls[before:] if call.path.startswith("/repos/")]
    assert len([path for path in asked if path.endswith("/issues")]) == 1


async def test_a_quiet_repository_costs_four_requests(harness: EventHarness) -> None:
    for number in range(30):
        harness.world.comment(harness.repo, harness.issue, harness.owner, f"comment {number}")
    await begun(harness)
    await looked(harness)
    before = len(harness.fake_github.github.calls)
    await looked(harness, 2)
    asked = [call.path for call in harness.fake_github.github.calls[before:] if call.path.startswith("/repos/")]
    assert asked == [
        "/repos/ada/sample/issues",
        "/repos/ada/sample/issues/comments",
        "/repos/ada/sample/pulls/comments",
        "/repos/ada/sample/pulls",
    ]


async def test_a_new_installation_is_polled_at_once(harness: EventHarness) -> None:
    label(harness)
    await harness.hooks.installation_changed(harness.fake_github.installation, "created", harness.owner)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1


async def test_how_far_it_was_looked_is_kept(harness: EventHarness) -> None:
    await begun(harness)
    poll_cursors = harness.stores.poll_cursors.last_poll([harness.repo.id, OWN_DELIVERIES, 99])
    assert set(poll_cursors) == {harness.repo.id, OWN_DELIVERIES}
