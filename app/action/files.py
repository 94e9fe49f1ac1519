"""Reads the workflow's event file, and writes a step's outputs and its summary on the workflow's page."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor
from app.github.base import GIVEN
from app.publish.markdown import prose
from app.triggers.events import Event, TriggerEvent, decode, read
from app.triggers.rules import command_of

_SAME_AS: Final = {"pull_request_target": "pull_request"}


@dataclass(frozen=True, slots=True)
class WorkflowEvent:
    """A workflow's event as a webhook delivery. `nothing` says why it requests nothing; it is empty otherwise."""

    name: str
    body: bytes
    event: Event | None
    nothing: str


def read_workflow_event(workflow: Workflow) -> WorkflowEvent:
    """Raises AgentFixError if the event file cannot be read. The installation is GIVEN: a workflow's event has none."""
    payload: dict[str, Any] = {}
    if workflow.event_file is not None:
        try:
            payload = decode(workflow.event_file.read_bytes())
        except (OSError, ValueError) as error:
            raise AgentFixError("The workflow's event file cannot be read.", code=ExitCode.USAGE) from error
    payload = {**payload, "installation": {"id": GIVEN}}
    name = _SAME_AS.get(workflow.event, workflow.event)
    body, event = json.dumps(payload).encode(), read(name, payload)
    if isinstance(event, str):
        nothing = f"this event does not start anything ({event.replace('_', ' ')})"
        return WorkflowEvent(name, body, None, nothing)
    requested = not isinstance(event, TriggerEvent) or command_of(event) is not None
    return WorkflowEvent(name, body, event, "" if requested else "it has no command for agent-fix")


CANCELLED: Final = "The workflow run was cancelled."


def write_outputs(workflow: Workflow, values: Mapping[str, str]) -> None:
    """The delimiter is random, so that no value can end itself and start another output."""
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
    """Show the error on the workflow's page, where people look first."""
    redactor = Redactor(workflow.settings.secrets)
    parts = (prose(redactor.redact(part)) for part in (error.message, error.hint) if part)
    write_summary(workflow, "## 💥 agent-fix failed\n\n" + "\n\n".join(parts))
