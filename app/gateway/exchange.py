"""One call as the trajectory keeps it: what was new in the request, and what came of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.gateway.reading import Reading
from app.gateway.wires import Refusal
from app.model.base import ToolCall, Usage
from app.model.passage import Wire
from app.noun import Noun

MOST_TEXT = 200_000
"""Characters of one request's news: outside agents send their whole conversation every time."""


class Exchange(Noun):
    """`new` are the messages that the request before it did not have; `refused` is the reason, where it was."""

    number: int
    wire: Wire
    new: tuple[str, ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    refused: str = ""


class Recorder:
    """Tells what is new in each request of one conversation, and in its sub-agents' as well as it can."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.exchanges: list[Exchange] = []

    def news(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Messages, each as JSON, that no request had before."""
        parts = [part for name in ("system", "instructions", "messages", "input") for part in _list(body.get(name))]
        texts = [json.dumps(part, ensure_ascii=False, sort_keys=True) for part in parts]
        new = [text for text in texts if text not in self._seen]
        self._seen.update(new)
        return tuple(clipped(text) for text in new)

    def answered(self, wire: Wire, new: tuple[str, ...], reading: Reading, usage: Usage, seconds: float) -> Exchange:
        return self._keep(
            Exchange(
                number=len(self.exchanges) + 1,
                wire=wire,
                new=new,
                text=reading.text,
                calls=reading.calls,
                usage=usage,
                seconds=round(seconds, 3),
            )
        )

    def refused(self, wire: Wire, refusal: Refusal) -> Exchange:
        return self._keep(Exchange(number=len(self.exchanges) + 1, wire=wire, refused=refusal.reason))

    def _keep(self, exchange: Exchange) -> Exchange:
        self.exchanges.append(exchange)
        return exchange


def clipped(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}… ({len(text) - MOST_TEXT:,} more characters)"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value] if value else []
