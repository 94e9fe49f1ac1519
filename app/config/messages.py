"""Turns Pydantic's errors about `.github/agent-fix.yml` into messages that help to repair the file."""

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

_SERVER_ONLY = frozenset(
    {"app_id", "endpoint", "env", "environment", "host", "password", "port", "prices", "sandbox", "secret"}
)
_SERVER_ONLY_ENDINGS = ("_base", "_bots", "_dir", "_key", "_secret", "_secrets", "_token", "_url", "secrets", "token")
_BY_OTHER_NAMES = {
    "branch_prefix": "branch",
    "hosts": "network",
    "install": "setup",
    "max_cost": "budget.usd",
    "max_steps": "budget.steps",
    "max_usd": "budget.usd",
    "prompt": "instructions",
    "protected": "protected_paths",
    "timeout": "budget.minutes",
}
_WANTED = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "tuple_type": "must be a list such as [a, b]",
    "model_type": "must be a mapping of keys to values",
    "finite_number": "must be a finite number",
    "greater_than": "must be a positive number",
}


def unknown_key(key: str, known: Iterable[str]) -> str:
    name = key.lower().replace("-", "_")
    if name in _SERVER_ONLY or name.endswith(_SERVER_ONLY_ENDINGS):
        return "is a server setting; a repository cannot set it"
    names = list(known)
    if similar := _BY_OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), None):
        return f"is not a known key; did you mean `{similar}`?"
    return f"is not a known key; known keys are {', '.join(names)}"


def wrong_value(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return f"requires `{details['loc'][-1]}` too"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_too_long":
        return f"is {len(value):,} characters long; the limit is {context['max_length']:,}"
    if kind == "too_long":
        return f"has {context['actual_length']} items; the limit is {context['max_length']}"
    advice = "; put it in quotes" if kind == "string_type" and isinstance(value, bool | int | float) else ""
    return f"{_expected(kind, context)}, not {_shown(value)}{advice}"


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    if kind == "literal_error":
        return "must be " + str(context["expected"]).replace("'", "")
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']:,g}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']:,.0f}"
    return _WANTED[kind]


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, str) and len(value) > 60:
        value = value[:59] + "…"
    return json.dumps(value, ensure_ascii=False)
