"""What an earlier version stored is replayed by the code of today (R32): a change of the steps' order fails here.

Where such a change is meant, raise `WORKFLOW_VERSION`: jobs in flight are then told so (`test_engine_kills`), and
record the history anew.
"""

import json
from pathlib import Path

import sqlalchemy as sa

from app.core.job import Job
from app.core.patch import Patch
from app.jobs.engine import WORKFLOW_VERSION
from app.jobs.store import JobBlobs
from app.llm.sql_ledger import calls
from app.publish.effects import OpenDraftPullRequest
from tests.chaos.server import MENDED
from tests.chaos.stored_history import JOB, KEPT, ArchivedJob, silent

RECORDED_BY = "5"


async def test_a_job_that_an_earlier_version_began_is_ended_by_this_one(tmp_path: Path) -> None:
    history = json.loads(KEPT.read_text())
    archive = ArchivedJob(tmp_path, silent(tmp_path / "silent.jsonl"))
    assert await archive.work("plan.1.answer.before,baseline.before") == -9
    archive.bring_in(history)
    assert await archive.work() == 0
    row = archive.server_context.job_store().get(JOB)
    assert row is not None
    assert row.result is not None
    assert (row.state, row.result["verification"]["verdict"]) == ("publishing", "proved")
    (effect,) = archive.server_context.outbox.of(JOB)
    assert isinstance(effect.effect, OpenDraftPullRequest)
    patch = Patch.model_validate_json(JobBlobs(archive.server_context.engine, JOB).get(effect.effect.recipe.patch))
    assert {change.path: change.content for change in patch.changes}["money.py"] == MENDED.encode()
    with archive.server_context.engine.connect() as db:
        assert db.execute(sa.select(sa.func.count()).select_from(calls)).scalar() == len(history["calls"])
    with archive.journal() as journal:
        names = [name for (name,) in journal.execute("SELECT function_name FROM operation_outputs")]
    assert len(names) == len(set(names)) > len(history["steps"]), "it went on behind what was stored"


def test_a_stored_job_of_an_earlier_version_can_be_read() -> None:
    """Whatever is stored as JSON may gain fields, and lose none that a stored job has."""
    assert Job.model_validate(json.loads(KEPT.read_text())["job"]).id == JOB


def test_the_history_is_of_this_version() -> None:
    assert WORKFLOW_VERSION == RECORDED_BY, "record the history anew: python -m tests.chaos.stored_history"
