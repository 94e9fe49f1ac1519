"""OpenAI's chat format, which LiteLLM translates for other providers: builds requests, and reads an answer's stream."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.core.text import storable
from app.llm.base import FinishReason, Message, ModelRequest, OnText, ToolCall, Usage

EMPTY = "(empty)"
UNSUPPORTED = ("additionalProperties", "default", "title", "format", "minLength", "maxLength", "examples")
"""Keywords that strict structured output refuses, or that are replaced."""

SchemaMode = Literal["json_schema", "json_object", "prompt"]


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """The features that an endpoint supports: starts with all, and drops those that the endpoint refuses."""

    schema: SchemaMode = "json_schema"
    usage: bool = True
    thinking: bool = False
    """Thinking blocks are sent back to the model that wrote them."""
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    def without(self, complaint: str, request: ModelRequest) -> "ChatDialect | None":
        """The dialect to try after a 400 with this text; None if the complaint is about something else."""
        text = complaint.lower()
        if "max_completion_tokens" in text and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if ("stream_options" in text or "include_usage" in text) and self.usage:
            return replace(self, usage=False)
        words = ("response_format", "response format", "json_schema", "json_object", "structured output", "schema")
        if request.response_schema is not None and any(word in text for word in words):
            steps: dict[SchemaMode, SchemaMode] = {"json_schema": "json_object", "json_object": "prompt"}
            return replace(self, schema=steps[self.schema]) if self.schema in steps else None
        return None


def request_body(request: ModelRequest, dialect: ChatDialect) -> dict[str, Any]:
    """Keyword arguments of the call: messages, tools, limits and the form of the answer."""
    messages = [_message(message, thinking=dialect.thinking) for message in request.messages]
    arguments: dict[str, Any] = {"messages": messages, dialect.limit: request.max_tokens, "stream": True}
    if dialect.usage:
        arguments["stream_options"] = {"include_usage": True}
    if request.tools:
        arguments["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    schema = request.response_schema
    if schema is not None and dialect.schema == "json_schema":
        wanted = {"name": request.schema_name or "answer", "schema": strict(schema), "strict": True}
        arguments["response_format"] = {"type": "json_schema", "json_schema": wanted}
    elif schema is not None:
        text = f"Answer with one JSON object and nothing else. It must match this JSON schema:\n{json.dumps(schema)}"
        messages.append({"role": "user", "content": text})
        if dialect.schema == "json_object":
            arguments["response_format"] = {"type": "json_object"}
    return arguments


def strict(schema: Any) -> Any:
    """The schema for strict structured output: closed objects, every property required, few keywords."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):  # the keys below are the schema author's names, not keywords
            kept[key] = {name: strict(inner) for name, inner in value.items()}
        elif key not in UNSUPPORTED:
            kept[key] = strict(value)
    if "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


def _message(message: Message, *, thinking: bool) -> dict[str, Any]:
    protocol: dict[str, Any] = {"role": message.role, "content": storable(message.content)}
    if thinking and message.thinking:
        protocol["thinking_blocks"] = [dict(block) for block in message.thinking]
    if message.tool_calls:
        protocol["content"] = protocol["content"] or None
        protocol["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    elif not message.content and message.role != "tool":
        protocol["content"] = EMPTY  # several providers refuse a message without text
    if message.images:  # as inline data, so that no provider has to fetch them
        urls = [f"data:{image.media_type};base64,{image.data}" for image in message.images]
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        protocol["content"] = [{"type": "text", "text": protocol["content"]}, *images]
    if message.tool_call_id is not None:
        protocol["tool_call_id"] = message.tool_call_id
    return protocol


def _arguments(raw: str) -> str:
    """The arguments as the model wrote them; non-JSON is wrapped, because providers refuse a history with it."""
    try:
        if isinstance(json.loads(raw), dict):
            return storable(raw)
    except (ValueError, RecursionError):
        pass
    return json.dumps({"malformed": storable(raw)}) if raw.strip() else "{}"


def may_think(request: ModelRequest) -> bool:
    """False while answering tool calls that a fallback made without thinking, because Claude refuses that."""
    answers = [message for message in request.messages if message.role == "assistant"]
    return not answers or not answers[-1].tool_calls or bool(answers[-1].thinking)


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
    """Collects a stream's chunks one by one; the partial answer is available at any time.

    Not litellm.stream_chunk_builder, which goes over all chunks each time: a stream that breaks off is paid for, too.
    """

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text = on_text
        self._text: list[str] = []
        self._calls: list[_PartialToolCall] = []
        self._by_index: dict[int, _PartialToolCall] = {}
        self.thinking: tuple[dict[str, Any], ...] = ()
        self.finish: str | None = None
        self.usage: Any = None

    def add(self, chunk: Any) -> None:
        """Add one chunk in OpenAI's format; missing fields and None add nothing."""
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            self.usage = usage
        for choice in chunk.choices[:1]:
            self.finish = choice.finish_reason or self.finish
            if piece := getattr(choice.delta, "content", None):
                self._text.append(piece)
                if self._on_text is not None:
                    self._on_text(storable(piece))
            for delta in getattr(choice.delta, "tool_calls", None) or ():
                self._add_call(delta)
            for block in getattr(choice.delta, "thinking_blocks", None) or ():
                # a block is complete once it is signed; its fragments before that are only for display
                if isinstance(block, dict) and (block.get("signature") or block.get("data")):
                    self.thinking += (json.loads(storable(json.dumps(block, ensure_ascii=False))),)

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

    @property
    def empty(self) -> bool:
        return not self._text and not self._calls

    @property
    def content(self) -> str:
        return storable("".join(self._text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(
                id=storable(call.id) or f"call_{number}",
                name=storable(call.name),
                arguments=storable("".join(call.arguments)),
            )
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
