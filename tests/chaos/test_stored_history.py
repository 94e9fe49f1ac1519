"""What an earlier version stored is replayed by the code of today (R32): a change of the steps' order fails here.

Where such a change is meant, raise `WORKFLOW_VERSION`: jobs in flight then start over, and record the history
anew.
"""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.core.job import Job
from app.core.patch import Patch
from app.core.plan import Plan
from app.jobs.engine import WORKFLOW_VERSION
from app.jobs.job_actions import JobActions, PlanVersions
from app.jobs.store import JobBlobs
from app.llm.sql_ledger import calls
from app.publish.effects import OpenDraftPullRequest
from tests.chaos.server import CALLS, MENDED, PRICE, record
from tests.chaos.stored_history import JOB, KEPT, KEPT_0_1, ArchivedJob, silent

RECORDED_BY = "5"


async def test_a_job_that_an_earlier_version_began_is_ended_by_this_one(tmp_path: Path) -> None:
    history = json.loads(KEPT.read_text())
    archive = ArchivedJob(tmp_path, silent(tmp_path / "silent.jsonl"))
    assert await archive.work("plan.1.answer.before,baseline.before") == -9
    archive.bring_in(history)
    assert await archive.work() == 0
    assert ended(archive) == ("publishing", "proved")
    (effect,) = archive.server_context.outbox.of(JOB)
    assert isinstance(effect.effect, OpenDraftPullRequest)
    patch = Patch.model_validate_json(JobBlobs(archive.server_context.engine, JOB).get(effect.effect.recipe.patch))
    assert {change.path: change.content for change in patch.changes}["money.py"] == MENDED.encode()
    with archive.server_context.engine.connect() as db:
        assert db.execute(sa.select(sa.func.count()).select_from(calls)).scalar() == len(history["calls"])
    with archive.journal() as journal:
        names = [name for (name,) in journal.execute("SELECT function_name FROM operation_outputs")]
    assert len(names) == len(set(names)) > len(history["steps"]), "it went on behind what was stored"


async def test_a_job_of_other_steps_starts_over_with_what_it_cost(tmp_path: Path) -> None:
    archive = ArchivedJob(tmp_path, record(tmp_path / "recorded.jsonl"))
    assert await archive.work("plan.1.answer.before,baseline.before") == -9
    history = json.loads(KEPT_0_1.read_text())
    archive.bring_in(history, version="4")
    assert await archive.work("turn.2.act.before") == -9
    assert await archive.work() == 0
    assert ended(archive) == ("publishing", "proved")
    with archive.server_context.engine.connect() as db:
        names = list(db.execute(sa.select(calls.c.call)).scalars())
    assert sorted(names) == sorted([*(f"earlier.{row['call']}" for row in history["calls"]), *CALLS])
    row = archive.server_context.job_store().get(JOB)
    assert row is not None
    assert row.result is not None
    assert row.result["usage"]["cost"] == sum(each["cost"] for each in history["calls"]) + PRICE * len(CALLS)


async def test_a_plan_of_0_1_that_waited_gets_examples_once_it_is_approved(tmp_path: Path) -> None:
    archive = ArchivedJob(tmp_path, record(tmp_path / "recorded.jsonl"), plan_mode="approve")
    assert await archive.work("plan.1.answer.before,baseline.before") == -9
    archive.bring_in(json.loads(KEPT_0_1.read_text()), version="4")
    place = archive.server_context
    plan = Plan(summary="As Ada has read it.", steps=("Round up",))
    PlanVersions(place.engine, place.clock).record(JOB, plan)
    place.job_store().enter(JOB, "awaiting_approval", "The plan is waiting for approval.")
    actions = JobActions(place.engine, place.clock, place.queue)
    assert actions.approve(JOB, id="a1", who="ada", user=7, version=1) == JOB
    assert await archive.work() == 0
    assert ended(archive) == ("publishing", "proved")
    row = place.job_store().get(JOB)
    assert row is not None
    assert row.result is not None
    assert row.result["plan"]["summary"] == plan.summary
    assert row.result["plan"]["examples"]


def ended(archive: ArchivedJob) -> tuple[str, str]:
    row = archive.server_context.job_store().get(JOB)
    assert row is not None
    assert row.result is not None
    return row.state, row.result["verification"]["verdict"]


@pytest.mark.parametrize("kept", [KEPT, KEPT_0_1])
def test_a_stored_job_of_an_earlier_version_can_be_read(kept: Path) -> None:
    """Whatever is stored as JSON may gain fields; those that are gone are ignored."""
    assert Job.model_validate(json.loads(kept.read_text())["job"]).id == JOB


def test_the_history_is_of_this_version() -> None:
    assert WORKFLOW_VERSION == RECORDED_BY, "record the history anew: python -m tests.chaos.stored_history"
