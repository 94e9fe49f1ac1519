"""Orders to a job that is there: words, approvals, answers, more money, stops; each once, however often it comes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.job import Budget
from app.jobs.queue import Limits
from app.jobs.store import Wants
from app.plan import Plan
from app.plan_text import render_plan_file
from tests.fakes.github.world import Comment
from tests.front_desk import FrontDesk, front_desk

PLAN = Plan(summary="Round half up.", steps=("Add a test", "Round"))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def parked(desk: FrontDesk, state: str, reason: str = "", wants: Wants = "") -> None:
    await desk.labels()
    desk.put(state, reason=reason, wants=wants)


def status_comment(desk: FrontDesk, plan: Plan) -> Comment:
    """As the herald and the publisher leave it: the comment on the issue, and its receipt."""
    text = f"### Plan\n\n<!-- agent-fix:plan -->\n```yaml\n{render_plan_file(plan)}```\n<!-- /agent-fix:plan -->\n"
    job = desk.jobs()[-1].job.id
    comment = desk.world.comment(desk.repo, desk.issue, desk.world.bot, text)
    desk.tell_status(job, comment)
    return comment


async def test_words_go_to_the_job_at_work_in_order(desk: FrontDesk) -> None:
    await desk.labels()
    await desk.says("/agent mind the tests")
    await desk.says("/agent fix the docs too", by=desk.person("grace"))
    said = [(each.kind, each.who, each.text) for each in desk.said()]
    assert said == [("steer", "ada", "mind the tests"), ("steer", "grace", "the docs too")]
    assert len(desk.reactions()) == 3


async def test_words_on_a_line_say_which(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    await desk.says("/agent fix it", pull)
    await desk.says_inline("/agent rename this", pull)
    assert [each.text for each in desk.said()] == ["(about app/money.py:1)\nrename this"]


async def test_a_review_joins_with_all_that_it_says(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    await desk.says("/agent fix it", pull)
    await desk.reviews("Two things.", pull, desk.person("grace"), "rename this", "> rename this\n\nand test it")
    await desk.reviews("", pull, None, "why 0.6?")
    assert [(each.kind, each.who) for each in desk.said()] == [("steer", "grace"), ("steer", "ada")]
    first, second = (each.text for each in desk.said())
    assert first == ("Two things.\n\n(about app/money.py:1)\nrename this\n\n(about app/money.py:1)\nand test it")
    assert second == "(about app/money.py:1)\nwhy 0.6?"
    assert desk.answers() == []


def joined(desk: FrontDesk) -> list[int]:
    return [each.comment for each in desk.job.commission.threads]


async def test_threads_that_join_are_answered_when_the_job_ends(desk: FrontDesk) -> None:
    """Those of a review and of a single comment, each once, however often it is delivered."""
    pull = desk.our_pull()
    await desk.says("/agent fix it", pull)
    assert joined(desk) == []
    await desk.reviews("Two things.", pull, desk.person("grace"), "rename this", "test it")
    await desk.says_inline("/agent and this", pull, line=3)
    roots = [thread.comments[0] for thread in desk.repo.threads]
    assert joined(desk) == roots
    assert [each.end for each in desk.job.commission.threads] == [1, 1, 3]
    assert all(each.thread and each.path == "app/money.py" for each in desk.job.commission.threads)
    desk.books.roster.join_threads(desk.job.job.id, desk.job.commission.threads[1:])
    assert joined(desk) == roots


async def test_a_job_that_changes_nothing_answers_in_no_thread(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    await desk.says("/agent plan it", pull)
    desk.put("working")
    await desk.reviews("", pull, None, "rename this")
    assert [each.text for each in desk.said()] == ["(about app/money.py:1)\nrename this"]
    assert joined(desk) == []


async def test_words_to_a_job_that_is_being_published_are_for_the_next_one(desk: FrontDesk) -> None:
    """They would be read by nobody any more: a follow-up begins once the branch is where it will be."""
    pull = desk.our_pull()
    await desk.says("/agent fix it", pull)
    desk.books.roster.mark_ready(desk.job.job.id)
    claim = desk.books.queue.claim("w1", Limits())
    assert claim is not None
    desk.books.queue.hand_over(claim, {"exit_status": "pr_updated"})
    desk.hooks.held = True
    await desk.says("/agent and the tests", pull)
    desk.hooks.held = False
    (held,) = [each for each in desk.world.deliveries if each.status == 0]
    await desk.hooks.attempt(held)
    await desk.reception.next()
    assert (len(desk.jobs()), desk.said()) == (1, [])
    desk.ends("pr_updated")
    await desk.settle()
    assert [job.job.task.request for job in desk.jobs()] == ["it", "and the tests"]


async def test_a_second_label_changes_nothing_and_says_so(desk: FrontDesk) -> None:
    await desk.labels()
    desk.issue.labels.clear()
    await desk.labels()
    assert len(desk.jobs()) == 1
    assert "at work on it already" in desk.answer


async def test_an_approval_sets_the_job_on_its_way(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    status_comment(desk, PLAN)
    await desk.says("/agent approve")
    assert [(each.kind, each.text) for each in desk.said()] == [("approve", "")]
    assert desk.job.row.state == "queued"


async def test_an_edited_plan_is_what_is_approved(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    comment = status_comment(desk, PLAN)
    desk.world.tick()
    desk.world.edit(comment, comment.body.replace("Round half up.", "Use decimals."), by=desk.person("grace"))
    await desk.says("/agent approve")
    (said,) = desk.said()
    assert "summary: Use decimals." in said.text
    assert desk.job.row.state == "queued"


async def test_a_plan_that_somebody_without_write_access_edited_is_not_approved(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    comment = status_comment(desk, PLAN)
    desk.world.tick()
    desk.world.edit(comment, comment.body.replace("Round half up.", "Add my key."), by=desk.person("mallory", "read"))
    await desk.says("/agent approve")
    assert (desk.said(), desk.job.row.state) == ([], "awaiting_approval")
    assert "`mallory`, who has no write access" in desk.answer


async def test_a_plan_that_was_edited_after_the_approval_is_looked_at_once_more(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    comment = status_comment(desk, PLAN)
    desk.hooks.held = True
    await desk.says("/agent approve")
    desk.world.tick(5)
    desk.world.edit(comment, comment.body.replace("Round half up.", "Use decimals."), by=desk.owner)
    await desk.deliver()
    assert desk.said() == []
    assert "edited after you approved it" in desk.answer


async def test_a_plan_that_cannot_be_read_is_told(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    comment = status_comment(desk, PLAN)
    desk.world.tick()
    desk.world.edit(comment, comment.body.replace("summary:", "summery:"), by=desk.owner)
    await desk.says("/agent approve")
    assert "cannot be read" in desk.answer
    assert desk.job.row.state == "awaiting_approval"


async def test_what_was_only_planned_begins_with_its_plan(desk: FrontDesk) -> None:
    await desk.says("/agent plan with decimals")
    desk.ends("answered", plan=PLAN.model_dump())
    await desk.says("/agent approve")
    _, job = desk.jobs()
    assert (job.commission.aim, job.commission.goal) == ("fix", "new_branch")
    assert job.job.plan_file == render_plan_file(PLAN)
    assert (job.job.plan_mode, job.job.task.request) == ("auto", "with decimals")


async def test_nothing_to_approve_is_told(desk: FrontDesk) -> None:
    await desk.says("/agent approve")
    assert "No plan waits for approval." in desk.answer
    assert "Try `/agent plan`." in desk.answer


async def test_an_answer_sets_the_job_on_its_way(desk: FrontDesk) -> None:
    await parked(desk, "needs_input")
    await desk.says("/agent round half up, please")
    assert [(each.kind, each.text) for each in desk.said()] == [("answer", "round half up, please")]
    assert desk.job.row.state == "queued"


async def test_more_money_goes_on_with_the_same_job(desk: FrontDesk) -> None:
    await parked(desk, "paused", "Five dollars are spent.", wants="money")
    await desk.says("/agent continue --budget +3")
    assert desk.job.wants == ""
    job = desk.job
    assert job.row.state == "queued"
    assert job.job.budget == Budget(usd=8_000_000, minutes=120, steps=200)


async def test_going_on_without_money_is_asked_about(desk: FrontDesk) -> None:
    await parked(desk, "paused", "Five dollars are spent.", wants="money")
    await desk.says("/agent continue")
    assert desk.job.row.state == "paused"
    assert "Try `/agent continue --budget +3`." in desk.answer


async def test_turns_and_minutes_come_with_going_on(desk: FrontDesk) -> None:
    await parked(desk, "paused", "The budget of 100 turns is used up.")
    await desk.says("/agent continue")
    assert (desk.job.row.state, desk.job.job.budget.steps) == ("queued", 200)


async def test_words_to_a_paused_job_are_answered(desk: FrontDesk) -> None:
    await parked(desk, "paused", "The budget is spent.")
    await desk.says("/agent hurry up")
    assert "The job is paused." in desk.answer


async def test_words_to_a_job_that_waits_for_approval_are_kept_and_that_is_said(desk: FrontDesk) -> None:
    await parked(desk, "awaiting_approval")
    await desk.says("/agent leave the API alone")
    assert [each.kind for each in desk.said()] == ["steer"]
    assert "once the plan is approved" in desk.answer


async def test_a_stop_ends_what_nobody_works_on(desk: FrontDesk) -> None:
    await desk.labels()
    await desk.says("/agent stop")
    assert (desk.job.row.state, desk.job.row.reason) == ("stopped", "It was stopped by ada.")
    assert desk.reactions()[-1][2] == "eyes"


async def test_a_stop_reaches_the_process_that_works_on_it(desk: FrontDesk) -> None:
    await desk.labels()
    desk.books.roster.mark_ready(desk.job.job.id)
    assert desk.books.queue.claim("worker", Limits())
    await desk.says("/agent stop")
    assert desk.job.row.stop_requested
    assert not desk.job.row.final


async def test_a_stop_ends_the_questions_too(desk: FrontDesk) -> None:
    await desk.says("/agent ask why?")
    await desk.says("/agent stop")
    assert desk.job.row.state == "stopped"


async def test_nothing_to_stop_is_told(desk: FrontDesk) -> None:
    await desk.says("/agent stop")
    assert "No job is at work." in desk.answer


async def test_how_it_stands_is_told(desk: FrontDesk) -> None:
    await desk.says("/agent status")
    assert "No job has worked here yet." in desk.answer
    await desk.labels()
    comment = status_comment(desk, PLAN)
    desk.put("working")
    await desk.says("/agent status")
    assert f"Job `{desk.job.job.id}` is at work." in desk.answers()[1]
    assert f"#issuecomment-{comment.id}" in desk.answers()[1]


async def test_again_from_scratch_with_the_same_words(desk: FrontDesk) -> None:
    await desk.says("/agent fix with decimals")
    await desk.says("/agent retry --model other/two")
    first, second = desk.jobs()
    assert first.row.state == "stopped"
    assert (second.job.task.request, second.job.model) == ("with decimals", "other/two")
    assert len(desk.living()) == 1


async def test_again_waits_until_the_process_at_work_has_ended(desk: FrontDesk) -> None:
    await desk.labels()
    first = desk.job.job.id
    desk.books.roster.mark_ready(first)
    claim = desk.books.queue.claim("worker", Limits())
    assert claim
    desk.world.tick()
    comment = desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent retry")
    await desk.hooks.commented(desk.repo, desk.ground.installation, desk.owner, desk.issue, comment)
    await desk.reception.next()
    assert len(desk.jobs()) == 1
    assert desk.job.row.stop_requested
    desk.books.store.stop(first, "It was stopped.")
    await desk.settle()
    assert [job.row.state for job in desk.jobs()] == ["stopped", "queued"]


async def test_a_pull_request_of_ours_is_no_reason_not_to_begin_again(desk: FrontDesk) -> None:
    await desk.labels()
    desk.ends("pr_opened")
    desk.our_pull().closes = desk.issue.number
    await desk.says("/agent fix more")
    assert len(desk.jobs()) == 1
    assert "ask for changes there" in desk.answer
    await desk.says("/agent retry")
    assert len(desk.jobs()) == 2


@pytest.mark.parametrize("verb", ["rebase", "ci"])
async def test_other_peoples_branches_are_not_moved(desk: FrontDesk, verb: str) -> None:
    await desk.says(f"/agent {verb}", desk.open_pull())
    assert not desk.jobs()
    assert "pull requests of agent-fix only" in desk.answer


@pytest.mark.parametrize("text", ["mind the tests", "stop", "status", "retry", "fix x"])
async def test_the_same_delivered_again_is_done_once(desk: FrontDesk, text: str) -> None:
    await desk.labels()
    await desk.says(f"/agent {text}")
    before = (len(desk.jobs()), len(desk.said(desk.jobs()[0])), len(desk.wishes()), len(desk.decided()))
    delivery = desk.world.deliveries[-1]
    for guid in ("another", "and-another"):
        delivery.guid, delivery.payload = guid, {**delivery.payload, "replay": guid}
        await desk.hooks.attempt(delivery)
        await desk.settle()
    assert (len(desk.jobs()), len(desk.said(desk.jobs()[0])), len(desk.wishes()), len(desk.decided())) == before
    assert [outcome.split(":")[0] for outcome in desk.outcomes()[-2:]] == ["decided before"] * 2


async def test_a_crash_between_saying_and_going_on_says_it_once(desk: FrontDesk) -> None:
    """The message is written, its trigger is not: the delivery comes again and finishes what was begun."""
    await parked(desk, "awaiting_approval")
    job = desk.job.job.id
    comment = desk.world.comment(desk.repo, desk.issue, desk.owner, "/agent approve")
    key = f"r{desk.repo.id}/comment:{comment.id}"
    desk.books.messages.add(job, "approve", key=key, who="ada")
    await desk.hooks.commented(desk.repo, desk.ground.installation, desk.owner, desk.issue, comment)
    await desk.settle()
    assert (len(desk.said()), desk.job.row.state) == (1, "queued")
