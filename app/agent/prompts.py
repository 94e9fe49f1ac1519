"""The prompts: Markdown beside this file, filled with named fields; a missing or an unknown field is an error."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import Literal

from app.model.base import Message
from app.plan import Plan
from app.plan_text import render_plan
from app.task import Issue

Name = Literal["system", "brief", "plan", "repair"]


@cache
def _template(name: Name) -> Template:
    return Template(resources.files("app.agent").joinpath("prompts", f"{name}.md").read_text("utf-8"))


def render(name: Name, **fields: str) -> str:
    """The prompt with its fields; values are put in as they are, a `$` in them means nothing. KeyError otherwise."""
    template = _template(name)
    if unknown := fields.keys() - set(template.get_identifiers()):
        raise KeyError(f"prompt {name} has no field {', '.join(sorted(unknown))}")
    return template.substitute(fields).strip()


def head(brief: str) -> tuple[Message, ...]:
    """The two messages every conversation of the agent begins with; the first never changes."""
    return (Message(role="system", content=render("system")), Message(role="user", content=brief))


def render_brief(
    *,
    job: str,
    issue: Issue,
    plan: Plan | None = None,
    repository_map: str = "",
    instructions: Sequence[tuple[str, str]] = (),
    suite: str = "",
) -> str:
    """The first user message. `instructions` are (path, text) of the repository's own rules, shown as data.

    `suite` says how the test suite does before any change. The same job always gets the same bytes.
    """
    mark = _delimiter(job, issue.title, issue.body, repository_map, *(text for _, text in instructions))
    sections = [
        ("Plan", render_plan(plan) if plan else ""),
        ("The test suite before any change", suite),
        ("Map of the repository", _data(mark, repository_map)),
        *((f"The repository's rules, from {path}", _data(mark, text)) for path, text in instructions),
    ]
    shown = "".join(f"\n# {title}\n\n{text.strip()}\n" for title, text in sections if text.strip())
    return render("brief", delimiter=mark, title=issue.title, body=issue.body.strip(), sections=shown)


def _data(mark: str, text: str) -> str:
    return f"<{mark}>\n{text.strip()}\n</{mark}>" if text.strip() else ""


def _delimiter(job: str, *texts: str) -> str:
    """A mark that nobody could know when they wrote the texts, and that is in none of them."""
    attempt = 0
    while True:
        mark = "data-" + hashlib.sha256(f"brief\0{job}\0{attempt}".encode()).hexdigest()[:12]
        if not any(mark in text for text in texts):
            return mark
        attempt += 1
