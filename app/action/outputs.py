"""Writes a step's outputs and its summary on the workflow's page."""

import secrets
from collections.abc import Mapping
from typing import Final

from app.config.workflow import Workflow
from app.core.errors import AgentFixError
from app.core.redaction import Redactor
from app.publish.markdown import prose

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
