"""Renders the prompts: Markdown files with named fields; missing and unknown fields raise an error.

Two prompts never change and start every conversation. The parts for each kind of task are in `prompts/kinds`, go into
the brief, and may be extended or replaced by the repository (`app.config.prompt_overrides`).
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import Final, Literal

from app.agent.base import AssignmentAim
from app.config.prompt_overrides import NO_OVERRIDES, OverrideName, Overrides
from app.core.job import Job, QuestionAnswers
from app.core.plan import Plan
from app.core.plan_text import render_plan
from app.core.task import MAX_ISSUE_BODY, TaskKind
from app.core.text import head_and_tail, one_line
from app.llm.base import Message

Name = Literal[
    "system",
    "ask",
    "brief",
    "follow_up",
    "conflicts",
    "question",
    "plan",
    "repair",
    "outside",
    "outside_again",
    "outside_more",
    "images",
    "author",
    "specification",
    "objection",
]

_SAID = "What is wanted now, in the words of the person who asked, who may"
_UNSAID = "What is wrong with it stands below: put that right."
_GUARDS = "Existing tests that guard the plan's files, the nearest first: to be run while you work"
_IMAGES = "What the images of the issue show, as a model described them"
_EXAMPLE = "One of the independent tests that your work has to pass; the others are held back"
_LESSONS = "What earlier jobs here learned, to be checked before it is relied on"
OPENINGS: Final[dict[TaskKind, str]] = {
    "bug": "Fix this issue.",
    "feature": "Build what this issue asks for.",
    "tests": "Write the tests that this issue asks for.",
    "refactoring": "Do the refactoring that this issue asks for.",
    "dependencies": "Do the update that this issue asks for.",
    "ci": "Make the failing checks of this issue pass.",
    "review": "Do what this issue asks.",
    "conflict": "Do what this issue asks.",
}


@cache
def _template(name: Name) -> Template:
    return Template(resources.files("app.agent").joinpath("prompts", f"{name}.md").read_text("utf-8"))


def render(name: Name, **fields: str) -> str:
    """The prompt with its fields; a `$` in a value has no meaning. Raises KeyError for missing or unknown fields."""
    template = _template(name)
    if unknown := fields.keys() - set(template.get_identifiers()):
        raise KeyError(f"prompt {name} has no field {', '.join(sorted(unknown))}")
    return template.substitute(fields).strip()


@cache
def guidance(name: OverrideName) -> str:
    """The text for one kind of task, or for planning (`plan`), as it is in its file."""
    return resources.files("app.agent").joinpath("prompts", "kinds", f"{name}.md").read_text("utf-8").strip()


def head(brief: str, aim: AssignmentAim = "change") -> tuple[Message, ...]:
    """The two messages that start every conversation of the agent; the first is one of two that never change."""
    system = render("ask" if aim == "answer" else "system")
    return (Message(role="system", content=system), Message(role="user", content=brief))


def render_brief(
    job: Job,
    *,
    plan: Plan | None = None,
    answers: Sequence[QuestionAnswers] = (),
    repository_map: str = "",
    instructions: Sequence[tuple[str, str]] = (),
    suite: str = "",
    guards: Sequence[str] = (),
    lessons: str = "",
    images: str = "",
    overrides: Overrides = NO_OVERRIDES,
    planning: bool = False,
    tests: str = "",
    example: str = "",
) -> str:
    """The first user message. `instructions` are (path, text) of the repository's own rules, shown as data.

    `suite` is the test suite's result before any change; `guards` are the tests near the plan's files; `images` are
    descriptions of the issue's images. `tests` shows the author of the specification how tests are written here;
    `example` is the test that the fixer is shown. The same job always gets the same bytes.
    """
    task = job.task
    texts = (task.issue.title, task.issue.body, repository_map, lessons, images, *(text for _, text in instructions))
    texts += (*overrides.texts, *guards, suite, tests, example)
    mark = _delimiter(job.id, *texts, *job.conflicts, *(part for s in task.sections for part in (s.title, s.text)))
    name: Name = "specification" if tests else _opening(job)
    said_first = name in {"follow_up", "question"}
    sections = [
        (_SAID, "" if said_first else task.request),
        *(_guided("What kind of task this is", job.kind, overrides, mark) if job.aim == "fix" and not tests else ()),
        *(_guided("How to plan", "plan", overrides, mark) if planning else ()),
        ("Files with conflicts", _data(mark, "\n".join(map(one_line, job.conflicts)))),
        (_IMAGES, _data(mark, images)),
        ("Questions, and what people answered", "\n\n".join(map(_exchange, answers))),
        ("Plan", render_plan(plan) if plan else ""),
        (_GUARDS, _data(mark, "\n".join(map(one_line, guards)))),
        ("The test suite before any change", _data(mark, suite)),
        (_EXAMPLE, _data(mark, example)),
        ("How tests are written here", _data(mark, tests)),
        *((one_line(section.title), _data(mark, section.text)) for section in task.sections),
        (_LESSONS, _data(mark, lessons)),
        ("Map of the repository", _data(mark, repository_map)),
        *((f"The repository's rules, from {path}", _data(mark, text)) for path, text in instructions),
    ]
    shown = "".join(f"\n# {title}\n\n{text.strip()}\n" for title, text in sections if text.strip())
    body = head_and_tail(task.issue.body.strip(), MAX_ISSUE_BODY)
    fields = {"delimiter": mark, "title": task.issue.title, "body": body, "sections": shown}
    if name == "brief":
        fields["opening"] = OPENINGS[task.kind]
    if said_first:
        fields["wanted"] = f"{_SAID}:\n\n{task.request.strip()}" if task.request.strip() else _UNSAID
    return render(name, **fields)


def _opening(job: Job) -> Name:
    """The prompt that a job's brief starts with."""
    if job.aim == "ask":
        return "question"
    if job.conflicts:
        return "conflicts"
    return "follow_up" if job.task.follows_up else "brief"


def _guided(title: str, name: OverrideName, overrides: Overrides, mark: str) -> list[tuple[str, str]]:
    """Our text with the repository's, or the repository's alone; its text is data, like its other rules."""
    theirs = overrides.of(name)
    sections = [] if theirs is not None and theirs.replace else [(title, guidance(name))]
    if theirs is not None:
        how = "in the place of ours" if theirs.replace else "from the repository"
        sections.append((f"{title}, {how} ({theirs.path})", _data(mark, theirs.text)))
    return sections


def _exchange(answers: QuestionAnswers) -> str:
    asked = "\n".join(f"- {question}" for question in answers.questions)
    return "\n\n".join(
        [f"Asked:\n{asked}", *(f"{one_line(said.who)} answered: {said.text}" for said in answers.messages)]
    )


def _data(mark: str, text: str) -> str:
    return f"<{mark}>\n{text.strip()}\n</{mark}>" if text.strip() else ""


def _delimiter(job: str, *texts: str) -> str:
    """A delimiter that is in none of the texts and could not be known when they were written."""
    attempt = 0
    while True:
        mark = "data-" + hashlib.sha256(f"brief\0{job}\0{attempt}".encode()).hexdigest()[:12]
        if not any(mark in text for text in texts):
            return mark
        attempt += 1
