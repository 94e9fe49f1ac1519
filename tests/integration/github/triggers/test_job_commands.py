"""Commands for an existing job: messages, approvals, answers, higher limits, stops; each has its effect once."""

from pathlib import Path
from typing import Any

import pytest

from app.core.examples import Because, JudgedExample, OutdatedTest, PlanExamples
from app.core.job import Budget, JobResult
from app.core.plan import Plan, parse_plan_file, render_plan_file, with_origin
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.status import WaitingFor
from tests.support.event_harness import EventHarness, event_harness
from tests.support.github.world import Comment
from tests.support.pull_requests import verification

PLAN = Plan(summary="Round half up.", steps=("Add a test", "Round"))


async def parked(harness: EventHarness, state: str, reason: str = "", waiting_for: WaitingFor = "") -> None:
    await harness.labels()
    harness.put(state, reason=reason, waiting_for=waiting_for)


def status_comment(harness: EventHarness, plan: Plan) -> Comment:
    """As the status updater and the publisher leave it: the comment on the issue, and its receipt."""
    text = f"### Plan\n\n<!-- agent-fix:plan -->\n```yaml\n{render_plan_file(plan)}```\n<!-- /agent-fix:plan -->\n"
    job = harness.jobs()[-1].job.id
    comment = harness.world.comment(harness.repo, harness.issue, harness.world.bot, text)
    harness.tell_status(job, comment)
    return comment


async def test_messages_reach_the_running_job_in_order(harness: EventHarness) -> None:
    await harness.labels()
    await harness.says("/agent mind the tests")
    await harness.says("/agent fix the docs too", by=harness.person("grace"))
    said = [(each.kind, each.who, each.text) for each in harness.said()]
    assert said == [("steer", "ada", "mind the tests"), ("steer", "grace", "the docs too")]
    assert len(harness.reactions()) == 3


async def test_a_command_on_a_diff_line_names_the_thread(harness: EventHarness) -> None:
    pull = harness.open_pull()
    await harness.says("/agent fix it", pull)
    await harness.says_inline("/agent rename this", pull)
    assert [each.text for each in harness.said()] == ["(about app/money.py:1)\nrename this"]


async def test_a_review_joins_with_all_its_comments(harness: EventHarness) -> None:
    pull = harness.our_pull()
    await harness.says("/agent fix it", pull)
    await harness.reviews("Two things.", pull, harness.person("grace"), "rename this", "> rename this\n\nand test it")
    await harness.reviews("", pull, None, "why 0.6?")
    assert [(each.kind, each.who) for each in harness.said()] == [("steer", "grace"), ("steer", "ada")]
    first, second = (each.text for each in harness.said())
    assert first == ("Two things.\n\n(about app/money.py:1)\nrename this\n\n(about app/money.py:1)\nand test it")
    assert second == "(about app/money.py:1)\nwhy 0.6?"
    assert harness.answers() == []


def joined(harness: EventHarness) -> list[int]:
    return [each.comment for each in harness.job.job_context.threads]


async def test_threads_that_join_are_answered_when_the_job_ends(harness: EventHarness) -> None:
    """Those of a review and of a single comment, each once, however often it is delivered."""
    pull = harness.our_pull()
    await harness.says("/agent fix it", pull)
    assert joined(harness) == []
    await harness.reviews("Two things.", pull, harness.person("grace"), "rename this", "test it")
    await harness.says_inline("/agent and this", pull, line=3)
    roots = [thread.comments[0] for thread in harness.repo.threads]
    assert joined(harness) == roots
    assert [each.end for each in harness.job.job_context.threads] == [1, 1, 3]
    assert all(each.thread and each.path == "app/money.py" for each in harness.job.job_context.threads)
    harness.stores.job_queries.join_threads(harness.job.job.id, harness.job.job_context.threads[1:])
    assert joined(harness) == roots


async def test_a_job_without_a_change_answers_no_thread(harness: EventHarness) -> None:
    pull = harness.our_pull()
    await harness.says("/agent plan it", pull)
    harness.put("working")
    await harness.reviews("", pull, None, "rename this")
    assert [each.text for each in harness.said()] == ["(about app/money.py:1)\nrename this"]
    assert joined(harness) == []


async def test_messages_during_publication_go_to_the_next_job(harness: EventHarness) -> None:
    """They would be read by nobody any more: a follow-up begins once the branch is where it will be."""
    pull = harness.our_pull()
    await harness.says("/agent fix it", pull)
    harness.stores.job_queries.mark_ready(harness.job.job.id)
    claim = harness.stores.queue.claim("w1", QueueLimits(jobs=4, per_repository=2))
    assert claim is not None
    harness.stores.queue.hand_over(claim, {"exit_status": "pr_updated"})
    harness.hooks.held = True
    await harness.says("/agent and the tests --attempts 2", pull)
    harness.hooks.held = False
    (held,) = [each for each in harness.world.deliveries if each.status == 0]
    await harness.hooks.attempt(held)
    await harness.trigger_loops.next_delivery()
    assert (len(harness.jobs()), harness.said()) == (1, [])
    harness.ends("pr_updated")
    await harness.wait_until_handled()
    assert [(job.job.task.request, job.job.attempts) for job in harness.jobs()] == [("it", 1), ("and the tests", 2)]


async def test_a_second_label_only_answers(harness: EventHarness) -> None:
    await harness.labels()
    harness.issue.labels.clear()
    await harness.labels()
    assert len(harness.jobs()) == 1
    assert "already working on it" in harness.answer


async def test_an_approval_sets_the_job_on_its_way(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    status_comment(harness, PLAN)
    await harness.says("/agent approve")
    assert [(each.kind, each.text) for each in harness.said()] == [("approve", "")]
    assert harness.job.row.state == "queued"


async def test_an_approval_may_say_more_and_set_the_budget(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    status_comment(harness, PLAN)
    await harness.says("/agent approve but leave the API alone --budget 5.5")
    said = {each.kind: (each.who, each.text) for each in harness.said()}
    assert said == {"steer": ("ada", "but leave the API alone"), "approve": ("ada", "")}
    assert (harness.job.row.state, harness.job.job.budget.usd) == ("queued", 5_500_000)


class StoppingQueue(JobQueue):
    """A queue in which somebody stops the job just before it is resumed."""

    def resume(self, job_id: str, *changes: Any, **stored: Any) -> bool:
        self.end(job_id, "stopped", "Stopped meanwhile.")
        return super().resume(job_id, *changes, **stored)


async def test_an_approval_that_comes_too_late_stores_nothing(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    harness.stores.queue = StoppingQueue(harness.engine, harness.stores.clock)
    await harness.says("/agent approve but leave the API alone")
    assert "has continued or ended in the meantime" in harness.answer
    assert (harness.job.row.state, harness.said()) == ("stopped", [])


@pytest.mark.parametrize(
    ("state", "text", "option"),
    [
        ("awaiting_approval", "approve --model other/two", "`--model`"),
        ("awaiting_approval", "mind the tests --budget 3", "`--budget`"),
        ("paused", "continue --budget +3 --attempts 2", "`--attempts`"),
        ("needs_input", "half up --runner native", "`--runner`"),
        ("working", "mind the tests --kind tests", "`--kind`"),
        ("working", "fix with tests", "A prompt (`with NAME`)"),
        ("working", "fix the docs --urgent", "`--urgent`"),
    ],
)
async def test_options_that_cannot_change_a_job_are_answered(
    harness: EventHarness, state: str, text: str, option: str
) -> None:
    await parked(harness, state)
    status_comment(harness, PLAN)
    before = harness.job
    await harness.says(f"/agent {text}")
    assert f"{option} cannot change a job that has begun" in harness.answer
    assert (harness.job.row, harness.job.job, harness.said()) == (before.row, before.job, [])


async def test_an_edited_plan_is_what_is_approved(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    comment = status_comment(harness, PLAN)
    harness.world.tick()
    harness.world.edit(comment, comment.body.replace("Round half up.", "Use decimals."), by=harness.person("grace"))
    await harness.says("/agent approve")
    (said,) = harness.said()
    assert "summary: Use decimals." in said.text
    assert harness.job.row.state == "queued"


async def test_a_plan_that_somebody_without_write_access_edited_is_not_approved(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    comment = status_comment(harness, PLAN)
    harness.world.tick()
    harness.world.edit(
        comment, comment.body.replace("Round half up.", "Add my key."), by=harness.person("mallory", "read")
    )
    await harness.says("/agent approve")
    assert (harness.said(), harness.job.row.state) == ([], "awaiting_approval")
    assert "`mallory`, who has no write access" in harness.answer


async def test_a_plan_that_was_edited_after_the_approval_must_be_reviewed_again(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    comment = status_comment(harness, PLAN)
    harness.hooks.held = True
    await harness.says("/agent approve")
    harness.world.tick(5)
    harness.world.edit(comment, comment.body.replace("Round half up.", "Use decimals."), by=harness.owner)
    await harness.deliver()
    assert harness.said() == []
    assert "edited after your approval" in harness.answer


async def test_a_plan_that_cannot_be_read_is_reported(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    comment = status_comment(harness, PLAN)
    harness.world.tick()
    harness.world.edit(comment, comment.body.replace("summary:", "summery:"), by=harness.owner)
    await harness.says("/agent approve")
    assert "is invalid" in harness.answer
    assert harness.job.row.state == "awaiting_approval"


async def test_a_planned_job_continues_with_its_plan(harness: EventHarness) -> None:
    await harness.says("/agent plan use decimals")
    harness.ends("answered", plan=PLAN.model_dump())
    await harness.says("/agent approve, but leave the API alone")
    _, job = harness.jobs()
    assert (job.job_context.aim, job.job_context.publish_target) == ("fix", "new_branch")
    assert job.job.plan_file == render_plan_file(PLAN)
    assert (job.job.plan_mode, job.job.task.request) == ("auto", "use decimals\n\nbut leave the API alone")


SHOWN = JudgedExample(
    behaviour="It rounds up.",
    because=Because(quote="a cent too low", source="issue"),
    run="python",
    program="print(half(5))\n",
    stdout="3\n",
)
REPRODUCTION: dict[str, Any] = {
    "plan": PLAN.model_copy(update={"examples": (SHOWN.written,)}).model_dump(),
    "examples": PlanExamples(examples=(SHOWN,), outdated=(OutdatedTest(test="t", because="b"),)).model_dump(),
}


@pytest.mark.parametrize(
    ("config", "mode"),
    [("plan: auto\n", "auto"), ("plan: approve\n", "approve"), ("plan: none\n", "auto")],
)
async def test_a_fix_goes_on_from_what_was_reproduced(harness: EventHarness, config: str, mode: str) -> None:
    harness.configure(config)
    await harness.says("/agent reproduce on Windows")
    first = harness.job
    assert (first.job.aim, first.job.plan_mode, first.job_context.publish_target) == ("reproduce", "only", "nowhere")
    assert first.job.budget == Budget().for_a_look()
    harness.ends("reproduced", **REPRODUCTION)
    await harness.says("/agent fix with decimals too")
    _, job = harness.jobs()
    assert (job.job.aim, job.job.plan_mode, job.job_context.publish_target) == ("fix", mode, "new_branch")
    assert "print(half(5))" in job.job.plan_file
    assert (job.job.examples, job.job.outdated[0].test) == ((SHOWN.written,), "t")
    assert job.job.task.request == "on Windows\n\nwith decimals too"


async def test_examples_that_people_edited_are_theirs(harness: EventHarness) -> None:
    await harness.labels(label="agent-reproduce")
    harness.ends("reproduced", **REPRODUCTION)
    comment = status_comment(harness, Plan.model_validate(REPRODUCTION["plan"]))
    harness.world.tick(-5)
    harness.world.edit(comment, comment.body.replace("half(5)", "half(7)"), by=harness.owner)
    harness.world.tick(5)
    await harness.labels()
    plan = with_origin(parse_plan_file(harness.jobs()[1].job.plan_file), harness.jobs()[1].job.examples)
    assert [(one.program, one.origin) for one in plan.examples] == [("print(half(7))\n", "person")]


@pytest.mark.parametrize("ended", ["not_reproduced", "already_works", "error", "reproduced"])
async def test_a_fix_plans_anew_if_nothing_was_reproduced_or_the_issue_says_something_else(
    harness: EventHarness, ended: str
) -> None:
    await harness.says("/agent reproduce")
    harness.ends(ended, **REPRODUCTION)
    if ended == "reproduced":
        harness.world.edit(harness.issue, "Totals are a cent too high.")
        harness.world.tick()
    await harness.says("/agent fix")
    _, job = harness.jobs()
    assert (job.job.aim, job.job.plan_file, job.job.examples) == ("fix", "", ())


async def test_retry_of_a_reproduction_reproduces_again(harness: EventHarness) -> None:
    await harness.says("/agent reproduce")
    harness.ends("not_reproduced")
    await harness.says("/agent retry")
    _, job = harness.jobs()
    assert (job.job.aim, job.job_context.aim, job.job_context.publish_target) == ("reproduce", "reproduce", "nowhere")


async def test_a_pull_request_is_not_reproduced(harness: EventHarness) -> None:
    await harness.says("/agent reproduce", harness.open_pull())
    assert "Only an issue can be reproduced." in harness.answer


async def test_approve_without_a_plan_is_answered(harness: EventHarness) -> None:
    await harness.says("/agent approve")
    assert "No plan is waiting for approval." in harness.answer
    assert "Try `/agent plan`." in harness.answer


async def test_an_answer_sets_the_job_on_its_way(harness: EventHarness) -> None:
    await parked(harness, "needs_input")
    await harness.says("/agent round half up, please --budget 7")
    assert [(each.kind, each.text) for each in harness.said()] == [("answer", "round half up, please")]
    assert (harness.job.row.state, harness.job.job.budget.usd) == ("queued", 7_000_000)


async def test_more_money_goes_on_with_the_same_job(harness: EventHarness) -> None:
    await parked(harness, "paused", "Five dollars are spent.", waiting_for="money")
    await harness.says("/agent continue --budget +3")
    assert harness.job.waiting_for == ""
    job = harness.job
    assert job.row.state == "queued"
    assert job.job.budget == Budget(usd=8_000_000, minutes=120, steps=200)


async def test_going_on_without_money_is_asked_about(harness: EventHarness) -> None:
    await parked(harness, "paused", "Five dollars are spent.", waiting_for="money")
    await harness.says("/agent continue")
    assert harness.job.row.state == "paused"
    assert "Try `/agent continue --budget +3`." in harness.answer


async def test_turns_and_minutes_come_with_going_on(harness: EventHarness) -> None:
    await parked(harness, "paused", "The budget of 100 turns is used up.")
    await harness.says("/agent continue")
    assert (harness.job.row.state, harness.job.job.budget.steps) == ("queued", 200)


async def test_messages_to_a_paused_job_are_answered(harness: EventHarness) -> None:
    await parked(harness, "paused", "The budget is spent.")
    await harness.says("/agent hurry up")
    assert "The job is paused." in harness.answer


async def test_messages_to_a_waiting_job_are_kept_and_acknowledged(harness: EventHarness) -> None:
    await parked(harness, "awaiting_approval")
    await harness.says("/agent leave the API alone")
    assert [each.kind for each in harness.said()] == ["steer"]
    assert "once the plan is approved" in harness.answer


async def test_a_stop_ends_what_nobody_works_on(harness: EventHarness) -> None:
    await harness.labels()
    await harness.says("/agent stop")
    assert (harness.job.row.state, harness.job.row.reason) == ("stopped", "Stopped by ada.")
    assert harness.reactions()[-1][2] == "eyes"


async def test_a_stop_reaches_the_process_that_works_on_it(harness: EventHarness) -> None:
    await harness.labels()
    harness.stores.job_queries.mark_ready(harness.job.job.id)
    assert harness.stores.queue.claim("worker", QueueLimits(jobs=4, per_repository=2))
    await harness.says("/agent stop")
    assert harness.job.row.stop_requested
    assert not harness.job.row.final


async def test_a_stop_ends_the_questions_too(harness: EventHarness) -> None:
    await harness.says("/agent ask why?")
    await harness.says("/agent stop")
    assert harness.job.row.state == "stopped"


async def test_stop_without_a_job_is_answered(harness: EventHarness) -> None:
    await harness.says("/agent stop")
    assert "No job is running." in harness.answer


async def test_status_shows_the_state_and_the_comment(harness: EventHarness) -> None:
    await harness.says("/agent status")
    assert "No job has run here yet." in harness.answer
    await harness.labels()
    comment = status_comment(harness, PLAN)
    harness.put("working")
    await harness.says("/agent status")
    assert f"Job `{harness.job.job.id}` is working." in harness.answers()[1]
    assert f"#issuecomment-{comment.id}" in harness.answers()[1]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_status_of_a_pull_request_is_that_of_the_job_that_opened_it(tmp_path: Path, dialect: str) -> None:
    async with event_harness(tmp_path, dialect=dialect) as harness:
        await harness.labels()
        pull = harness.our_pull()
        opened = harness.job.job.id
        harness.put("publishing")
        result = JobResult(exit_status="pr_opened", url=f"https://github.com/o/r/pull/{pull.number}")
        harness.stores.job_store().finish(opened, "pr_opened", "", result.model_dump(mode="json"))
        await harness.says("/agent status", pull)
        assert f"Job `{opened}` opened a draft" in harness.answer


async def test_retry_starts_from_scratch_with_the_same_words(harness: EventHarness) -> None:
    await harness.says("/agent fix use decimals")
    await harness.says("/agent retry --model other/two")
    first, second = harness.jobs()
    assert first.row.state == "stopped"
    assert (second.job.task.request, second.job.model) == ("use decimals", "other/two")
    assert len(harness.active_jobs()) == 1


@pytest.mark.parametrize(
    ("options", "problem"), [("--runner codx", "no runner `codx`"), ("with tets", "there is no usable prompt")]
)
async def test_retry_with_a_wrong_option_leaves_the_job_running(
    harness: EventHarness, options: str, problem: str
) -> None:
    await harness.labels()
    await harness.says(f"/agent retry {options}")
    assert problem in harness.answer
    assert (harness.job.row.state, harness.job.row.stop_requested) == ("queued", False)


async def test_retry_of_a_plan_plans_again(harness: EventHarness) -> None:
    await harness.says("/agent plan use decimals")
    harness.ends("error")
    await harness.says("/agent retry")
    _, job = harness.jobs()
    assert (job.job_context.aim, job.job_context.publish_target) == ("plan", "nowhere")
    assert (job.job.plan_mode, job.job.task.request) == ("only", "use decimals")


async def test_retry_of_ci_uses_no_model(harness: EventHarness) -> None:
    pull = harness.our_pull()
    await harness.says("/agent ci", pull)
    harness.ends("error")
    await harness.says("/agent retry", pull)
    assert [each.job_context.aim for each in harness.jobs()] == ["ci", "ci"]


async def test_retry_of_a_rebase_merges_again(harness: EventHarness) -> None:
    pull = harness.our_pull()
    harness.world.push_as_human(harness.repo, "main", {"other.py": "one = 1\n"})
    await harness.says("/agent rebase and keep both", pull)
    harness.ends("error")
    await harness.says("/agent retry", pull)
    first, second = harness.jobs()
    assert (second.job_context.aim, second.job_context.parents) == ("conflicts", first.job_context.parents)
    assert second.job.task.request == first.job.task.request
    harness.ends("error", second)
    await harness.says("/agent retry and keep neither", pull)
    assert harness.jobs()[-1].job.task.request.endswith("kept.\n\nand keep neither")


async def test_retry_waits_until_the_running_process_has_ended(harness: EventHarness) -> None:
    await harness.labels()
    first = harness.job.job.id
    harness.stores.job_queries.mark_ready(first)
    claim = harness.stores.queue.claim("worker", QueueLimits(jobs=4, per_repository=2))
    assert claim
    harness.world.tick()
    comment = harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent retry")
    await harness.hooks.commented(harness.repo, harness.fake_github.installation, harness.owner, harness.issue, comment)
    await harness.trigger_loops.next_delivery()
    assert len(harness.jobs()) == 1
    assert harness.job.row.stop_requested
    harness.stores.job_store().stop(first, "It was stopped.")
    await harness.wait_until_handled()
    assert [job.row.state for job in harness.jobs()] == ["stopped", "queued"]


async def test_our_own_pull_request_does_not_block_a_new_start(harness: EventHarness) -> None:
    await harness.labels()
    harness.ends("pr_opened")
    harness.our_pull().closes = harness.issue.number
    await harness.says("/agent fix more")
    assert len(harness.jobs()) == 1
    assert "request changes there" in harness.answer
    await harness.says("/agent retry")
    assert len(harness.jobs()) == 2


@pytest.mark.parametrize("verb", ["rebase", "ci"])
async def test_other_peoples_branches_are_not_moved(harness: EventHarness, verb: str) -> None:
    await harness.says(f"/agent {verb}", harness.open_pull())
    assert not harness.jobs()
    assert "agent-fix's own pull requests only" in harness.answer


@pytest.mark.parametrize("text", ["mind the tests", "stop", "status", "retry", "fix x"])
async def test_the_same_delivered_again_is_done_once(harness: EventHarness, text: str) -> None:
    await harness.labels()
    await harness.says(f"/agent {text}")
    before = (len(harness.jobs()), len(harness.said(harness.jobs()[0])), len(harness.effects()), len(harness.decided()))
    delivery = harness.world.deliveries[-1]
    for guid in ("another", "and-another"):
        delivery.guid, delivery.payload = guid, {**delivery.payload, "replay": guid}
        await harness.hooks.attempt(delivery)
        await harness.wait_until_handled()
    assert (
        len(harness.jobs()),
        len(harness.said(harness.jobs()[0])),
        len(harness.effects()),
        len(harness.decided()),
    ) == before
    assert [outcome.split(":")[0] for outcome in harness.outcomes()[-2:]] == ["decided before"] * 2


async def test_a_crash_between_posting_and_recording_posts_once(harness: EventHarness) -> None:
    """The message is written, its trigger is not: the delivery comes again and finishes what was begun."""
    await parked(harness, "awaiting_approval")
    job = harness.job.job.id
    comment = harness.world.comment(harness.repo, harness.issue, harness.owner, "/agent approve")
    key = f"r{harness.repo.id}/comment:{comment.id}"
    harness.stores.messages.add(job, "approve", key=key, who="ada")
    await harness.hooks.commented(harness.repo, harness.fake_github.installation, harness.owner, harness.issue, comment)
    await harness.wait_until_handled()
    assert (len(harness.said()), harness.job.row.state) == (1, "queued")


async def unpublished(harness: EventHarness) -> None:
    """The harness's job, as it ends if its verified change could not be published."""
    await harness.labels()
    kept = JobResult(exit_status="publishing", unpublished=True, verification=verification(), diff="digest")
    harness.stores.job_store().store_result(harness.job.job.id, kept.model_dump(mode="json"))
    harness.put("error", reason="agent-fix failed (GitError: git commit-tree failed).")


async def test_a_retry_publishes_a_verified_change_that_is_not_published_yet(harness: EventHarness) -> None:
    await unpublished(harness)
    await harness.says("/agent retry")
    (job,) = harness.jobs()
    assert job.row.state == "publishing"
    assert harness.answers() == []


@pytest.mark.parametrize("command", ["/agent retry and add a test", "/agent retry --model openai/other"])
async def test_a_retry_with_other_wishes_starts_again(harness: EventHarness, command: str) -> None:
    await unpublished(harness)
    await harness.says(command)
    assert len(harness.jobs()) == 2
