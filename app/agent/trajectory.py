"""Writes the trajectory for people and tools: one JSON line for each stored step."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.agent.step import Step
from app.core.money import MicroUSD


def lines(steps: Iterable[Step]) -> Iterator[str]:
    """JSON lines without line ends. `cost` is in US dollars; `files` are the changed paths after the step."""
    for step in steps:
        yield json.dumps(record(step), ensure_ascii=False).encode("utf-8", "replace").decode()


def record(step: Step) -> Mapping[str, Any]:
    """One step as plain data: the model's answer, then each call with its observation."""
    answer, turn = step.stored_answer.answer, step.turn
    entry: dict[str, Any] = {
        "step": turn.number,
        "model": answer.model,
        "content": answer.content,
        "finish_reason": answer.finish_reason,
        "actions": [
            {
                "tool": call.name,
                "arguments": json.loads(call.arguments),
                "outcome": seen.outcome,
                "observation": seen.text,
            }
            for call, seen in zip(turn.calls, turn.observations, strict=True)
        ],
        "notes": [*turn.notes, *filter(None, [turn.base_suite])],
        "words": [message.model_dump() for message in turn.user_messages],
        "usage": {**answer.usage.model_dump(exclude={"cost"}), "cost": _dollars(answer.usage.cost)},
        "seconds": {"model": round(step.stored_answer.seconds, 3), "actions": round(turn.seconds, 3)},
    }
    if turn.checkpoint is not None:
        entry["files"] = [state.path for state in turn.checkpoint.files]
    if turn.fate is not None:
        entry["submission"] = turn.fate
    return entry


def _dollars(cost: MicroUSD) -> float:
    return cost / 1_000_000
