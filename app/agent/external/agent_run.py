"""One start of another agent, as stored in the job and shown in the trajectory."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.agent.base import Submission
from app.agent.external.gateway.exchange import Exchange
from app.agent.step import Checkpoint
from app.core.record import Record


class AgentRun(Record):
    """How it ended, its calls to the model, and the tree it left."""

    number: int
    exit_code: int
    seconds: float = 0.0
    output: str = ""
    """The end of its output."""
    exchanges: tuple[Exchange, ...] = ()
    submission: Submission | None = None
    checkpoint: Checkpoint
    cut_short: str = ""
    """Why it was stopped early: the money, turns or minutes were used."""
    last_message: int = 0
    """The number of the last user message in its task."""
    again: bool = False
    """True if it was started to continue its conversation."""
    interrupted: bool = False
    """True if people wrote while it worked: it is started again with their messages, whatever it submitted."""

    @property
    def turns(self) -> int:
        return sum(not exchange.refused for exchange in self.exchanges)


def last_words(exchanges: Sequence[Exchange]) -> str:
    return next((each.text for each in reversed(exchanges) if each.text.strip()), "")


def lines(runs: Sequence[AgentRun]) -> Iterator[str]:
    """JSON lines: one for each call to the model, in the form of our own steps, and one for the ending."""
    for run in runs:
        steps = [_step(run.number, exchange) for exchange in run.exchanges] or [_step(run.number, None)]
        model_seconds = sum(exchange.seconds for exchange in run.exchanges)
        steps[-1]["ended"] = {
            **run.model_dump(mode="json", include={"exit_code", "output", "submission", "cut_short", "interrupted"}),
            "files": [state.path for state in run.checkpoint.files],
        }
        steps[-1]["seconds"]["actions"] = round(max(0.0, run.seconds - model_seconds), 3)
        for step in steps:
            yield json.dumps(step, ensure_ascii=False)


def _step(round_number: int, exchange: Exchange | None) -> dict[str, Any]:
    """`round_number` is None for a start in which the agent made no call."""
    recorded = exchange or Exchange(number=0, wire="chat")
    return {
        "round": round_number,
        "step": recorded.number,
        "new": list(recorded.new),
        "content": recorded.text,
        "actions": [{"tool": call.name, "arguments": _arguments(call.arguments)} for call in recorded.calls],
        "refused": recorded.refused,
        "usage": {**recorded.usage.model_dump(exclude={"cost"}), "cost": recorded.usage.cost / 1_000_000},
        "seconds": {"model": recorded.seconds},
    }


def _arguments(text: str) -> dict[str, Any]:
    """Arguments of the agent's own tool: usually an object, otherwise the text that the model wrote."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = text
    return arguments if isinstance(arguments, dict) else {"text": text}
