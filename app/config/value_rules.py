"""Validates values of `.github/agent-fix.yml`, and says what is valid in messages that help to repair the file."""

import ipaddress
import json
import math
import re
from collections.abc import Iterable

from pydantic_core import ErrorDetails

from app.core.globs import MAX_STARS, has_too_many_stars
from app.core.text import nearest

HIGHEST_HOST_LENGTH = 253
STATE_LABELS = frozenset({"agent-fix", "agent-in-progress", "agent-done", "agent-needs-human"})

_HOST_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER_LABEL = re.compile(r"\d+|0x[0-9a-f]*")
PRIVATE_SUFFIXES = (".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home.arpa", ".onion")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,199}")
_BASE_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}")
_RUNNER = re.compile(r"[a-z][a-z0-9-]{0,39}")
_TEMPLATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:/[A-Za-z0-9][A-Za-z0-9_-]{0,62})?(?::[A-Za-z0-9._-]{1,62})?")
_GATE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,38}[A-Za-z0-9])?")
_LOGIN = r"[A-Za-z0-9](?:[A-Za-z0-9_]|-(?=[A-Za-z0-9_])){0,38}"
_ACTOR = re.compile(rf"{_LOGIN}(?:\[bot\])?")
_REVIEWER = re.compile(rf"{_LOGIN}(?:/[A-Za-z0-9_.-]{{1,100}})?")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)+")


def host(value: str) -> str:
    """A public host name in lower case; no wildcard, address, port, path or private name."""
    name = value.strip().lower().removesuffix(".")
    if "*" in name:
        raise ValueError("must be a host, not a wildcard; list each host")
    if "://" in name or "/" in name or "@" in name:
        raise ValueError("must be only a host such as packages.example.org, without scheme, path or user")
    if _is_address(name):
        raise ValueError("must be a host name, not an IP address")
    if ":" in name:
        raise ValueError("must be a host without a port")
    if not name.isascii():
        raise ValueError("must be in ASCII; write an international name in its xn-- form")
    if name == "localhost" or name.endswith(PRIVATE_SUFFIXES):
        raise ValueError("must be a public host; only the server's operator can allow private ones")
    labels = name.split(".")
    if len(labels) < 2 or len(name) > HIGHEST_HOST_LENGTH or not all(map(_HOST_LABEL.fullmatch, labels)):
        raise ValueError("must be a host name such as packages.example.org")
    return name


def _is_address(name: str) -> bool:
    """Includes the spellings that resolvers accept: 2130706433, 0x7f.1, 127.1, [::1]:80."""
    if name.startswith("[") or _NUMBER_LABEL.fullmatch(name.rsplit(":", 1)[0].rsplit(".", 1)[-1]):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def model(value: str) -> str:
    if value.startswith("recorded/"):
        raise ValueError("must be a live model; recordings are chosen on the command line only")
    if not _MODEL.fullmatch(value) or ".." in value:
        raise ValueError("must be a model name such as openai/gpt-5")
    return value


def base_branch(value: str) -> str:
    if not _BASE_BRANCH.fullmatch(value) or ".." in value or "//" in value or value.endswith((".lock", ".", "/")):
        raise ValueError("must be a branch name such as develop")
    return value


def base_branches(value: object) -> dict[str, str]:
    """A branch for everything, or branches by `default`, `label:NAME` and `milestone:NAME`."""
    given = {"default": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in (*given, *given.values())):
        raise ValueError('must be a branch, or branches by `default`, "label:NAME" and "milestone:NAME"')
    if wrong := [key for key in given if key != "default" and not re.fullmatch(r"(?:label|milestone):\S.*", key)]:
        raise ValueError(f'has the key {wrong[0][:40]}; keys are `default`, "label:NAME" and "milestone:NAME"')
    return {key: base_branch(branch) for key, branch in given.items()}


def runner(value: str) -> str:
    if not _RUNNER.fullmatch(value):
        raise ValueError("must be a runner name such as native")
    return value


def command(value: str) -> str:
    if not value.strip():
        raise ValueError("must be a command, not blank")
    return value


def allowed_path(value: str) -> str:
    """A file's path, or a directory's with a slash at its end: never a pattern."""
    parts = value.rstrip("/").split("/")
    plain = value.isprintable() and len(value) <= 300 and not set(value) & set("*?[]!\\`")
    if not plain or not all(parts) or {".", ".."} & set(parts):
        raise ValueError("needs one path as in the repository, such as infra/main.tf or infra/, and no pattern")
    return value


def e2b_template(value: str) -> str:
    if not _TEMPLATE.fullmatch(value):
        raise ValueError("must be the name or id of an E2B template, such as my-team/python-312")
    return value


def gate_name(value: str) -> str:
    if not _GATE_NAME.fullmatch(value):
        raise ValueError("must be a short name such as coverage")
    return value


def actor(value: str) -> str:
    return _login(value, _ACTOR, "a GitHub login such as octocat; wildcards and teams are not accepted")


def reviewer(value: str) -> str:
    return _login(value, _REVIEWER, "a GitHub login such as octocat, or a team such as octo-org/maintainers")


def _login(value: str, pattern: re.Pattern[str], what: str) -> str:
    if value.startswith("@"):
        raise ValueError("must be written without the @")
    if not pattern.fullmatch(value):
        raise ValueError(f"must be {what}")
    return value


def label(value: str) -> str:
    if value.strip().lower() in STATE_LABELS:
        raise ValueError("is a label that agent-fix itself uses; choose another")
    return _one_line(value, "a label", 50)


def protected_path(value: str) -> str:
    """A `.gitignore` pattern without `!`: an exception would open what the server protects."""
    if value.startswith("!"):
        raise ValueError("must not start with `!`: patterns can only protect more, never less")
    if not value.strip() or value.startswith("#") or "\n" in value or not value.strip("/ "):
        raise ValueError("must be a pattern as in .gitignore, such as infra/ or *.sql")
    if ".." in value.split("/"):
        raise ValueError("must not contain `..`: patterns are relative to the repository's root")
    if has_too_many_stars(value):
        raise ValueError(f"must have at most {MAX_STARS} stars between two slashes, and `**` at most {MAX_STARS} times")
    return value


def branch(value: str) -> str:
    """A pattern with `{number}` or `{slug}` and a prefix of its own, so that it never matches a person's branch."""
    _placeholders(value, {"number", "slug"})
    example = fill(value, number="1", slug="a")
    if example == value:
        raise ValueError("must contain {number} or {slug}, so that each task gets its own branch")
    first = value.split("/", 1)[0]
    if first in {"refs", "heads", "HEAD", "origin"}:
        raise ValueError(f"must be a short branch name, without {first}/")
    bad_parts = [part for part in example.split("/") if part.startswith(".") or part.endswith((".", ".lock"))]
    if not BRANCH.fullmatch(example) or bad_parts or ".." in example or "{" in first or len(value) > 100:
        raise ValueError("must be a branch with its own prefix, such as agent-fix/issue-{number}-{slug}")
    return value


def title(value: str) -> str:
    _placeholders(value, {"number", "title"})
    if "{title}" not in value:
        raise ValueError("must contain {title}")
    return _one_line(value, "a title", 120)


def fill(pattern: str, **values: str) -> str:
    """The pattern with its placeholders replaced, in one pass: braces in a value stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), pattern)


def _placeholders(pattern: str, allowed: set[str]) -> None:
    names = " and ".join(f"{{{name}}}" for name in sorted(allowed))
    if unknown := [name for name in _PLACEHOLDER.findall(pattern) if name not in allowed]:
        raise ValueError(f"has an unknown placeholder {{{unknown[0]}}}; known ones are {names}")
    if "{" in _PLACEHOLDER.sub("", pattern) or "}" in _PLACEHOLDER.sub("", pattern):
        raise ValueError(f"has an unmatched brace; placeholders are {names}")


def _one_line(value: str, what: str, longest: int) -> str:
    if not value.strip() or "\n" in value or "\t" in value or value != value.strip():
        raise ValueError(f"must be {what}: one line of text without surrounding space")
    if len(value) > longest:
        raise ValueError(f"is {len(value)} characters long; the limit is {longest}")
    return value


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
    if similar := _BY_OTHER_NAMES.get(name) or nearest(name, names):
        return f"is not a known key; did you mean `{similar}`?"
    return f"is not a known key; known keys are {', '.join(names)}"


def wrong_value(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return f"requires `{details['loc'][-1]}` too"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_too_long":
        return f"is {len(value):,} characters long; the limit is {context['max_length']:,}"
    if kind == "too_long":
        return f"has {context['actual_length']} items; the limit is {context['max_length']}"
    match kind:
        case "literal_error":
            expected = "must be " + str(context["expected"]).replace("'", "")
        case "greater_than_equal":
            expected = f"must be at least {context['ge']:,g}"
        case "less_than_equal":
            expected = f"must be at most {context['le']:,.0f}"
        case _:
            expected = _WANTED.get(kind, details["msg"])
    advice = "; put it in quotes" if kind == "string_type" and isinstance(value, bool | int | float) else ""
    return f"{expected}, not {_shown(value)}{advice}"


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
