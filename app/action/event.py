"""What a workflow was told: its event, as a webhook's delivery, and whether that asks for anything. Nothing heavy."""

import json
from dataclasses import dataclass
from typing import Any, Final

from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.github.base import GIVEN
from app.triggers.events import Event, TriggerEvent
from app.triggers.rules import command_of
from app.triggers.webhook_parser import ParseResult, decode, read

_SAME_AS: Final = {"pull_request_target": "pull_request"}


@dataclass(frozen=True, slots=True)
class WorkflowEvent:
    """An event by its name as a webhook; `body` is the delivery's. `nothing` is why it asks for nothing, if so."""

    name: str
    body: bytes
    event: Event | None
    nothing: str


def read_workflow_event(workflow: Workflow) -> WorkflowEvent:
    """A workflow's event names no installation; what opens the repository is the token that we were given."""
    payload = {**_payload(workflow), "installation": {"id": GIVEN}}
    name = _SAME_AS.get(workflow.event, workflow.event)
    reading = read(name, payload)
    return WorkflowEvent(name, json.dumps(payload).encode(), reading.event, _nothing(reading))


def _payload(workflow: Workflow) -> dict[str, Any]:
    if workflow.event_file is None:
        return {}
    try:
        return decode(workflow.event_file.read_bytes())
    except (OSError, ValueError) as error:
        raise AgentFixError("The workflow's event cannot be read.", code=ExitCode.USAGE) from error


def _nothing(reading: ParseResult) -> str:
    """As far as that can be seen without asking GitHub anything."""
    if reading.event is None:
        return f"this event asks for nothing ({(reading.ignored or '').replace('_', ' ')})"
    asked = not isinstance(reading.event, TriggerEvent) or command_of(reading.event) is not None
    return "" if asked else "nobody asks agent-fix for anything"
