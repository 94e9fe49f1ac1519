"""Every way in which a text can leave the process that works on a job: none carries a secret, of ours or of others.

A model may say its own key (an endpoint that repeats its requests is enough), and a repository may hold somebody's.
What the publisher posts comes from these rows; it scans each effect again (`tests/unit/publish/test_secret_scan.py`).
"""

import asyncio
import base64
import io
import json
import logging
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from app.action.publish import write_record
from app.config.repository import RepoConfig
from app.config.settings import settings_from
from app.config.workflow import Workflow
from app.core import log
from app.core.job import JobResult, NoProgress
from app.core.patch import FileChange, Patch
from app.core.plan import Plan
from app.core.redaction import MASK, Redactor
from app.jobs.queue import JobClaim
from app.jobs.store import JobBlobs, StoredProgress
from app.jobs.tables import jobs, plan_versions, progress
from app.pipeline.wiring.job_runner import JobRunner
from app.pipeline.wiring.prompts import JobInputs
from app.publish.secret_scan import SecretFound
from app.server.context import ServerContext
from app.server.job_process import EffectPublisher, ServerApprover
from tests.support.repositories import make_repository
from tests.support.server_jobs import issue_ref, job, job_context, trigger

OURS = "sk-live-" + "Zk93bQ7x" * 4
THEIRS = "ghp_" + "Zk9aQ7x3b" * 4
SPELLINGS = {
    "as it is": OURS,
    "in base64": base64.b64encode(f"x{OURS}".encode()).decode(),
    "in hexadecimal": OURS.encode().hex(),
    "in wrapped base64": "\n".join(base64.b64encode(OURS.encode()).decode()[at : at + 19] for at in range(0, 56, 19)),
    "of somebody else": THEIRS,
}


class JobHarness:
    """A claimed job and the parts through which its process speaks."""

    def __init__(self, place: Path) -> None:
        self.settings = settings_from({"OPENAI_API_KEY": OURS}, place / "state")
        self.server = ServerContext(self.settings)
        self.server.prepare()
        mirror = self.server.mirror(issue_ref().repository)
        mirror.ensure()
        base = mirror.fetch(make_repository(place / "sample", {"a.py": b"x = 1\n"}), "HEAD")
        task = job("x").task.model_copy(update={"base": base})
        self.job = job("job1", task=task)
        self.server.queue.admit(self.job, job_context(), trigger("k"), ready=True)
        claim = self.server.queue.claim("w1", self.server.limits)
        assert claim is not None
        self.claim: JobClaim = claim
        self.store = self.server.job_store(claim.epoch)
        self.inputs = JobInputs(
            job=self.job,
            config=RepoConfig(),
            tree=mirror.tree(base),
            mirror=mirror,
            store=self.store,
            settings=self.settings,
        )
        self.publisher = EffectPublisher(self.server, job_context(), claim, self.inputs)
        self.patch = Patch(base=base, changes=(FileChange(path="a.py", mode="100644", content=b"x = 2\n"),))

    def runner(self, *steps: str) -> JobRunner:
        """A runner whose agent took these steps."""
        made = cast("Any", JobRunner.__new__(JobRunner))
        made.publisher, made.blobs, made.inputs = self.publisher, self.publisher.blobs, self.inputs
        made.runners = [SimpleNamespace(trajectory=lambda: iter(steps), last_change=lambda: self.patch)]
        return cast("JobRunner", made)

    def rows(self, table: sa.Table) -> str:
        with self.server.engine.connect() as db:
            return json.dumps([dict(row) for row in db.execute(sa.select(table)).mappings()], default=str)

    def blob(self, digest: str) -> str:
        return JobBlobs(self.server.engine, "job1").get(digest).decode()


@pytest.fixture
def harness(tmp_path: Path) -> JobHarness:
    return JobHarness(tmp_path)


def log_line(harness: JobHarness, text: str) -> str:
    harness.store.add_progress("job1", "note", text)
    return harness.rows(progress)


def log_of_a_watched_job(harness: JobHarness, text: str) -> str:
    heard: list[str] = []

    class Heard(NoProgress):
        def report(self, kind: Any, text: str) -> None:
            heard.append(text)

    StoredProgress(harness.store, "job1", Heard()).report("note", text)
    return harness.rows(progress) + json.dumps(heard)


def streamed_text(harness: JobHarness, text: str) -> str:
    told = StoredProgress(harness.store, "job1", NoProgress(), streams=True)
    for at in range(0, len(text), 7):
        told._stored_at = -100.0
        told.report("text", text[at : at + 7])
    told.report("note", "it ended")
    with harness.server.engine.connect() as db:
        return "".join(db.execute(sa.select(progress.c.text).where(progress.c.kind == "text")).scalars())


def reason_of_a_state(harness: JobHarness, text: str) -> str:
    harness.store.enter("job1", "paused", text)
    return harness.rows(jobs)


def reason_of_a_pause(harness: JobHarness, text: str) -> str:
    harness.server.queue.retry_later(harness.claim, text, timedelta(days=30))
    return harness.rows(jobs)


def reason_of_a_forced_end(harness: JobHarness, text: str) -> str:
    harness.server.queue.end("job1", "error", text)
    return harness.rows(jobs)


def result(harness: JobHarness, text: str) -> str:
    harness.publisher.finish(JobResult(exit_status="no_change", reason=text, summary=text, notes=(text,)))
    return harness.rows(jobs)


def result_so_far(harness: JobHarness, text: str) -> str:
    harness.store.store_result("job1", JobResult(exit_status="paused", plan=Plan(summary=text)).model_dump(mode="json"))
    return harness.rows(jobs)


def result_handed_over(harness: JobHarness, text: str) -> str:
    harness.server.queue.hand_over(
        harness.claim, JobResult(exit_status="pr_opened", summary=text).model_dump(mode="json")
    )
    return harness.rows(jobs)


async def plan(harness: JobHarness, text: str) -> str:
    await ServerApprover(harness.server, job_context(), harness.inputs).keep_plan(Plan(summary="s", steps=(text,)))
    return harness.rows(plan_versions)


def trajectory(harness: JobHarness, text: str) -> str:
    return harness.blob(harness.runner(json.dumps({"turn": 1, "output": text})).keep_trajectory())


def kept_change(harness: JobHarness, text: str) -> str:
    change = FileChange(path="b.py", mode="100644", content=f"# {text}\n".encode())
    harness.patch = Patch(base=harness.patch.base, changes=(change,))
    return harness.blob(harness.runner().keep_last_diff().diff)


async def commit(harness: JobHarness, text: str) -> str:
    published = await harness.publisher.publish(harness.patch, text)
    command = ("git", f"--git-dir={harness.inputs.mirror.path}", "cat-file", "commit", published.commit)
    return (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)).stdout


async def pushed_file(harness: JobHarness, text: str) -> str:
    change = FileChange(path="b.py", mode="100644", content=text.encode())
    await harness.publisher.publish(Patch(base=harness.patch.base, changes=(change,)), "Summary")
    return text  # others' secrets in files are the business of the gate on contents


async def name_of_a_pushed_file(harness: JobHarness, text: str) -> str:
    change = FileChange(path=f"{text}.py", mode="100644", content=b"")
    await harness.publisher.publish(Patch(base=harness.patch.base, changes=(change,)), "Summary")
    return text


def process_log(harness: JobHarness, text: str) -> str:
    stream = io.StringIO()
    before = logging.root.handlers[:]
    try:
        log.configure(form="json", redactor=Redactor(harness.settings.secrets), stream=stream)
        logging.getLogger("app.x").warning("said %s", text, extra={"field": text})
        try:
            int(text)
        except ValueError:
            logging.getLogger("app.x").exception("failed")
    finally:
        logging.root.handlers[:] = before
    return stream.getvalue()


def artifact_of_the_action(harness: JobHarness, text: str) -> str:
    harness.store.add_progress("job1", "note", text)
    harness.store.finish(
        "job1", "no_change", text, JobResult(exit_status="no_change", reason=text).model_dump(mode="json")
    )
    found = harness.server.job_queries.get("job1")
    assert found is not None
    keyless = settings_from({}, harness.settings.state)  # the publish step has no model's key
    workflow = cast("Workflow", SimpleNamespace(temp=harness.settings.state, settings=keyless))
    place = write_record(workflow, harness.server, found)
    return "\n".join(path.read_text() for path in place.iterdir())


WAYS_OUT: tuple[Callable[[JobHarness, str], Any], ...] = (
    log_line,
    log_of_a_watched_job,
    streamed_text,
    reason_of_a_state,
    reason_of_a_pause,
    reason_of_a_forced_end,
    result,
    result_so_far,
    result_handed_over,
    plan,
    trajectory,
    kept_change,
    commit,
    pushed_file,
    name_of_a_pushed_file,
    process_log,
    artifact_of_the_action,
)
QUARANTINED = {commit, pushed_file, name_of_a_pushed_file}
"""These end the job: part of a commit cannot be masked without anybody noticing."""


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: way.__name__)
async def test_no_way_out_carries_a_secret(
    way: Callable[[JobHarness, str], Any], spelling: str, harness: JobHarness
) -> None:
    secret = SPELLINGS[spelling]
    if secret is THEIRS and way in {pushed_file, name_of_a_pushed_file}:
        pytest.skip("the gate on contents refuses it")
    if "\n" in secret and way in {name_of_a_pushed_file, streamed_text}:
        pytest.skip("it is in one line")
    try:
        left = way(harness, f"before {secret} after")
        left = left if isinstance(left, str) else await left
    except SecretFound:
        assert way in QUARANTINED
        assert secret is not THEIRS
        return
    assert way not in QUARANTINED or secret is THEIRS
    assert MASK in left
    parts = {part for line in secret.split("\n") if line for part in (line[:12], line[-12:])}
    assert not [part for part in parts if part in left.replace("\\n", "")]
