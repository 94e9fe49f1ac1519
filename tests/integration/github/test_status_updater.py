"""Every job is shown by one comment, labels, a reaction and a check run, from rows alone and not too often."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.core.job import JobResult, JobState
from app.core.model_usage import DOLLAR, Totals
from app.core.plan import Plan, render_plan
from app.github.base import CommentState, read_marker
from app.jobs.tables import job_contexts, jobs
from app.llm.base import Usage
from app.llm.sql_ledger import SqlLedger
from app.publish.outbox import MAX_EFFECTS
from app.publish.status_text import read_plan
from app.publish.status_updater import labels
from tests.support.github.fake import FakeGitHubSetup, make_fake_github
from tests.support.github.world import Pull
from tests.support.publisher_harness import PublisherHarness
from tests.unit.publish.test_status_text import PLAN, STATES


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    fake_github = make_fake_github(tmp_path)
    fake_github.issue.labels = ["bug", "agent-fix"]
    return fake_github


def edits(fake_github: FakeGitHubSetup) -> list[str]:
    return [call.method for call in fake_github.github.mutations() if "/comments" in call.path]


def reactions(fake_github: FakeGitHubSetup) -> list[str]:
    return [content for _, _, _, content in fake_github.repo.reactions]


async def test_a_job_reports_its_progress_in_one_comment(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    await harness.everything()
    assert [text.splitlines()[0] for text in harness.comments()] == ["### ⏳ Queued"]
    assert sorted(fake_github.issue.labels) == ["agent-in-progress", "bug"]
    assert reactions(fake_github) == ["eyes"]
    fake_github.world.tick(11)
    key = await harness.work(made)
    await harness.everything()
    fake_github.world.tick(11)
    await harness.everything()
    assert harness.effect_status(key).state == "done"
    (text,) = harness.comments()
    (pull,) = fake_github.repo.pulls
    assert text.startswith("### 🚀 A draft pull request is open\n\n")
    assert f"/pull/{pull.number}\n" in text
    assert "[job j1](https://bot.example/jobs/j1)" in text
    assert read_marker(text) == ("j1", CommentState(state="pr_opened"))
    assert sorted(fake_github.issue.labels) == ["agent-done", "bug"]
    assert reactions(fake_github) == ["eyes", "rocket"]
    (check,) = fake_github.repo.checks
    assert (check.head_sha, check.conclusion) == (fake_github.repo.branches[made.branch], "success")
    assert check.title is not None
    assert check.title.startswith("Proved.")
    assert "| Reproduction | 🔴 fails" in (check.summary or "")
    before = len(fake_github.github.mutations())
    fake_github.world.tick(3_600)
    await harness.everything()
    assert len(fake_github.github.mutations()) == before, "there is no more to be told"


async def test_progress_is_posted_less_and_less_often_and_state_changes_at_once(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    harness.store.enter(made.id, "working")
    told = []
    for second in range(0, 3_600, 5):
        fake_github.world.tick(5)
        harness.store.add_progress(made.id, "command", f"bash {second}")
        if await harness.status_updater.post_due():
            told.append(second)
    assert told[:4] == [0, 10, 20, 30]
    assert 40 <= len(told) <= 55, "an hour's work is no stream of edits"
    harness.store.enter(made.id, "verifying")
    assert await harness.status_updater.post_due() == 1


async def test_an_unchanged_status_is_not_edited(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    await harness.admit()
    for _ in range(5):
        await harness.everything()
        fake_github.world.tick(11)
    assert edits(fake_github) == ["POST"]


async def test_the_status_shows_cost_and_progress_from_the_database(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    ledger = SqlLedger(harness.engine, made.id, 5_000_000)
    ledger.reserve("turn.1", 1_000_000)
    ledger.book("turn.1", Usage(prompt_tokens=1_000, completion_tokens=10, cost=420_000))
    harness.store.enter(made.id, "working")
    harness.store.add_progress(made.id, "plan", render_plan(PLAN))
    harness.store.add_progress(made.id, "step", "turn 7 of at most 100")
    harness.store.add_progress(made.id, "command", "bash \x1b[31mpytest\x1b[0m @octocat")
    await harness.everything()
    (text,) = harness.comments()
    assert "turn 7 of 100 · $0.42 of $5.00" in text
    assert "- [x] Plan: Half cents are rounded down." in text
    assert "Recent actions: `bash pytest @octocat`" in text


async def test_first_comment_says_what_earlier_jobs_cost(harness: PublisherHarness) -> None:
    result = JobResult(exit_status="pr_opened", usage=Totals(cost=DOLLAR), seconds=300, turns=4)
    for _ in range(5):
        made = await harness.admit()
        harness.store.finish(made.id, "pr_opened", "", result.model_dump(mode="json"))
    made = await harness.admit()
    await harness.everything()
    said = "Earlier jobs here cost $1.00 and took 5 min (median of 5); nine in ten at most $1.00 and 5 min."
    assert said in harness.comments()[-1].replace("&#36;", "$").replace("\\", ""), harness.comments()[-1]
    harness.store.enter(made.id, "working")
    harness.fake_github.world.tick(60)
    await harness.everything()
    assert "Earlier jobs" not in harness.comments()[-1]


async def test_a_plan_that_waits_can_be_read_from_the_comment(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    harness.store.store_result(made.id, JobResult(exit_status="awaiting_approval", plan=PLAN).model_dump(mode="json"))
    harness.store.enter(made.id, "awaiting_approval", "The plan is waiting for approval.")
    await harness.everything()
    (text,) = harness.comments()
    assert "Round half up." in (read_plan(text) or "")
    assert sorted(fake_github.issue.labels) == ["agent-needs-human", "bug"]
    assert reactions(fake_github) == ["eyes"]


async def test_edits_by_people_stay_while_the_plan_waits(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    harness.store.store_result(made.id, JobResult(exit_status="awaiting_approval", plan=PLAN).model_dump(mode="json"))
    harness.store.enter(made.id, "awaiting_approval", "The plan is waiting for approval.")
    await harness.everything()
    (number,) = fake_github.issue.comments
    comment = fake_github.repo.comments[number]
    fake_github.world.edit(comment, comment.body.replace("Add a test.", "Add two tests."))
    for _ in range(20):
        fake_github.world.tick(25)
        await harness.everything()
    assert "Add two tests." in (read_plan(comment.body) or "")


async def test_questions_are_posted_after_the_job_has_ended(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    asked = Plan(summary="", questions=("Refunds, too?",))
    result = JobResult(exit_status="needs_input", plan=asked).model_dump(mode="json")
    harness.store.finish(made.id, "needs_input", "", result)
    await harness.everything()
    (text,) = harness.comments()
    assert "- Refunds, too?" in text
    assert reactions(fake_github) == ["eyes"], "a question is no end"


async def test_a_resumed_job_is_announced_again(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit()
    harness.store.enter(made.id, "paused", "The budget is spent.")
    await harness.everything()
    assert "### ⏸️ Paused" in harness.comments()[0]
    assert harness.queue.resume(made.id)
    fake_github.world.tick(11)
    await harness.everything()
    assert "### ⏳" in harness.comments()[0]
    assert sorted(fake_github.issue.labels) == ["agent-in-progress", "bug"]


async def test_a_question_during_a_job_changes_no_label(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit(aim="ask", publish_target="nowhere", trigger="comment:77", job_changes={"aim": "ask"})
    comment = fake_github.world.comment(fake_github.repo, fake_github.issue, fake_github.owner, "/agent ask where?")
    with harness.engine.begin() as db:
        where = harness.job_with_context(made.id).job_context.model_copy(update={"trigger": f"comment:{comment.id}"})
        db.execute(job_contexts.update().values(context=where.model_dump(mode="json")))
    answer = JobResult(exit_status="answered", summary="In `app/money.py`.")
    harness.store.finish(made.id, "answered", "", answer.model_dump(mode="json"))
    await harness.everything()
    assert fake_github.issue.labels == ["bug", "agent-fix"]
    assert harness.comments()[-1].startswith("### 💬 Answer\n\nIn `app/money.py`.")
    assert reactions(fake_github) == ["eyes", "rocket"]


async def test_a_pull_requests_job_comments_there(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    fake_github.world.push_as_human(fake_github.repo, "feature", {"a.py": "x\n"})
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", pull=Pull("feature", "main", draft=False)
    )
    await harness.admit(number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number)
    await harness.everything()
    assert harness.comments() == []
    assert len(harness.comments(pull.number)) == 1


async def test_an_error_is_in_the_log_under_the_id_that_people_see(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, caplog: pytest.LogCaptureFixture
) -> None:
    made = await harness.admit()
    harness.store.finish(made.id, "error", "It broke.", JobResult(exit_status="error").model_dump(mode="json"))
    with caplog.at_level(logging.WARNING, "app.publish.status_updater"):
        await harness.everything()
    (record,) = [record for record in caplog.records if record.name == "app.publish.status_updater"]
    assert f"(error `{record.__dict__['error']}`)" in harness.comments()[0]


async def test_the_worker_that_took_over_updates_the_comment(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """An updater with an old row changes nothing; the next round has the new one."""
    made = await harness.admit()
    old = harness.job_with_context(made.id)
    with harness.engine.begin() as db:
        db.execute(jobs.update().values(epoch=7))

    class StaleQueries(type(harness.job_queries)):  # type: ignore[misc]
        def not_posted(self, *_: object) -> tuple[object, ...]:
            return (old,)

    stale = replace(harness.status_updater, job_queries=StaleQueries(harness.engine, harness.now))
    assert await stale.post_due() == 0
    assert await harness.status_updater.post_due() == 1


async def test_an_unreadable_job_does_not_block_others(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await harness.admit()
    other = fake_github.world.open_issue(fake_github.repo, fake_github.owner, "Another")
    await harness.admit(number=other.number)
    harness.store.store_result(broken.id, {"exit_status": "of another version"})
    await harness.everything()
    assert harness.comments() == []
    assert len(harness.comments(other.number)) == 1
    assert await harness.status_updater.post_due() == 0
    told = [record for record in caplog.records if "failed for job j1" in record.getMessage()]
    assert len(told) == 1, "it is left alone for a while"


async def test_one_job_cannot_flood_a_repository(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit(trigger="issue")
    with harness.engine.begin() as db:
        for number in range(MAX_EFFECTS):
            db.exec_driver_sql(
                "INSERT INTO effects (key, job, epoch, installation, issue_ref, effect, digest, revision, state, due, "
                "attempts, deaths, owner, reason) VALUES (?, ?, 0, 1, '{}', '{}', '', 1, 'done', 0, 0, 0, '', '')",
                (f"k{number}", made.id),
            )
    assert await harness.status_updater.post_due() == 1
    with harness.engine.connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM effects")).scalar() == MAX_EFFECTS


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_one_label_of_ours_at_most(state: JobState) -> None:
    effect = labels(state)
    assert len(effect.add) <= 1
    assert set(effect.add).isdisjoint(effect.remove)
    assert "agent-fix" in effect.remove
    assert len({*effect.add, *effect.remove}) == 4
