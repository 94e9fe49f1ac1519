"""Reads an answer as it passes: its text, calls and usage, and whether it is complete."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.llm.base import StreamEvent, ToolCall, Usage, WireProtocol


@dataclass(slots=True)
class ResponseReader:
    """Takes events one by one, or a whole document."""

    protocol: WireProtocol
    finished: bool = False
    characters: int = 0
    """Characters so far."""
    _text: list[str] = field(default_factory=list)
    _calls: dict[Any, list[str]] = field(default_factory=dict)
    _usage: dict[str, int] = field(default_factory=dict)

    def add(self, event: StreamEvent) -> None:
        match self.protocol:
            case "chat":
                self._chat(event.data)
            case "responses":
                self._responses(event.data)
            case "messages":
                self._messages(event.data)

    def whole(self, document: Mapping[str, Any]) -> None:
        """A whole document is read as the events it would have been."""
        for event in _as_events(self.protocol, document):
            self.add(event)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=call, name=name, arguments="".join(arguments))
            for call, name, *arguments in self._calls.values()
        )

    @property
    def all_text(self) -> str:
        """All text of the model, for counting its tokens."""
        return self.text + "".join(call.name + call.arguments for call in self.calls)

    @property
    def cache_written(self) -> int:
        """Prompt tokens that the provider wrote to its cache, which have a price of their own."""
        return self._usage.get("written", 0)

    @property
    def usage(self) -> Usage | None:
        """As reported by the provider, without a price; None if it was not."""
        if not self._usage.get("prompt") and not self._usage.get("completion"):
            return None
        prompt = self._usage.get("prompt", 0)
        return Usage(
            prompt_tokens=prompt,
            cached_tokens=min(prompt, self._usage.get("cached", 0)),
            completion_tokens=self._usage.get("completion", 0),
        )

    def _chat(self, data: Mapping[str, Any]) -> None:
        if isinstance(usage := data.get("usage"), dict):
            details = usage.get("prompt_tokens_details")
            self._count(usage, "prompt_tokens", "completion_tokens", cached=_number(details, "cached_tokens"))
            self._usage["written"] = _number(usage, "cache_creation_input_tokens")
        for choice in _objects(data.get("choices"))[:1]:
            self.finished = self.finished or bool(choice.get("finish_reason"))
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                continue
            self._say(delta.get("content"))
            for call in _objects(delta.get("tool_calls")):
                named = call.get("function")
                function = named if isinstance(named, dict) else {}
                self._call(call.get("index", 0), call.get("id"), function.get("name"), function.get("arguments"))

    def _responses(self, data: Mapping[str, Any]) -> None:
        match data.get("type"):
            case "response.output_text.delta":
                self._say(data.get("delta"))
            case "response.output_item.done" if isinstance(item := data.get("item"), dict):
                if item.get("type") in {"function_call", "custom_tool_call"}:
                    self._call(
                        item.get("call_id"),
                        item.get("call_id"),
                        item.get("name"),
                        item.get("arguments", item.get("input")),
                    )
            case "response.completed" | "response.incomplete" if isinstance(response := data.get("response"), dict):
                self.finished = True
                if isinstance(usage := response.get("usage"), dict):
                    details = usage.get("input_tokens_details")
                    self._count(usage, "input_tokens", "output_tokens", cached=_number(details, "cached_tokens"))

    def _messages(self, data: Mapping[str, Any]) -> None:
        match data.get("type"):
            case "message_start" if isinstance(message := data.get("message"), dict):
                self._anthropic(message.get("usage"))
            case "content_block_start" if isinstance(block := data.get("content_block"), dict):
                if block.get("type") == "tool_use":
                    self._call(data.get("index"), block.get("id"), block.get("name"), "")
            case "content_block_delta" if isinstance(delta := data.get("delta"), dict):
                self._say(delta.get("text"))
                if delta.get("partial_json"):
                    self._call(data.get("index"), None, None, delta["partial_json"])
            case "message_delta":
                self._anthropic(data.get("usage"))
            case "message_stop":
                self.finished = True

    def _anthropic(self, usage: Any) -> None:
        """Anthropic's prompt tokens exclude those of caches, which are counted separately."""
        if not isinstance(usage, dict):
            return
        cached, written = _number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens")
        fresh = _number(usage, "input_tokens")
        if fresh or cached or written:
            self._usage |= {"prompt": fresh + cached + written, "cached": cached, "written": written}
        if output := _number(usage, "output_tokens"):
            self._usage["completion"] = output

    def _count(self, usage: Mapping[str, Any], prompt: str, completion: str, *, cached: int) -> None:
        self._usage = {"prompt": _number(usage, prompt), "completion": _number(usage, completion), "cached": cached}

    def _say(self, piece: Any) -> None:
        if isinstance(piece, str) and piece:
            self._text.append(piece)
            self.characters += len(piece)

    def _call(self, place: Any, call: Any, name: Any, arguments: Any) -> None:
        known = self._calls.setdefault(place, ["", ""])
        known[0] = known[0] or str(call or "")
        known[1] = known[1] or str(name or "")
        if isinstance(arguments, str) and arguments:
            known.append(arguments)
            self.characters += len(arguments)


def _as_events(protocol: WireProtocol, document: Mapping[str, Any]) -> Iterator[StreamEvent]:
    match protocol:
        case "chat":
            choices = [{**choice, "delta": choice.get("message")} for choice in _objects(document.get("choices"))]
            yield StreamEvent("", {**document, "choices": choices})
        case "responses":
            for item in _objects(document.get("output")):
                yield StreamEvent("", {"type": "response.output_item.done", "item": item})
                for part in _objects(item.get("content")):
                    yield StreamEvent("", {"type": "response.output_text.delta", "delta": part.get("text")})
            yield StreamEvent("", {"type": "response.completed", "response": document})
        case "messages":
            yield StreamEvent("", {"type": "message_start", "message": document})
            for index, block in enumerate(_objects(document.get("content"))):
                yield StreamEvent("", {"type": "content_block_start", "index": index, "content_block": block})
                written = json.dumps(block["input"]) if block.get("type") == "tool_use" and "input" in block else None
                delta = {"text": block.get("text"), "partial_json": written}
                yield StreamEvent("", {"type": "content_block_delta", "index": index, "delta": delta})
            yield StreamEvent("", {"type": "message_stop"})


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(holder: Any, name: str) -> int:
    value = holder.get(name) if isinstance(holder, dict) else None
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
