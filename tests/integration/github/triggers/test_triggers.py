"""Requests and the jobs that they start: labels and commands on issues, pull requests, lines and reviews."""

import pytest

from app.core.job import Budget
from app.core.task import FIX_OPEN_CHECKS, REVIEW_REQUEST
from app.jobs.outcomes import LOOK_AGAIN
from app.publish.effects import ChangeLabels
from tests.support.event_harness import EventHarness


async def test_a_label_starts_a_job(harness: EventHarness) -> None:
    await harness.labels()
    job, job_context = harness.job.job, harness.job.job_context
    assert (job_context.aim, job_context.publish_target, job_context.trigger) == ("fix", "new_branch", "issue")
    assert (job_context.login, job_context.base_ref, job_context.pull) == ("ada", "main", None)
    assert (job.task.repository, job.task.issue.title) == ("ada/sample", harness.issue.title)
    assert (job.task.base, job.task.base_ref) == (harness.repo.branches["main"], "main")
    assert job.branch == "agent-fix/issue-1-totals-are-a-cent-too-low"
    assert (job.model, job.sandbox, job.plan_mode, job.aim) == ("scripted/one", "bubblewrap", "auto", "fix")
    assert job.task.requester is not None
    assert job.task.requester.name == "Ada Lovelace"
    assert job_context.author.name == "agent-fix-test[bot]"
    assert harness.reactions() == [("issue", 1, "eyes")]
    assert (harness.job.row.state, harness.job.ready) == ("queued", False)


async def test_assigning_the_issue_to_the_bot_begins_a_job(harness: EventHarness) -> None:
    await harness.assigns(harness.world.bot)
    job_context = harness.job.job_context
    assert (job_context.aim, job_context.publish_target, job_context.trigger) == ("fix", "new_branch", "issue")
    assert job_context.login == "ada", "who assigned, not who was assigned"
    assert harness.reactions() == [("issue", 1, "eyes")]


async def test_assigning_somebody_else_begins_nothing(harness: EventHarness) -> None:
    await harness.assigns(harness.person("grace", "write"))
    assert not harness.jobs()


async def test_assigning_without_write_access_begins_nothing(harness: EventHarness) -> None:
    await harness.assigns(harness.world.bot, by=harness.person("mallory", "read"))
    assert not harness.jobs()


async def test_an_assignment_that_was_removed_begins_nothing(harness: EventHarness) -> None:
    harness.hooks.held = True
    await harness.assigns(harness.world.bot)
    harness.issue.assignees.clear()
    await harness.hooks.attempt(harness.world.deliveries[-1])
    await harness.wait_until_handled()
    assert not harness.jobs()


async def test_a_comment_starts_a_job_with_its_text(harness: EventHarness) -> None:
    comment = await harness.says("/agent fix use decimals --model other/two --budget 2")
    job = harness.job.job
    assert (job.task.request, job.model, job.budget.usd) == ("use decimals", "other/two", 2_000_000)
    assert harness.job.job_context.trigger == f"comment:{comment.id}"
    assert harness.reactions() == [("comment", comment.id, "eyes")]


async def test_free_text_starts_a_job_too(harness: EventHarness) -> None:
    await harness.says("/agent please use decimals")
    assert harness.job.job.task.request == "please use decimals"
    assert harness.job.job_context.aim == "fix"


async def test_a_plan_is_made_and_nothing_else(harness: EventHarness) -> None:
    await harness.says("/agent plan")
    job_context = harness.job.job_context
    assert (job_context.aim, job_context.publish_target, harness.job.job.plan_mode) == ("plan", "nowhere", "only")


async def test_a_question_is_answered_while_a_job_runs(harness: EventHarness) -> None:
    await harness.labels()
    await harness.says("/agent ask why is it a cent?")
    question = harness.jobs()[1]
    assert (question.job_context.aim, question.job_context.publish_target, question.job.aim) == (
        "ask",
        "nowhere",
        "ask",
    )
    assert question.job.task.request == "why is it a cent?"
    assert question.job.budget == Budget().for_a_look()
    assert len(harness.active_jobs()) == 2


async def test_on_a_pull_request_its_own_branch_is_changed(harness: EventHarness) -> None:
    pull = harness.open_pull()
    await harness.says("/agent fix the rounding", pull)
    job, job_context = harness.job.job, harness.job.job_context
    head = harness.repo.branches["topic"]
    assert (job_context.aim, job_context.publish_target, job_context.pull) == ("follow_up", "same_branch", pull.number)
    assert (job.branch, job.task.base, job_context.expected, job_context.base_ref) == ("topic", head, head, "main")
    assert (job.plan_mode, job.task.follows_up, job.task.request) == ("none", True, "the rounding")
    titles = [section.title for section in job.task.sections]
    assert titles == ["What the pull request changes so far", "Commits on the branch"]
    assert "half = 0.6" in job.task.sections[0].text


async def test_a_label_on_a_pull_request_asks_for_what_is_open_there(harness: EventHarness) -> None:
    await harness.labels(harness.open_pull())
    assert harness.job.job.task.request == FIX_OPEN_CHECKS
    assert harness.job.job_context.aim == "follow_up"


async def test_the_head_of_a_fork_is_read_and_answered_with_a_sibling(harness: EventHarness) -> None:
    pull = harness.open_pull(harness.person("mallory", "none"), fork=999)
    await harness.says("/agent fix it", pull)
    job, job_context = harness.job.job, harness.job.job_context
    assert (job_context.publish_target, job_context.expected, job_context.base_ref) == ("sibling", "", "main")
    assert job.branch == f"agent-fix/issue-{pull.number}-round-better"
    assert job.task.base == harness.repo.branches["topic"]


async def test_a_request_on_a_diff_line_names_that_line(harness: EventHarness) -> None:
    pull = harness.open_pull()
    comment = await harness.says_inline("/agent use decimals here", pull)
    job, job_context = harness.job.job, harness.job.job_context
    (thread,) = job_context.threads
    assert (thread.comment, thread.path, thread.end) == (comment.id, "app/money.py", 1)
    assert thread.thread == harness.repo.threads[0].id
    assert job_context.trigger == f"review_comment:{comment.id}"
    assert harness.reactions() == [("review comment", comment.id, "eyes")]
    assert "app/money.py:1 (the request is about this one)" in job.task.sections[0].text


async def test_a_review_brings_all_its_open_threads(harness: EventHarness) -> None:
    pull = harness.open_pull()
    elsewhere = harness.world.start_thread(
        harness.repo, pull, harness.owner, path="README.md", line=1, body="another day"
    )
    await harness.reviews("/agent do all of this", pull, None, "why 0.6?", "and here?")
    job_context = harness.job.job_context
    assert [thread.path for thread in job_context.threads] == ["app/money.py", "app/money.py"]
    assert elsewhere.comments[0] not in [thread.comment for thread in job_context.threads]
    text = harness.job.job.task.sections[0].text
    assert text.index("and here?") < text.index("another day"), "those that are meant come first"
    assert harness.reactions() == [], "a review has no place for a reaction"


async def test_a_review_that_asks_our_pull_request_for_changes_is_followed(harness: EventHarness) -> None:
    pull = harness.our_pull()
    await harness.reviews("This rounds the wrong way.\n\n> /agent fix it all", pull, None, "why 0.6?")
    job, job_context = harness.job.job, harness.job.job_context
    assert (job_context.aim, job_context.publish_target, job_context.login) == ("revise", "same_branch", "ada")
    assert (job.task.request, job.plan_mode) == ("This rounds the wrong way.", "none")
    assert [thread.path for thread in job_context.threads] == ["app/money.py"]
    assert "why 0.6?" in job.task.sections[0].text
    assert harness.stores.job_queries.follow_up_count(harness.repo.id, pull.number) == 1


async def test_a_review_without_a_text_is_about_its_threads(harness: EventHarness) -> None:
    await harness.reviews("", harness.our_pull(), None, "why 0.6?")
    assert harness.job.job.task.request == REVIEW_REQUEST
    assert len(harness.job.job_context.threads) == 1


async def test_reviews_that_are_for_nobody_of_ours_cost_no_request(harness: EventHarness) -> None:
    await harness.says("/agent status")
    ours, theirs = harness.our_pull(), harness.open_pull()
    before = len(harness.fake_github.github.calls)
    await harness.reviews("Not this way.", theirs)
    await harness.reviews("Well done.", ours, state="APPROVED")
    await harness.reviews("I wonder.", ours, state="COMMENTED")
    await harness.reviews("Not this way.", ours, harness.person("critic[bot]", kind="Bot"))
    assert (harness.jobs(), len(harness.fake_github.github.calls)) == ([], before)


async def test_reviews_are_not_followed_where_the_repository_says_so(harness: EventHarness) -> None:
    harness.configure("iterate: {reviews: false}\n")
    await harness.reviews("Not this way.", harness.our_pull())
    assert (harness.jobs(), harness.answers()) == ([], [])


async def test_after_so_many_reviews_a_person_must_decide(harness: EventHarness) -> None:
    harness.configure("iterate: {max: 1}\n")
    pull = harness.our_pull()
    await harness.reviews("Not this way.", pull)
    harness.ends("pr_updated")
    await harness.reviews("Nor that way.", pull)
    assert len(harness.jobs()) == 1
    assert "again after 1 round" in harness.answer
    assert [effect.add for _, effect in harness.effects() if isinstance(effect, ChangeLabels)] == [
        ("agent-needs-human",)
    ]
    await harness.reviews("/agent this way", pull)
    assert [job.job_context.aim for job in harness.jobs()] == ["revise", "follow_up"]


async def test_a_dismissed_review_starts_nothing(harness: EventHarness) -> None:
    harness.hooks.held = True
    review = await harness.reviews("Not this way.", harness.our_pull())
    review.state = "DISMISSED"
    await harness.deliver()
    assert harness.jobs() == []
    assert harness.decided() == ["skip withdrawn: the review was deleted or dismissed"]


async def test_resolved_threads_are_ignored(harness: EventHarness) -> None:
    pull = harness.open_pull()
    done = harness.world.start_thread(harness.repo, pull, harness.owner, path="README.md", line=1, body="long settled")
    done.resolved = True
    await harness.says("/agent fix it", pull)
    assert "long settled" not in "".join(section.text for section in harness.job.job.task.sections)


@pytest.mark.parametrize("verb", ["fix", "plan", "ask something"])
async def test_each_beginning_works_on_issues_pull_requests_lines_and_reviews(harness: EventHarness, verb: str) -> None:
    pulls = [harness.open_pull(branch=f"topic-{number}") for number in range(3)]
    await harness.says(f"/agent {verb}")
    await harness.says(f"/agent {verb}", pulls[0])
    await harness.says_inline(f"/agent {verb}", pulls[1])
    await harness.reviews(f"/agent {verb}", pulls[2])
    aims = [job.job_context.aim for job in harness.jobs()]
    wanted = {"fix": ["fix"] + ["follow_up"] * 3}.get(verb, [verb.split(maxsplit=1)[0]] * 4)
    assert aims == wanted


async def test_the_repositorys_choices_stand_between_the_command_and_the_server(harness: EventHarness) -> None:
    harness.configure("model: their/model\nplan: approve\nbudget: {usd: 3, minutes: 10}\nbranch: bot/{number}-{slug}\n")
    await harness.says("/agent fix --model my/model")
    job = harness.job.job
    assert (job.model, job.plan_mode, job.branch) == ("my/model", "approve", "bot/1-totals-are-a-cent-too-low")
    assert (job.budget.usd, job.budget.minutes, job.budget.steps) == (3_000_000, 10, Budget().steps)
    assert harness.job.job_context.config.plan == "approve"


async def test_a_missing_runner_fails_before_the_start(harness: EventHarness) -> None:
    await harness.says("/agent fix --runner codex")
    assert not harness.jobs()
    assert "no runner `codex`" in harness.answer


async def test_an_empty_repository_is_reported_before_anything_begins(harness: EventHarness) -> None:
    harness.repo.path.joinpath("refs/heads/main").unlink(missing_ok=True)
    harness.repo.path.joinpath("packed-refs").unlink(missing_ok=True)
    await harness.labels()
    assert not harness.jobs()
    assert "no commit yet" in harness.answer


async def test_comments_that_are_not_commands_cost_no_request(harness: EventHarness) -> None:
    await harness.says("/agent status")
    before = len(harness.fake_github.github.calls)
    await harness.says("thanks, all of you")
    await harness.says("/agent fix", by=harness.world.bot)
    assert len(harness.fake_github.github.calls) == before
    assert not harness.jobs()


async def test_help_lists_the_commands(harness: EventHarness) -> None:
    await harness.says("/agent help")
    assert "`/agent approve`" in harness.answer
    assert "Options for all commands" in harness.answer


async def test_a_mistyped_command_gets_a_suggestion(harness: EventHarness) -> None:
    await harness.says("/agent statsu")
    assert "Try `/agent status`." in harness.answer
    assert not harness.jobs()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("closed", "reopen it"),
        ("locked", "locked"),
        ("assigned", "assigned to someone else"),
        ("linked", "open for this issue"),
    ],
)
async def test_a_reason_is_given_if_nothing_starts(harness: EventHarness, how: str, words: str) -> None:
    match how:
        case "closed":
            harness.issue.state = "closed"
        case "locked":
            harness.issue.locked = True
        case "assigned":
            harness.issue.assignees.append(harness.person("grace"))
        case _:
            harness.open_pull().closes = harness.issue.number
    await harness.says("/agent fix")
    assert not harness.jobs()
    assert words in harness.answer
    assert harness.answer.startswith("Nothing was started: ")


async def test_an_archived_repository_gets_no_comment(harness: EventHarness) -> None:
    harness.repo.archived = True
    await harness.labels()
    assert (harness.jobs(), harness.effects()) == ([], [])


async def test_a_renamed_repositorys_pull_requests_have_outcomes(harness: EventHarness) -> None:
    await harness.labels()
    pull = harness.our_pull()
    harness.ends("pr_opened", url=f"https://github.example/ada/sample/pull/{pull.number}")
    harness.world.turn(pull, harness.owner, "closed")
    harness.repo.rename("renamed")
    for seconds in (0.0, LOOK_AGAIN.total_seconds() + 1):
        harness.world.tick(seconds)
        await harness.trigger_loops.record_outcomes()
    (outcome,) = harness.stores.outcomes.since(0.0, harness.world.now.timestamp())
    assert outcome.pull_state == "closed"
