"""People are told of every job by one comment, the labels, an emoji and a check, from rows alone and in calm."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.job import JobState
from app.jobs.tables import commissions, jobs
from app.model.base import Usage
from app.model.sql_ledger import SqlLedger
from app.plan import Plan
from app.plan_text import render_plan
from app.publish.herald import end_reaction, labels
from app.publish.intents import MOST_WISHES
from app.publish.planned import read_plan
from app.result import Result
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.world import Pull
from tests.publishing import Desk, desk_at
from tests.test_status import PLAN, STATES


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    ground = make_ground(tmp_path)
    ground.issue.labels = ["bug", "agent-fix"]
    return ground


@pytest.fixture
async def desk(ground: Ground, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(ground, tmp_path) as desk:
        yield desk


def edits(ground: Ground) -> list[str]:
    return [call.method for call in ground.github.mutations() if "/comments" in call.path]


def reactions(ground: Ground) -> list[str]:
    return [content for _, _, _, content in ground.repo.reactions]


async def test_a_job_from_label_to_draft_is_told_in_one_comment(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    await desk.everything()
    assert [text.splitlines()[0] for text in desk.comments()] == ["### ⏳ Waiting for its turn"]
    assert sorted(ground.issue.labels) == ["agent-in-progress", "bug"]
    assert reactions(ground) == ["eyes"]
    ground.world.tick(11)
    key = await desk.work(made)
    await desk.everything()
    ground.world.tick(11)
    await desk.everything()
    assert desk.standing(key).state == "done"
    (text,) = desk.comments()
    (pull,) = ground.repo.pulls
    assert text.startswith("### 🚀 A draft pull request is open\n\n")
    assert f"/pull/{pull.number}\n" in text
    assert "[job j1](https://bot.example/jobs/j1)" in text
    assert sorted(ground.issue.labels) == ["agent-done", "bug"]
    assert reactions(ground) == ["eyes", "rocket"]
    (check,) = ground.repo.checks
    assert (check.head_sha, check.conclusion) == (ground.repo.branches[made.branch], "success")
    assert check.title is not None
    assert check.title.startswith("Proved.")
    assert "| Reproduction | 🔴 fails" in (check.summary or "")
    before = len(ground.github.mutations())
    ground.world.tick(3_600)
    await desk.everything()
    assert len(ground.github.mutations()) == before, "there is no more to be told"


async def test_news_are_told_ever_more_rarely_and_changes_of_state_at_once(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    desk.store.enter(made.id, "working")
    told = []
    for second in range(0, 3_600, 5):
        ground.world.tick(5)
        desk.store.say(made.id, "command", f"bash {second}")
        if await desk.herald.tell():
            told.append(second)
    assert told[:4] == [0, 10, 20, 30]
    assert 40 <= len(told) <= 55, "an hour's work is no stream of edits"
    desk.store.enter(made.id, "verifying")
    assert await desk.herald.tell() == 1


async def test_where_nothing_changed_nothing_is_edited(desk: Desk, ground: Ground) -> None:
    await desk.admit()
    for _ in range(5):
        await desk.everything()
        ground.world.tick(11)
    assert edits(ground) == ["POST"]


async def test_what_it_costs_and_does_is_read_from_the_tables(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    ledger = SqlLedger(desk.engine, made.id, 5_000_000)
    ledger.reserve("turn.1", 1_000_000)
    ledger.book("turn.1", Usage(prompt_tokens=1_000, completion_tokens=10, cost=420_000))
    desk.store.enter(made.id, "working")
    desk.store.say(made.id, "plan", render_plan(PLAN))
    desk.store.say(made.id, "step", "turn 7 of at most 100")
    desk.store.say(made.id, "command", "bash \x1b[31mpytest\x1b[0m @octocat")
    await desk.everything()
    (text,) = desk.comments()
    assert "turn 7 of 100 · $0.42 of $5.00" in text
    assert "- [x] Plan: Half cents are rounded down." in text
    assert "Lately: `bash pytest @octocat`" in text


async def test_a_plan_that_waits_can_be_read_from_the_comment(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    desk.store.keep(made.id, Result(exit_status="awaiting_approval", plan=PLAN).model_dump(mode="json"))
    desk.store.enter(made.id, "awaiting_approval", "The plan waits for approval.")
    await desk.everything()
    (text,) = desk.comments()
    assert "Round half up." in (read_plan(text) or "")
    assert sorted(ground.issue.labels) == ["agent-needs-human", "bug"]
    assert reactions(ground) == ["eyes"]


async def test_what_people_edit_while_it_waits_stays(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    desk.store.keep(made.id, Result(exit_status="awaiting_approval", plan=PLAN).model_dump(mode="json"))
    desk.store.enter(made.id, "awaiting_approval", "The plan waits for approval.")
    await desk.everything()
    (number,) = ground.issue.comments
    comment = ground.repo.comments[number]
    ground.world.edit(comment, comment.body.replace("Add a test.", "Add two tests."))
    for _ in range(20):
        ground.world.tick(25)
        await desk.everything()
    assert "Add two tests." in (read_plan(comment.body) or "")


async def test_questions_are_told_although_the_job_lives_no_more(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    asked = Plan(summary="", questions=("Refunds, too?",))
    result = Result(exit_status="needs_input", plan=asked).model_dump(mode="json")
    desk.store.finish(made.id, "needs_input", "", result)
    await desk.everything()
    (text,) = desk.comments()
    assert "- Refunds, too?" in text
    assert reactions(ground) == ["eyes"], "a question is no end"


async def test_a_job_that_is_taken_up_again_is_told_of_again(desk: Desk, ground: Ground) -> None:
    made = await desk.admit()
    desk.store.enter(made.id, "paused", "The budget is spent.")
    await desk.everything()
    assert "### ⏸️ Paused" in desk.comments()[0]
    assert desk.queue.resume(made.id)
    ground.world.tick(11)
    await desk.everything()
    assert "### ⏳" in desk.comments()[0]
    assert sorted(ground.issue.labels) == ["agent-in-progress", "bug"]


async def test_a_question_beside_the_work_changes_no_label(desk: Desk, ground: Ground) -> None:
    made = await desk.admit(aim="ask", goal="nowhere", trigger="comment:77", job_changes={"aim": "ask"})
    comment = ground.world.comment(ground.repo, ground.issue, ground.owner, "/agent ask where?")
    with desk.engine.begin() as db:
        where = desk.commissioned(made.id).commission.model_copy(update={"trigger": f"comment:{comment.id}"})
        db.execute(commissions.update().values(commission=where.model_dump(mode="json")))
    answer = Result(exit_status="answered", summary="In `app/money.py`.")
    desk.store.finish(made.id, "answered", "", answer.model_dump(mode="json"))
    await desk.everything()
    assert ground.issue.labels == ["bug", "agent-fix"]
    assert desk.comments()[-1].startswith("### 💬 Answer\n\nIn `app/money.py`.")
    assert reactions(ground) == ["eyes", "rocket"]


async def test_a_job_of_a_pull_request_is_told_there(desk: Desk, ground: Ground) -> None:
    ground.world.push_as_human(ground.repo, "feature", {"a.py": "x\n"})
    pull = ground.world.open_issue(ground.repo, ground.owner, "Mine", pull=Pull("feature", "main", draft=False))
    await desk.admit(number=pull.number, aim="follow_up", goal="same_branch", pull=pull.number)
    await desk.everything()
    assert desk.comments() == []
    assert len(desk.comments(pull.number)) == 1


async def test_an_error_is_in_the_log_under_the_id_that_people_see(
    desk: Desk, ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    made = await desk.admit()
    desk.store.finish(made.id, "error", "It broke.", Result(exit_status="error").model_dump(mode="json"))
    with caplog.at_level(logging.WARNING, "app.publish.herald"):
        await desk.everything()
    (record,) = [record for record in caplog.records if record.name == "app.publish.herald"]
    assert f"(error `{record.__dict__['error']}`)" in desk.comments()[0]


async def test_who_took_the_job_over_tells_of_it(desk: Desk, ground: Ground) -> None:
    """A herald with an old row wishes nothing; the next look has the new one."""
    made = await desk.admit()
    old = desk.commissioned(made.id)
    with desk.engine.begin() as db:
        db.execute(jobs.update().values(epoch=7))

    class Behind(type(desk.roster)):  # type: ignore[misc]
        def untold(self, *_: object) -> tuple[object, ...]:
            return (old,)

    desk.herald._roster = Behind(desk.engine, desk.now)
    assert await desk.herald.tell() == 0
    desk.herald._roster = desk.roster
    assert await desk.herald.tell() == 1


async def test_a_job_whose_rows_cannot_be_read_keeps_no_other_waiting(
    desk: Desk, ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await desk.admit()
    other = ground.world.open_issue(ground.repo, ground.owner, "Another")
    await desk.admit(number=other.number)
    desk.store.keep(broken.id, {"exit_status": "of another version"})
    await desk.everything()
    assert desk.comments() == []
    assert len(desk.comments(other.number)) == 1
    assert await desk.herald.tell() == 0
    told = [record for record in caplog.records if "failed for job j1" in record.getMessage()]
    assert len(told) == 1, "it is left alone for a while"


async def test_one_job_cannot_flood_a_repository(desk: Desk, ground: Ground) -> None:
    made = await desk.admit(trigger="issue")
    with desk.engine.begin() as db:
        for number in range(MOST_WISHES):
            db.exec_driver_sql(
                "INSERT INTO intents (key, job, epoch, installation, place, intent, digest, revision, state, due, "
                "attempts, owner, reason) VALUES (?, ?, 0, 1, '{}', '{}', '', 1, 'done', 0, 0, '', '')",
                (f"k{number}", made.id),
            )
    assert await desk.herald.tell() == 1
    with desk.engine.connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM intents")).scalar() == MOST_WISHES


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_one_label_of_ours_at_most(state: JobState) -> None:
    wish = labels(state)
    assert len(wish.add) <= 1
    assert set(wish.add).isdisjoint(wish.remove)
    assert "agent-fix" in wish.remove
    assert len({*wish.add, *wish.remove}) == 4


def test_reactions_are_for_the_end() -> None:
    found = {state: end_reaction(state) for state in STATES}
    assert {state for state, emoji in found.items() if emoji == "rocket"} == {"pr_opened", "pr_updated", "answered"}
    assert found["needs_input"] is found["working"] is found["paused"] is None
    assert found["error"] == "confused"
