"""An OpenAI-compatible endpoint on the loopback that plays a model, counts what is sent, and can stop who asks."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from time import monotonic
from typing import Any

from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply, answer

MODEL = "openai/bench"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
Tools = list[tuple[str, str, str]]
"""Calls as (id, name, arguments as JSON)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says and calls."""

    text: str
    tools: Tools = field(default_factory=list)

    def reply(self, *, streamed: bool, usage: Mapping[str, Any] = USAGE) -> Reply:
        if streamed:
            return answer(self.text, tools=self.tools, piece=400, usage=usage)
        calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in self.tools]
        message = {"role": "assistant", "content": self.text, "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "bench", "choices": [choice]}
        return Reply(body=json.dumps(body | {"usage": dict(usage)}).encode())


class Counting(OpenAIEndpoint):
    """Answers each request as `play` says, and notes the size of its messages and tools in characters."""

    def __init__(self, play: Callable[[dict[str, Any]], Turn]) -> None:
        super().__init__()
        self._play = play
        self.characters: list[int] = []

    def take(self, received: ReceivedRequest) -> Reply:
        body = received.body
        self.characters.append(_characters(body.get("messages")) + _characters(body.get("tools")))
        return self._play(body).reply(streamed=bool(body.get("stream")))

    @property
    def tokens(self) -> float:
        """Prompt tokens of all requests by the rule of thumb that every agent is measured with: 4 characters each."""
        return sum(self.characters) / 4

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_BASE": self.url, "OPENAI_API_KEY": "sk-bench"}


class Stopwatch(OpenAIEndpoint):
    """Notes when the first request arrives, also one of an author of tests, and never answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.author = self.take
        self._arrived = Event()
        self._at = 0.0

    def take(self, received: ReceivedRequest) -> Reply:
        if not self._arrived.is_set():
            self._at = monotonic()
            self._arrived.set()
        return Reply(stall=0)

    def wait(self, ended: Callable[[], bool]) -> float | None:
        """When it arrived, on the monotonic clock; None where who was to ask has ended instead."""
        while not self._arrived.wait(0.05):
            if ended():
                return None
        return self._at

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_BASE": self.url, "OPENAI_API_KEY": "sk-bench"}


def _characters(part: object) -> int:
    return len(json.dumps(part, ensure_ascii=False)) if part else 0
