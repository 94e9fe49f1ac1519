"""`agent-fix view`: writes a trajectory as one page that needs no network and no server, and opens it."""

import argparse
import json
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from app.cli.local_context import LocalContext
from app.cli.result_screen import local_state
from app.config.settings import process_environment, read_settings
from app.core.errors import AgentFixError, ExitCode, OutputError
from app.core.model_usage import usd
from app.core.text import clip, one_line, plain

TRAJECTORY = "trajectory.jsonl"
MAX_TEXT = 60_000
"""Characters of one text on the page."""
MAX_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What a page is made of: the summary of `job.json`, as far as there is one, and the lines of the trajectory."""

    document: Mapping[str, Any]
    lines: Sequence[str]
    page: Path
    """Where the page is written unless the user says otherwise."""


def view_command(arguments: argparse.Namespace) -> int:
    found = _find(arguments.what, arguments.state)
    page = (arguments.out or found.page).expanduser().absolute()
    html = _rendered(found)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        # Beside it first: a link at the page's place, which may come with the trajectory, is replaced and not followed.
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", dir=page.parent, suffix=".html", delete=False
        ) as draft:
            draft.write(html)
        Path(draft.name).replace(page)
    except OSError as error:
        hint = "Choose another file with --out FILE."
        raise OutputError(f"{page} cannot be written: {error.strerror}.", hint=hint) from error
    if arguments.json:
        print(json.dumps({"page": str(page), "address": page.as_uri()}, indent=2))
    else:
        print(page.as_uri())
    environment = process_environment()
    if not arguments.no_open and (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        webbrowser.open(page.as_uri())
    return ExitCode.OK


def _rendered(found: RecordedJob) -> str:
    try:
        return render(found)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, TemplateError) as error:
        raise AgentFixError(
            "This file is not an agent-fix trajectory.", hint=f"{type(error).__name__}: {one_line(str(error))[:200]}"
        ) from error


def render(found: RecordedJob) -> str:
    """The page's HTML; everything from models and repositories is escaped."""
    environment = Environment(loader=PackageLoader("app.cli", "."), autoescape=True, undefined=StrictUndefined)
    document = found.document
    issue = document.get("task", {}).get("issue", {}).get("title", "") or f"Job {document.get('job', '')}"
    plan = document.get("plan") or {}
    return environment.get_template("view.html").render(
        title=one_line(_shown(issue)),
        facts=_facts(document),
        summary=_shown(plan.get("summary", "")),
        plan=[_shown(step) for step in plan.get("steps", ())],
        steps=[_step(json.loads(line)) for line in found.lines if line.strip()],
    )


def _find(what: str, state: Path | None) -> RecordedJob:
    """A file, or else a job of the state directory."""
    path = Path(what).expanduser()
    if not path.exists():
        return _stored(what, state)
    path = path / "job.json" if path.is_dir() else path
    try:
        if path.suffix == ".jsonl":
            return RecordedJob(_document(path.with_name("job.json")), _lines(path), path.with_suffix(".html"))
        steps = path.with_name(TRAJECTORY)
        return RecordedJob(_document(path), _lines(steps), path.with_name("trajectory.html"))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise AgentFixError(
            f"{path} cannot be shown: {getattr(error, 'strerror', None) or error}.",
            hint="Name a job, a trajectory.jsonl, a job.json, or the directory that holds them.",
        ) from error


def _stored(job: str, state: Path | None) -> RecordedJob:
    local_context = LocalContext(read_settings(state))
    row = local_context.store.find(job)
    result = row.result or {}
    digest = result.get("trajectory", "")
    text = local_context.blob(row.job.id, digest).decode("utf-8", "replace") if digest else ""
    document = {
        **result,
        "job": row.job.id,
        "task": row.job.task.model_dump(mode="json"),
        "model": row.job.model,
        "exit_status": local_state(row.state),
    }
    page = local_context.settings.state / "results" / row.job.id / "trajectory.html"
    return RecordedJob(document, text.split("\n"), page)


def _document(path: Path) -> Mapping[str, Any]:
    document = json.loads(_text(path) or "{}")
    if not isinstance(document, dict):
        raise TypeError(f"{path.name} is not a JSON object")
    return document


def _lines(path: Path) -> Sequence[str]:
    return _text(path).split("\n")


def _text(path: Path) -> str:
    """Empty without the file. Raises ValueError for what is not a file, or too large to be shown."""
    if not path.exists():
        return ""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} is not a file of at most {MAX_BYTES:,} bytes")
    return path.read_text("utf-8")


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    """The table at the top."""
    verification, usage = document.get("verification") or {}, document.get("usage") or {}
    cost = int(usage.get("cost", 0))
    facts = {
        "job": document.get("job", ""),
        "verdict": verification.get("verdict", ""),
        "state": document.get("exit_status", ""),
        "why": " ".join(verification.get("reasons", ())) or document.get("reason", ""),
        "branch": document.get("branch", ""),
        "model": document.get("model", ""),
        "cost": usd(cost) if cost else "price unknown" if usage.get("calls") else "",
    }
    return {name: plain(str(value)) for name, value in facts.items() if value}


def _step(record: Mapping[str, Any]) -> dict[str, Any]:
    usage, seconds = record.get("usage", {}), record.get("seconds", {})
    cost = f"${usage['cost']:.4f}" if usage.get("cost") else ""
    tokens = f"{usage.get('prompt_tokens', 0):,} tokens in, {usage.get('completion_tokens', 0):,} out"
    times = f"{seconds.get('model', 0):.1f} s model, {seconds.get('actions', 0):.1f} s actions"
    return {
        "number": _shown(record.get("step", "")),
        "facts": _shown(" · ".join(filter(None, (str(record.get("model", "")), tokens, cost, times)))),
        "content": _shown(record.get("content", "")),
        "actions": [_action(each) for each in record.get("actions", ())],
        "notes": [_shown(note) for note in record.get("notes", ())],
    }


def _action(action: Mapping[str, Any]) -> dict[str, Any]:
    arguments = action.get("arguments") or {}
    arguments = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    outcome = str(action.get("outcome", ""))
    return {
        "tool": _shown(action.get("tool", "")),
        "target": one_line(_shown(next(iter(arguments.values()), "")))[:160],
        "arguments": {_shown(name): _shown(value) for name, value in arguments.items()},
        "outcome": plain(outcome),
        "failed": outcome not in {"ok", ""},
        "observation": _shown(action.get("observation", "")),
    }


def _shown(value: object) -> str:
    return clip(plain(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)), MAX_TEXT)
