"""Who asks for what, and what becomes of it: new jobs for labels and words on issues, pull requests, lines, reviews."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.job import Budget
from app.publish.intent import Label
from app.reception.drafting import A_REVIEW_ASKS, MEND_WHAT_IS_OPEN
from tests.front_desk import FrontDesk, front_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def test_a_label_begins_a_job(desk: FrontDesk) -> None:
    await desk.labels()
    job, commission = desk.job.job, desk.job.commission
    assert (commission.aim, commission.goal, commission.trigger) == ("fix", "new_branch", "issue")
    assert (commission.login, commission.base_ref, commission.pull) == ("ada", "main", None)
    assert (job.task.repository, job.task.issue.title) == ("ada/sample", desk.issue.title)
    assert (job.task.base, job.task.base_ref) == (desk.repo.branches["main"], "main")
    assert job.branch == "agent-fix/issue-1-totals-are-a-cent-too-low"
    assert (job.model, job.sandbox, job.plan_mode, job.aim) == ("scripted/one", "bubblewrap", "auto", "fix")
    assert job.task.requester is not None
    assert job.task.requester.name == "Ada Lovelace"
    assert commission.author.name == "agent-fix-test[bot]"
    assert desk.reactions() == [("issue", 1, "eyes")]
    assert (desk.job.row.state, desk.job.ready) == ("queued", False)


async def test_a_comment_begins_a_job_with_the_words_of_who_asked(desk: FrontDesk) -> None:
    comment = await desk.says("/agent fix with decimals --model other/two --budget 2")
    job = desk.job.job
    assert (job.task.request, job.model, job.budget.usd) == ("with decimals", "other/two", 2_000_000)
    assert desk.job.commission.trigger == f"comment:{comment.id}"
    assert desk.reactions() == [("comment", comment.id, "eyes")]


async def test_words_that_are_no_command_begin_one_too(desk: FrontDesk) -> None:
    await desk.says("/agent please use decimals")
    assert desk.job.job.task.request == "please use decimals"
    assert desk.job.commission.aim == "fix"


async def test_a_plan_is_made_and_nothing_else(desk: FrontDesk) -> None:
    await desk.says("/agent plan")
    commission = desk.job.commission
    assert (commission.aim, commission.goal, desk.job.job.plan_mode) == ("plan", "nowhere", "only")


async def test_a_question_is_answered_beside_the_job_that_lives(desk: FrontDesk) -> None:
    await desk.labels()
    await desk.says("/agent ask why is it a cent?")
    question = desk.jobs()[1]
    assert (question.commission.aim, question.commission.goal, question.job.aim) == ("ask", "nowhere", "ask")
    assert question.job.task.request == "why is it a cent?"
    assert question.job.budget == Budget().for_a_question()
    assert len(desk.living()) == 2


async def test_on_a_pull_request_its_own_branch_is_changed(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    await desk.says("/agent fix the rounding", pull)
    job, commission = desk.job.job, desk.job.commission
    head = desk.repo.branches["topic"]
    assert (commission.aim, commission.goal, commission.pull) == ("follow_up", "same_branch", pull.number)
    assert (job.branch, job.task.base, commission.expected, commission.base_ref) == ("topic", head, head, "main")
    assert (job.plan_mode, job.task.follows_up, job.task.request) == ("none", True, "the rounding")
    titles = [section.title for section in job.task.sections]
    assert titles == ["What the pull request changes so far", "Commits on the branch"]
    assert "half = 0.6" in job.task.sections[0].text


async def test_a_label_on_a_pull_request_asks_for_what_is_open_there(desk: FrontDesk) -> None:
    await desk.labels(desk.open_pull())
    assert desk.job.job.task.request == MEND_WHAT_IS_OPEN
    assert desk.job.commission.aim == "follow_up"


async def test_the_head_of_a_fork_is_read_and_answered_with_a_sibling(desk: FrontDesk) -> None:
    pull = desk.open_pull(desk.person("mallory", "none"), fork=999)
    await desk.says("/agent fix it", pull)
    job, commission = desk.job.job, desk.job.commission
    assert (commission.goal, commission.expected, commission.base_ref) == ("sibling", "", "main")
    assert job.branch == f"agent-fix/issue-{pull.number}-round-better"
    assert job.task.base == desk.repo.branches["topic"]


async def test_a_line_of_the_diff_is_what_the_request_is_about(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    comment = await desk.says_inline("/agent use decimals here", pull)
    job, commission = desk.job.job, desk.job.commission
    (thread,) = commission.threads
    assert (thread.comment, thread.path, thread.end) == (comment.id, "app/money.py", 1)
    assert thread.thread == desk.repo.threads[0].id
    assert commission.trigger == f"review_comment:{comment.id}"
    assert desk.reactions() == [("review comment", comment.id, "eyes")]
    assert "app/money.py:1 (the request is about this one)" in job.task.sections[0].text


async def test_a_review_brings_all_its_open_threads(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    elsewhere = desk.world.start_thread(desk.repo, pull, desk.owner, path="README.md", line=1, body="another day")
    await desk.reviews("/agent do all of this", pull, None, "why 0.6?", "and here?")
    commission = desk.job.commission
    assert [thread.path for thread in commission.threads] == ["app/money.py", "app/money.py"]
    assert elsewhere.comments[0] not in [thread.comment for thread in commission.threads]
    text = desk.job.job.task.sections[0].text
    assert text.index("and here?") < text.index("another day"), "those that are meant come first"
    assert desk.reactions() == [], "a review has no place for a reaction"


async def test_a_review_that_asks_our_pull_request_for_changes_is_followed(desk: FrontDesk) -> None:
    pull = desk.our_pull()
    await desk.reviews("This rounds the wrong way.\n\n> /agent fix it all", pull, None, "why 0.6?")
    job, commission = desk.job.job, desk.job.commission
    assert (commission.aim, commission.goal, commission.login) == ("revise", "same_branch", "ada")
    assert (job.task.request, job.plan_mode) == ("This rounds the wrong way.", "none")
    assert [thread.path for thread in commission.threads] == ["app/money.py"]
    assert "why 0.6?" in job.task.sections[0].text
    assert desk.books.roster.rounds(desk.repo.id, pull.number) == 1


async def test_a_review_without_a_text_is_about_its_threads(desk: FrontDesk) -> None:
    await desk.reviews("", desk.our_pull(), None, "why 0.6?")
    assert desk.job.job.task.request == A_REVIEW_ASKS
    assert len(desk.job.commission.threads) == 1


async def test_reviews_that_are_for_nobody_of_ours_cost_no_request(desk: FrontDesk) -> None:
    await desk.says("/agent status")
    ours, theirs = desk.our_pull(), desk.open_pull()
    before = len(desk.ground.github.calls)
    await desk.reviews("Not this way.", theirs)
    await desk.reviews("Well done.", ours, state="APPROVED")
    await desk.reviews("I wonder.", ours, state="COMMENTED")
    await desk.reviews("Not this way.", ours, desk.person("critic[bot]", kind="Bot"))
    assert (desk.jobs(), len(desk.ground.github.calls)) == ([], before)


async def test_reviews_are_not_followed_where_the_repository_says_so(desk: FrontDesk) -> None:
    desk.configure("iterate: {reviews: false}\n")
    await desk.reviews("Not this way.", desk.our_pull())
    assert (desk.jobs(), desk.answers()) == ([], [])


async def test_after_so_many_reviews_a_person_says_how_it_goes_on(desk: FrontDesk) -> None:
    desk.configure("iterate: {max: 1}\n")
    pull = desk.our_pull()
    await desk.reviews("Not this way.", pull)
    desk.ends("pr_updated")
    await desk.reviews("Nor that way.", pull)
    assert len(desk.jobs()) == 1
    assert "again after 1 round" in desk.answer
    assert [wish.add for _, wish in desk.wishes() if isinstance(wish, Label)] == [("agent-needs-human",)]
    await desk.reviews("/agent this way", pull)
    assert [job.commission.aim for job in desk.jobs()] == ["revise", "follow_up"]


async def test_a_dismissed_review_is_not_wished_any_more(desk: FrontDesk) -> None:
    desk.hooks.held = True
    review = await desk.reviews("Not this way.", desk.our_pull())
    review.state = "DISMISSED"
    await desk.deliver()
    assert desk.jobs() == []
    assert desk.decided() == ["skip taken_back: the review was deleted or dismissed"]


async def test_resolved_threads_are_nobodys_business(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    done = desk.world.start_thread(desk.repo, pull, desk.owner, path="README.md", line=1, body="long settled")
    done.resolved = True
    await desk.says("/agent fix it", pull)
    assert "long settled" not in "".join(section.text for section in desk.job.job.task.sections)


@pytest.mark.parametrize("verb", ["fix", "plan", "ask something"])
async def test_each_beginning_works_on_issues_pull_requests_lines_and_reviews(desk: FrontDesk, verb: str) -> None:
    pulls = [desk.open_pull(branch=f"topic-{number}") for number in range(3)]
    await desk.says(f"/agent {verb}")
    await desk.says(f"/agent {verb}", pulls[0])
    await desk.says_inline(f"/agent {verb}", pulls[1])
    await desk.reviews(f"/agent {verb}", pulls[2])
    aims = [job.commission.aim for job in desk.jobs()]
    wanted = {"fix": ["fix"] + ["follow_up"] * 3}.get(verb, [verb.split(maxsplit=1)[0]] * 4)
    assert aims == wanted


async def test_the_repositorys_choices_stand_between_the_command_and_the_server(desk: FrontDesk) -> None:
    desk.configure("model: their/model\nplan: approve\nbudget: {usd: 3, minutes: 10}\nbranch: bot/{number}-{slug}\n")
    await desk.says("/agent fix --model my/model")
    job = desk.job.job
    assert (job.model, job.plan_mode, job.branch) == ("my/model", "approve", "bot/1-totals-are-a-cent-too-low")
    assert (job.budget.usd, job.budget.minutes, job.budget.steps) == (3_000_000, 10, Budget().steps)
    assert desk.job.commission.config.plan == "approve"


async def test_a_runner_that_is_not_here_is_told_before_anything_begins(desk: FrontDesk) -> None:
    await desk.says("/agent fix --runner codex")
    assert not desk.jobs()
    assert "no runner `codex`" in desk.answer


async def test_an_empty_repository_is_told_before_anything_begins(desk: FrontDesk) -> None:
    desk.repo.path.joinpath("refs/heads/main").unlink(missing_ok=True)
    desk.repo.path.joinpath("packed-refs").unlink(missing_ok=True)
    await desk.labels()
    assert not desk.jobs()
    assert "no commit yet" in desk.answer


async def test_what_is_not_for_the_bot_costs_no_request(desk: FrontDesk) -> None:
    await desk.says("/agent status")
    before = len(desk.ground.github.calls)
    await desk.says("thanks, all of you")
    await desk.says("/agent fix", by=desk.world.bot)
    assert len(desk.ground.github.calls) == before
    assert not desk.jobs()


async def test_help_lists_the_commands(desk: FrontDesk) -> None:
    await desk.says("/agent help")
    assert "`/agent approve`" in desk.answer
    assert "Options on any of them" in desk.answer


async def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(desk: FrontDesk) -> None:
    await desk.says("/agent statsu")
    assert "Try `/agent status`." in desk.answer
    assert not desk.jobs()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("closed", "reopen it"),
        ("locked", "locked"),
        ("assigned", "assigned to somebody else"),
        ("linked", "open for it"),
    ],
)
async def test_a_reason_is_given_where_nothing_is_begun(desk: FrontDesk, how: str, words: str) -> None:
    match how:
        case "closed":
            desk.issue.state = "closed"
        case "locked":
            desk.issue.locked = True
        case "assigned":
            desk.issue.assignees.append(desk.person("grace"))
        case _:
            desk.open_pull().closes = desk.issue.number
    await desk.says("/agent fix")
    assert not desk.jobs()
    assert words in desk.answer
    assert desk.answer.startswith("Nothing was started: ")


async def test_no_more_pull_requests_than_the_repository_wants(desk: FrontDesk) -> None:
    desk.configure("max_open_pull_requests: 1\n")
    desk.our_pull()
    await desk.says("/agent fix")
    assert not desk.jobs()
    assert "the most allowed here" in desk.answer


async def test_an_archived_repository_is_left_in_peace(desk: FrontDesk) -> None:
    desk.repo.archived = True
    await desk.labels()
    assert (desk.jobs(), desk.wishes()) == ([], [])
