"""What a step leaves for the workflow: outputs, the summary on its page, and files for an artifact."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.bootstrap.premises import Premises
from app.errors import AgentFixError
from app.jobs.roster import Commissioned
from app.jobs.store import JobBlobs
from app.plan_text import render_plan_file
from app.publish.markdown import prose
from app.redact import Redactor
from app.result import Result
from app.settings.workflow import Workflow
from app.text import plain

CANCELLED: Final = "The workflow run was cancelled."


def write_outputs(workflow: Workflow, values: Mapping[str, str]) -> None:
    """For later steps. The mark between values cannot be foreseen, so no value can end itself and begin another."""
    if workflow.output is None:
        return
    with workflow.output.open("a", encoding="utf-8", errors="replace") as file:
        for name, value in values.items():
            mark = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{mark}\n{value}\n{mark}\n")


def write_summary(workflow: Workflow, text: str) -> None:
    if workflow.summary is not None:
        with workflow.summary.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")


def fail(workflow: Workflow, error: AgentFixError) -> None:
    """The error on the workflow's page, where people look first."""
    redactor = Redactor(workflow.settings.secrets)
    parts = (prose(redactor.redact(part)) for part in (error.message, error.hint) if part)
    write_summary(workflow, "## 💥 It did not work out\n\n" + "\n\n".join(parts))


def write_record(workflow: Workflow, premises: Premises, each: Commissioned) -> Path:
    """Everything about a job that may be kept: what it said, its steps, its plan and result; returns the directory."""
    job, store = each.job, premises.store()
    place = workflow.temp / f"agent-fix-{job.id}"
    place.mkdir(parents=True, exist_ok=True)
    redactor = Redactor(workflow.settings.secrets)

    def write(name: str, text: str) -> None:
        (place / name).write_text("\n".join(map(redactor.redact, text.split("\n"))), "utf-8", errors="replace")

    said = (f"{line.at:%H:%M:%S} {line.kind:<12} {plain(line.text)}" for line in store.said(job.id))
    write("log.txt", "\n".join(said) + "\n")
    result = Result.model_validate(each.row.result) if each.row.result else None
    told = {"job": job.id, "state": each.row.state, "reason": each.row.reason}
    write("job.json", json.dumps({**told, "result": each.row.result}, indent=2) + "\n")
    if result is not None and result.plan is not None:
        write("plan.md", render_plan_file(result.plan))
    if result is not None and result.trajectory:
        write("trajectory.jsonl", JobBlobs(premises.engine, job.id).get(result.trajectory).decode(errors="replace"))
    return place
