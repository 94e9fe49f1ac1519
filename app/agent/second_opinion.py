"""A second opinion on examples that fail: what each should print, derived without seeing what it does or should.

One model call. An example whose output is not derived again is a question for people and nothing against the change.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from app.agent.actions import MalformedError, read_object
from app.agent.prompts import render, render_derivation
from app.core.examples import JudgedExample
from app.core.job import Job
from app.core.record import Record
from app.llm.base import Message, ModelAnswer, ModelRequest
from app.llm.errors import BudgetError, DayBudgetError, ModelError

_ANSWER_TOKENS: Final = 4_000
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "output": {"type": "string"},
                    "as_before": {"type": "boolean"},
                },
                "required": ["number", "output", "as_before"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["answers"],
    "additionalProperties": False,
}
UNDECIDED: Final = "another conversation could not derive an output from the issue."
DIFFERENT: Final = "another conversation derived another output from the issue."

Ask = Callable[[ModelRequest], Awaitable[ModelAnswer]]


class SecondOpinion(Record):
    """By example: why its output is unconfirmed; empty if it was derived again."""

    unconfirmed: Mapping[str, str]


async def second_opinion(ask: Ask, job: Job, examples: Sequence[JudgedExample]) -> SecondOpinion:
    """Have the outputs of failing examples derived from the issue and the programs alone.

    Raises ModelError if the provider may answer later, and DayBudgetError.
    """
    messages = (
        Message(role="system", content=render("derive")),
        Message(role="user", content=render_derivation(job, examples)),
    )
    request = ModelRequest(messages=messages, schema_name="outputs", response_schema=_SCHEMA, max_tokens=_ANSWER_TOKENS)
    try:
        answers = _read((await ask(request)).content)
    except (ModelError, BudgetError) as error:
        if isinstance(error, DayBudgetError) or (isinstance(error, ModelError) and error.kind in ("retry", "wait")):
            raise
        why = f"another conversation could not be asked: {error.message}"
        return SecondOpinion(unconfirmed={one.name: why for one in examples})
    return SecondOpinion(
        unconfirmed={one.name: _doubt(one, answers.get(number)) for number, one in enumerate(examples, 1)}
    )


def _read(text: str) -> Mapping[int, tuple[str, bool]]:
    """The answers by number; what cannot be read is left out."""
    try:
        listed = read_object(text)[0].get("answers")
    except MalformedError:
        return {}
    found = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(number := each.get("number"), int):
            found[number] = (str(each.get("output") or ""), each.get("as_before") is True)
    return found


def _doubt(example: JudgedExample, answer: tuple[str, bool] | None) -> str:
    output, as_before = answer or ("", False)
    if as_before:
        same = bool(example.base) and all(run.printed(example) for run in example.base)
        return "" if same else DIFFERENT
    if not output.strip():
        return UNDECIDED
    return "" if output.rstrip("\n") == example.stdout.rstrip("\n") else DIFFERENT
