"""Prompt tokens of one script of 20 steps, with observations of 2,000 characters."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.llm.tokens import count_text
from bench.endpoint import MODEL, Counting, Turn
from bench.ground import BenchDirectory, Command
from bench.table import Row

STEPS = 20
LIMIT_REACHED = 22
_PLAN = re.compile("Answer (?:again )?with one JSON object")
PLAN = {"summary": "Give the rest to the first people.", "hypotheses": ["integer division"], "steps": ["test", "fix"]}


def measure(ground: BenchDirectory, _repeat: int) -> list[Row]:
    """Once: the same script gives the same requests."""
    with Counting(play) as ours:
        options = ("--no-plan", "--max-steps", str(STEPS), "--model", MODEL)
        Command(ground.fix(*options), ground.environment | ours.environment()).end(LIMIT_REACHED)
    note = f"first request {ours.characters[0] / 4:,.0f}, {len(ours.characters)} requests"
    return [Row("prompt tokens of a 20-step script", [ours.tokens], "", note=note)]


def tokens(text: str) -> int:
    """By OpenAI's tokenizer, without the margin that our own counting adds for the sake of limits."""
    return count_text("gpt-4", text) * 100 // 105


def asks_for_plan(body: Mapping[str, Any]) -> bool:
    """Ours asks for one JSON object in its last message."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages") or ()
    return bool(messages) and _PLAN.search(json.dumps(messages[-1].get("content"))) is not None


def play(body: dict[str, Any]) -> Turn:
    """The next step of the script, found by the answers that the request already holds."""
    if asks_for_plan(body):
        return Turn(json.dumps(PLAN))
    step = 1 + sum(message["role"] == "assistant" for message in body["messages"])
    if step < STEPS:
        observed = f"head -c 1990 /dev/zero | tr '\\0' x; echo; echo step {step:03}"
        return Turn("Go on.", [_call(step, "bash", command=f"echo '# {step}' >> money.py; {observed}")])
    return Turn("Done.", [_call(step, "submit", summary="Done.", reproduction="python3 -m unittest")])


def _call(step: int, tool: str, **arguments: str) -> tuple[str, str, str]:
    return f"call-{step}", tool, json.dumps(arguments)
