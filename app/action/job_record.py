"""Writes a job's record as files for the workflow's artifact."""

import json
from pathlib import Path

from app.config.workflow import Workflow
from app.core.plan_text import render_plan_file
from app.core.redaction import Redactor
from app.core.result import JobResult
from app.core.text import plain
from app.jobs.job_queries import JobWithContext
from app.jobs.store import JobBlobs
from app.publish.effects import OpenDraftPullRequest
from app.server.wiring.context import ServerContext


def write_record(workflow: Workflow, server_context: ServerContext, each: JobWithContext) -> Path:
    """Write log, result, plan, trajectory, patch and pull request text of a job, redacted; returns the directory."""
    job, store = each.job, server_context.store()
    place = workflow.temp / f"agent-fix-{job.id}"
    place.mkdir(parents=True, exist_ok=True)
    redactor = Redactor(workflow.settings.secrets)

    def write(name: str, text: str, *, errors: str = "replace") -> None:
        (place / name).write_text("\n".join(map(redactor.redact, text.split("\n"))), "utf-8", errors=errors)

    log = (f"{line.at:%H:%M:%S} {line.kind:<12} {plain(line.text)}" for line in store.progress_since(job.id))
    write("log.txt", "\n".join(log) + "\n")
    result = JobResult.model_validate(each.row.result) if each.row.result else None
    summary = {"job": job.id, "state": each.row.state, "reason": each.row.reason}
    write("job.json", json.dumps({**summary, "result": each.row.result}, indent=2) + "\n")
    if result is not None and result.plan is not None:
        write("plan.md", render_plan_file(result.plan))
    blobs = JobBlobs(server_context.engine, job.id)
    if result is not None and result.trajectory:
        write("trajectory.jsonl", blobs.get(result.trajectory).decode(errors="replace"))
    if result is not None and result.diff:
        write("change.patch", blobs.get(result.diff).decode(errors="surrogateescape"), errors="surrogateescape")
    for effect in (requested.effect for requested in server_context.outbox.of(job.id)):
        if isinstance(effect, OpenDraftPullRequest):
            write("pull-request.md", f"# {effect.title}\n\n{effect.body}")
    return place
