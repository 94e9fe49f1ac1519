"""Assembles an answer from the chunks of a stream."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.llm.base import FinishReason, OnText, ToolCall, Usage

FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class _PartialToolCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class StreamAssembly:
    """Collects a stream's chunks one by one; the partial answer is available at any time."""

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text = on_text
        self._text: list[str] = []
        self._calls: list[_PartialToolCall] = []
        self._by_index: dict[int, _PartialToolCall] = {}
        self._thinking: list[dict[str, Any]] = []
        self.finish: str | None = None
        self.usage: Any = None

    def add(self, chunk: Any) -> None:
        """Add one chunk in OpenAI's format; missing fields and None add nothing."""
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self.usage = usage
        for choice in chunk.choices[:1]:
            self.finish = choice.finish_reason or self.finish
            self._add_text(getattr(choice.delta, "content", None))
            for delta in getattr(choice.delta, "tool_calls", None) or ():
                self._add_call(delta)
            for block in getattr(choice.delta, "thinking_blocks", None) or ():
                self._add_thinking(block)

    def _add_text(self, piece: str | None) -> None:
        if piece:
            self._text.append(piece)
            if self._on_text is not None:
                self._on_text(piece)

    def _add_call(self, delta: Any) -> None:
        """Some endpoints number every call 0: a new id at a known index starts a new call."""
        index = delta.index or 0
        call = self._by_index.get(index)
        if call is None or (delta.id and call.id and delta.id != call.id):
            call = self._by_index[index] = _PartialToolCall()
            self._calls.append(call)
        call.id = call.id or delta.id or ""
        if delta.function is not None:
            call.name = call.name or delta.function.name or ""
            call.arguments.append(delta.function.arguments or "")

    def _add_thinking(self, block: Any) -> None:
        """A block is complete once it is signed; its fragments before that are only for display."""
        if isinstance(block, dict) and (block.get("signature") or block.get("data")):
            self._thinking.append(block)

    @property
    def thinking(self) -> tuple[dict[str, Any], ...]:
        return tuple(self._thinking)

    @property
    def empty(self) -> bool:
        return not self._text and not self._calls

    @property
    def content(self) -> str:
        return "".join(self._text)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=call.id or f"call_{number}", name=call.name, arguments="".join(call.arguments))
            for number, call in enumerate(self._calls)
        )

    @property
    def finish_reason(self) -> FinishReason:
        """`tool_calls` if there are calls to execute, whatever reason the endpoint gives."""
        reason = FINISH.get(self.finish or "stop", "stop")
        return "tool_calls" if self._calls and reason == "stop" else reason

    @property
    def everything(self) -> str:
        """Everything that the model wrote, for counting tokens."""
        return self.content + "".join(call.name + call.arguments for call in self.tool_calls)

    def is_cut_off(self) -> bool:
        """True if a call's arguments end in the middle: unless the model reached its limit, the stream was cut."""
        return self.finish != "length" and any(not _is_json(call.arguments) for call in self.tool_calls)


def usage_of(reported: Any) -> Usage:
    """Tokens in OpenAI's, Anthropic's or DeepSeek's fields; the caller fills in the price."""
    details = getattr(reported, "prompt_tokens_details", None)
    cached = (
        getattr(details, "cached_tokens", None)
        or getattr(reported, "cache_read_input_tokens", None)
        or getattr(reported, "prompt_cache_hit_tokens", None)
        or 0
    )
    prompt = max(0, reported.prompt_tokens or 0)
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(max(0, cached), prompt),
        completion_tokens=max(0, reported.completion_tokens or 0),
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True
