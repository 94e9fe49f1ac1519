"""`agent-fix config`: which settings apply to a repository here, and where each comes from."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.cli.fix import read_config
from app.cli.local_context import LocalContext
from app.config.repository import SOURCE
from app.config.settings import read_settings
from app.core.model_usage import usd
from app.core.record import Record
from app.repo.inspection import inspect, top_level


def config_command(arguments: argparse.Namespace) -> int:
    """Print every setting of the repository's base commit, as a table or as JSON."""
    settings = read_settings(arguments.state)
    local_context = LocalContext(settings)
    root: Path = top_level(arguments.repo.expanduser().absolute())
    inspected = inspect(root, None, local_context.mirror(root))
    config, operator = read_config(inspected, settings.defaults), settings.defaults
    rows = [
        (key, value, "the operator" if operator.locks(key) else SOURCE if is_set else "default")
        for key, value, is_set in _flat(config)
    ]
    rows += [
        ("AGENT_FIX_MODEL", settings.model, "environment" if settings.model else "default"),
        ("AGENT_FIX_BUDGET", usd(settings.budget), "used if no budget is set above"),
        ("AGENT_FIX_SANDBOX", settings.sandbox, "environment, or default"),
        ("--state", str(settings.state), "option, environment or default"),
    ]
    if arguments.json:
        print(json.dumps([{"key": key, "value": value, "from": source} for key, value, source in rows], indent=2))
    else:
        for key, value, source in rows:
            print(f"{key:<28} {_shown(value):<40} {source}")
    return 0


def _flat(record: Record, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Every key with its value, and whether it was set."""
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "overruled":
            shown = record.model_dump(mode="json", include={name})[name]
            yield f"{prefix}{name}", shown, name in record.model_fields_set


def _shown(value: Any) -> str:
    if value in (None, "", [], {}):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
