"""Reads the template of jobs in a cluster: a YAML or JSON file of the operator's, in the cluster's own format."""

from pathlib import Path
from typing import Any

import yaml

from app.core.errors import AgentFixError, ExitCode


def read_template(path: Path) -> dict[str, Any]:
    """The template as plain values. Raises AgentFixError if it is not one mapping."""
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise invalid(path, str(error).replace("\n", " ")) from error
    if not isinstance(value, dict):
        raise invalid(path, "it is not a mapping.")
    return value


def invalid(path: Path, problem: str) -> AgentFixError:
    return AgentFixError(
        f"The template {path} cannot be used: {problem}",
        code=ExitCode.CONFIG,
        hint="AGENT_FIX_JOBS_TEMPLATE names it; deploy/ has an example for each kind of cluster.",
    )
