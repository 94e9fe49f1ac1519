"""A job's past as an earlier version left it: kept in `history.json`, and brought into a server's rows of today.

`python -m tests.chaos.stored_history` records it anew: only when WORKFLOW_VERSION was raised, because it must not
follow
the code but stay what is out there.
"""

import asyncio
import base64
import json
import os
import signal
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.config.settings import settings_from
from app.core.job import Job
from app.core.task import Issue
from app.jobs.engine import WORKFLOW_VERSION
from app.jobs.queue import JobClaim
from app.jobs.tables import blobs
from app.llm.replay import RecordingHeader
from app.llm.sql_ledger import calls
from app.server.context import ServerContext
from app.server.launch.base import ChildProcesses
from tests.chaos.server import BODY, PROJECT, TITLE, record
from tests.support.repositories import make_repository
from tests.support.server_jobs import issue_ref, job, job_context, trigger

KEPT = Path(__file__).with_name("history.json")
KEPT_0_1 = Path(__file__).with_name("history_0_1.json")
"""The past of a job of 0.1, whose steps were others (workflow version 4). Never recorded anew."""
UNTIL = "turn.2.act.before"
"""The death before which all of it happened."""
JOB = "history"
_STEPS = "SELECT function_id, function_name, output FROM operation_outputs ORDER BY function_id"


class ArchivedJob:
    """A server's premises with one job, whose process is started by hand."""

    def __init__(self, where: Path, recording: Path, **fields: Any) -> None:
        """`fields` are those of the job that differ."""
        self.where = where
        self.environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.server_context = ServerContext(settings_from(self.environment, where / "state"))
        self.server_context.prepare()
        mirror = self.server_context.mirror(issue_ref().repository)
        mirror.ensure()
        base = mirror.fetch(make_repository(where / "sample", PROJECT), "HEAD")
        issue = Issue(title=TITLE, body=BODY, number=issue_ref().number)
        task = job(JOB).task.model_copy(update={"base": base, "issue": issue})
        self.job: Job = job(JOB, task=task, model=f"recorded/{recording}", **fields)
        self.server_context.queue.admit(self.job, job_context(), trigger("k"), ready=True)

    async def work(self, failpoint: str = "") -> int:
        """One process on it; how it ended."""
        settings = settings_from({**self.environment, "AGENT_FIX_FAILPOINT": failpoint}, self.where / "state")
        me = f"{os.uname().nodename[:32]}:{os.getpid()}:0"
        claim = self.server_context.queue.claim(me, self.server_context.limits)
        assert isinstance(claim, JobClaim)
        process = await ChildProcesses(settings).start(claim)
        code = await asyncio.wait_for(process.wait(), 120)
        self.server_context.queue.release(claim, crashed=code == -signal.SIGKILL)
        return code

    def history(self) -> dict[str, Any]:
        """What its steps came to, with what they refer to."""
        with self.journal() as journal:
            steps = [[number, name, output] for number, name, output in journal.execute(_STEPS)]
        with self.server_context.engine.connect() as db:
            kept = {row.digest: base64.b64encode(row.content).decode() for row in db.execute(blobs.select())}
            bought = [dict(row) for row in db.execute(calls.select()).mappings()]
        return {"job": self.job.model_dump(mode="json"), "steps": steps, "blobs": kept, "calls": bought}

    def bring_in(self, history: dict[str, Any], version: str = WORKFLOW_VERSION) -> None:
        """As if all of this had happened here. The job's process has begun, and died before its first step."""
        with self.journal() as journal:
            journal.execute("UPDATE workflow_status SET application_version = ?", (f"{version}.{JOB}",))
            for number, name, output in history["steps"]:
                values = (JOB, number, name, output, "json", "agent-fix")
                journal.execute(
                    "INSERT INTO operation_outputs (workflow_uuid, function_id, function_name, output, serialization,"
                    " application_name) VALUES (?, ?, ?, ?, ?, ?)",
                    values,
                )
            journal.commit()
        with self.server_context.engine.begin() as db:
            for digest, content in history["blobs"].items():
                db.execute(blobs.insert().values(job=JOB, digest=digest, content=base64.b64decode(content)))
            db.execute(sa.delete(calls))
            for row in history["calls"]:
                db.execute(calls.insert().values(row))

    def journal(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self.where / "state" / "journal.db"))


def silent(path: Path) -> Path:
    """A recording without one answer that was given before: whoever asks for it again fails."""
    path.write_text(RecordingHeader(model="scripted/small").model_dump_json() + "\n" + _one_answer_to_nothing())
    return path


def _one_answer_to_nothing() -> str:
    return json.dumps({"key": "never asked", "answer": {}}) + "\n"


async def _record(where: Path) -> dict[str, Any]:
    archive = ArchivedJob(where, record(where / "recorded.jsonl"))
    assert await archive.work(UNTIL) == -signal.SIGKILL
    return archive.history()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(_record(Path(directory)))
    found["job"]["model"] = "recorded/answers"
    KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
