"""The record of a job as files, for an artifact of the workflow that worked on it."""

import json
from pathlib import Path

from app.bootstrap.premises import Premises
from app.jobs.roster import Commissioned
from app.jobs.store import JobBlobs
from app.plan_text import render_plan_file
from app.publish.intent import OpenDraftPullRequest
from app.redact import Redactor
from app.result import Result
from app.settings.workflow import Workflow
from app.text import plain


def write_record(workflow: Workflow, premises: Premises, each: Commissioned) -> Path:
    """Everything about a job that may be kept: what it said, its steps, its plan and result; returns the directory."""
    job, store = each.job, premises.store()
    place = workflow.temp / f"agent-fix-{job.id}"
    place.mkdir(parents=True, exist_ok=True)
    redactor = Redactor(workflow.settings.secrets)

    def write(name: str, text: str, *, errors: str = "replace") -> None:
        (place / name).write_text("\n".join(map(redactor.redact, text.split("\n"))), "utf-8", errors=errors)

    said = (f"{line.at:%H:%M:%S} {line.kind:<12} {plain(line.text)}" for line in store.said(job.id))
    write("log.txt", "\n".join(said) + "\n")
    result = Result.model_validate(each.row.result) if each.row.result else None
    told = {"job": job.id, "state": each.row.state, "reason": each.row.reason}
    write("job.json", json.dumps({**told, "result": each.row.result}, indent=2) + "\n")
    if result is not None and result.plan is not None:
        write("plan.md", render_plan_file(result.plan))
    blobs = JobBlobs(premises.engine, job.id)
    if result is not None and result.trajectory:
        write("trajectory.jsonl", blobs.get(result.trajectory).decode(errors="replace"))
    if result is not None and result.diff:
        write("change.patch", blobs.get(result.diff).decode(errors="surrogateescape"), errors="surrogateescape")
    for intent in (wished.intent for wished in premises.intents.of(job.id)):
        if isinstance(intent, OpenDraftPullRequest):
            write("pull-request.md", f"# {intent.title}\n\n{intent.body}")
    return place
