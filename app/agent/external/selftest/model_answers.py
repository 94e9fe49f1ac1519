"""One answer of a model, a sentence and an optional tool call, in each of the three protocols."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.llm.base import ToolCall
from app.llm.raw_call import StreamEvent, WireProtocol

PROMPT_TOKENS, ANSWER_TOKENS = 100, 10
_STARTED = 1_700_000_000


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """An answer. `number` makes its ids unique."""

    number: int
    text: str
    call: ToolCall | None = None


def document(protocol: WireProtocol, line: ScriptedAnswer, model: str) -> dict[str, Any]:
    """The answer as one document."""
    match protocol:
        case "chat":
            choice = {"index": 0, "message": _chat_message(line), "finish_reason": _finish(line)}
            return {**_chat_head(line, model, "chat.completion"), "choices": [choice], "usage": _CHAT_USAGE}
        case "responses":
            return _response(line, model, "completed", _items(line))
        case "messages":
            stop = {"stop_reason": "tool_use" if line.call else "end_turn", "usage": _MESSAGES_USAGE}
            return {**_message(line, model), "content": _blocks(line), **stop}


def events(protocol: WireProtocol, line: ScriptedAnswer, model: str) -> Iterator[StreamEvent]:
    """The answer as a stream."""
    match protocol:
        case "chat":
            yield from _chat_events(line, model)
        case "responses":
            for number, data in enumerate(_response_events(line, model)):
                yield StreamEvent(data["type"], {**data, "sequence_number": number})
        case "messages":
            for data in _message_events(line, model):
                yield StreamEvent(data["type"], data)


_CHAT_USAGE: Mapping[str, Any] = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": ANSWER_TOKENS,
    "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
}
_MESSAGES_USAGE: Mapping[str, Any] = {"input_tokens": PROMPT_TOKENS, "output_tokens": ANSWER_TOKENS}
_RESPONSES_USAGE: Mapping[str, Any] = {
    **_MESSAGES_USAGE,
    "total_tokens": PROMPT_TOKENS + ANSWER_TOKENS,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def _finish(line: ScriptedAnswer) -> str:
    return "tool_calls" if line.call else "stop"


def _chat_head(line: ScriptedAnswer, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chat-{line.number}", "object": kind, "created": _STARTED, "model": model}


def _chat_message(line: ScriptedAnswer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": line.text}
    if line.call is not None:
        function = {"name": line.call.name, "arguments": line.call.arguments}
        message["tool_calls"] = [{"id": line.call.id, "type": "function", "function": function}]
    return message


def _chat_events(line: ScriptedAnswer, model: str) -> Iterator[StreamEvent]:
    message = _chat_message(line)
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    head = _chat_head(line, model, "chat.completion.chunk")
    for delta, finish in ((message, None), ({}, _finish(line))):
        yield StreamEvent("", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    yield StreamEvent("", {**head, "choices": [], "usage": _CHAT_USAGE})


def _response(line: ScriptedAnswer, model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{line.number}",
        "object": "response",
        "created_at": _STARTED,
        "status": status,
        "model": model,
        "output": output,
        "usage": _RESPONSES_USAGE if status == "completed" else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _items(line: ScriptedAnswer) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": line.text, "annotations": []}
    message = {"id": f"msg_{line.number}", "type": "message", "role": "assistant", "status": "completed"}
    items: list[dict[str, Any]] = [{**message, "content": [part]}]
    if line.call is not None:
        call = {"type": "function_call", "id": f"fc_{line.number}", "call_id": line.call.id, "name": line.call.name}
        items.append({**call, "arguments": line.call.arguments, "status": "completed"})
    return items


def _response_events(line: ScriptedAnswer, model: str) -> Iterator[dict[str, Any]]:
    response = _response(line, model, "in_progress", [])
    items = _items(line)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    for index, item in enumerate(items):
        position = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": _without_content(item)}
        if item["type"] == "message":
            content_position = {**position, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **content_position, "part": empty}
            yield {"type": "response.output_text.delta", **content_position, "delta": line.text, "logprobs": []}
            yield {"type": "response.output_text.done", **content_position, "text": line.text, "logprobs": []}
            yield {"type": "response.content_part.done", **content_position, "part": item["content"][0]}
        else:
            arguments = item["arguments"]
            yield {"type": "response.function_call_arguments.delta", **position, "delta": arguments}
            yield {"type": "response.function_call_arguments.done", **position, "arguments": arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(line, model, "completed", items)}


def _without_content(item: dict[str, Any]) -> dict[str, Any]:
    """The item as it is when it starts."""
    empty: dict[str, Any] = {"content": [], "arguments": ""}
    return {**{name: empty.get(name, value) for name, value in item.items()}, "status": "in_progress"}


def _message(line: ScriptedAnswer, model: str) -> dict[str, Any]:
    head = {"id": f"msg_{line.number}", "type": "message", "role": "assistant", "model": model}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _MESSAGES_USAGE}


def _blocks(line: ScriptedAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": line.text}]
    if line.call is not None:
        given = json.loads(line.call.arguments)
        blocks.append({"type": "tool_use", "id": line.call.id, "name": line.call.name, "input": given})
    return blocks


def _message_events(line: ScriptedAnswer, model: str) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(line, model)}
    for index, block in enumerate(_blocks(line)):
        if block["type"] == "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if line.call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": ANSWER_TOKENS}}
    yield {"type": "message_stop"}
