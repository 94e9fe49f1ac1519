"""The planning call: turns a structured answer into a Plan, with one repair and a minimal plan as a fallback."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from app.agent.model_port import ModelPort
from app.agent.prompts import render, render_brief
from app.agent.tool_calls import MalformedError, read_object
from app.config.prompt_overrides import NO_OVERRIDES, Overrides
from app.core.job import Job, Journal, QuestionAnswers
from app.core.plan import Plan
from app.core.plan_text import (
    COMMANDS,
    FIELDS,
    LIST_FIELDS,
    Fields,
    PlanError,
    parse_plan_file,
    plan_from_fields,
    render_plan,
    render_plan_file,
    render_plan_markdown,
)
from app.core.task import Issue
from app.core.text import one_line, plain
from app.llm.base import Message, ModelAnswer, ModelRequest
from app.llm.errors import ModelError

__all__ = ["make_plan", "parse_plan_file", "render_plan", "render_plan_file", "render_plan_markdown"]

MAX_ROUNDS = 2
"""How often people are asked a plan's questions; after that, the most likely answer is assumed."""
MAX_QUESTIONS = 3
_MAX_PLAN_SIZE = 4_096
"""Tokens of the answer."""
_NOTHING = re.compile(r"(?:none|no|nothing|n/a|-|no (?:more )?questions)[.!]?", re.IGNORECASE)
"""How models write an empty list of questions."""
_NO_MORE_QUESTIONS = (
    "No more questions can be asked: leave `questions` empty, assume what is likeliest, and say in `summary` what you "
    "assumed."
)


async def make_plan(
    budgeted_model: ModelPort,
    journal: Journal,
    job: Job,
    *,
    answers: Sequence[QuestionAnswers] = (),
    repository_map: str = "",
    instructions: Sequence[tuple[str, str]] = (),
    suite: str = "",
    lessons: str = "",
    images: str = "",
    overrides: Overrides = NO_OVERRIDES,
) -> Plan:
    """The model's plan; its calls are durable steps (`plan.answer`, `plan.repair.answer`; with answers `plan.2.…`).

    A plan that cannot be read twice never fails the job: its summary is then the issue's title. Errors that concern all
    calls (no key, no budget) are raised.
    """
    key = f"plan.{len(answers) + 1}" if answers else "plan"
    write = partial(render_brief, answers=answers, overrides=overrides, images=images, planning=True)
    briefs = {
        key: write(job, repository_map=repository_map, instructions=instructions, suite=suite, lessons=lessons),
        f"{key}.small": write(_without_sections(job)),
    }
    for name, brief in briefs.items():
        try:
            text = f"{brief}\n\n{_NO_MORE_QUESTIONS}" if len(answers) >= MAX_ROUNDS else brief
            return await _plan(budgeted_model, journal, name, text) or _minimal(job.task.issue)
        except ModelError as error:
            if error.kind != "shrink":
                raise
    return _minimal(job.task.issue)


def parse_plan(text: str) -> Plan:
    """The plan in a model's answer: a JSON object, perhaps in a code fence or among other text. Raises PlanError."""
    try:
        values = read_object(text)[0]
    except MalformedError as error:
        raise PlanError(f"it is not a JSON object: {error}.") from None
    if isinstance(values.get("plan"), dict):
        values = values["plan"]
    fields: Fields = {"summary": one_line(_text(values.get("summary")))}
    for name in LIST_FIELDS:
        fields[name] = _texts(values.get(name))
    fields["questions"] = [text for text in fields["questions"] if not _NOTHING.fullmatch(text)][:MAX_QUESTIONS]
    for name in COMMANDS:
        fields[name] = plain(" && ".join(_texts(values.get(name), split=False))).strip()
    return plan_from_fields(fields)


def plan_schema() -> dict[str, Any]:
    """Plan's JSON schema in the form of strict structured output: every key required, no others, no defaults."""
    properties = {
        name: {key: value for key, value in prop.items() if key not in {"default", "title"}}
        for name, prop in Plan.model_json_schema()["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": list(FIELDS), "additionalProperties": False}


async def _plan(budgeted_model: ModelPort, journal: Journal, key: str, brief: str) -> Plan | None:
    """Ask once, and again if the answer is not a plan; None if the second one is not either."""
    messages = [Message(role="system", content=render("plan")), Message(role="user", content=brief)]
    for name in (key, f"{key}.repair"):
        answer = await journal.step(
            f"{name}.answer", ModelAnswer, partial(budgeted_model.ask, name, _request(messages))
        )
        try:
            return parse_plan(answer.content)
        except PlanError as error:
            problem = "the answer was empty." if not answer.content.strip() else error.message
        messages += [
            Message(role="assistant", content=answer.content or "(no answer)"),
            Message(role="user", content=render("repair", problem=problem)),
        ]
    return None


def _request(messages: Sequence[Message]) -> ModelRequest:
    return ModelRequest(
        messages=tuple(messages), schema_name="plan", response_schema=plan_schema(), max_tokens=_MAX_PLAN_SIZE
    )


def _without_sections(job: Job) -> Job:
    return job.model_copy(update={"task": job.task.model_copy(update={"sections": ()})})


def _minimal(issue: Issue) -> Plan:
    return Plan(summary=issue.title)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object, *, split: bool = True) -> list[str]:
    """A list of texts from the forms that models write: a text of several lines, objects, gaps."""
    if isinstance(value, str):
        value = value.split("\n") if split else [value]
    if not isinstance(value, list):
        return []
    texts = [", ".join(map(str, item.values())) if isinstance(item, dict) else str(item or "") for item in value]
    return [one_line(text) if split else text for text in texts if text.strip()]
