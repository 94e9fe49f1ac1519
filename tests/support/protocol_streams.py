"""Streams of answers as other protocols than OpenAI's chat have them: Anthropic messages, OpenAI Responses, Ollama."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.openai_endpoint import Reply

Tools = Sequence[tuple[str, str, str]]
"""(id, name, arguments as raw text)."""


def anthropic(
    content: str = "",
    *,
    tools: Tools = (),
    thinking: str = "",
    stop: str = "",
    usage: Mapping[str, int] | None = None,
    piece: int = 7,
) -> Reply:
    """A message as Anthropic streams it; `usage` is what its first event says of the prompt."""
    said = {"input_tokens": 20, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, **(usage or {})}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": {**said, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    number = 0
    if thinking:
        signed = {"type": "signature_delta", "signature": "signed"}
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _pieces(thinking, piece)]
        events += _block(number, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed])
        number += 1
    if content:
        deltas = [{"type": "text_delta", "text": part} for part in _pieces(content, piece)]
        events += _block(number, {"type": "text", "text": ""}, deltas)
        number += 1
    for ident, name, arguments in tools:
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in _pieces(arguments, piece)]
        events += _block(number, {"type": "tool_use", "id": ident, "name": name, "input": {}}, deltas)
        number += 1
    reason = stop or ("tool_use" if tools else "end_turn")
    end = {"stop_reason": reason, "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 30}},
        {"type": "message_stop"},
    ]
    return Reply(events=tuple(events))


def anthropic_error(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(status=status, headers=dict(headers or {}), body=json.dumps(body).encode())


def responses(
    content: str = "",
    *,
    tools: Tools = (),
    reasoning: str = "",
    usage: Mapping[str, Any] | None = None,
    status: str = "completed",
    piece: int = 7,
) -> Reply:
    """A response as OpenAI's Responses API streams it."""
    said = {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 30}
    said |= {"output_tokens_details": {"reasoning_tokens": 8}, "total_tokens": 150, **(usage or {})}
    base: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "output": []}
    base |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    begun = {**base, "status": "in_progress", "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    output: list[dict[str, Any]] = []
    if reasoning:
        item = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": reasoning}]}
        events += _item(len(output), item, {**item, "summary": []}, [])
        output.append(item)
    if content:
        part = {"type": "output_text", "text": content, "annotations": []}
        item = {"id": "m_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        at = {"item_id": "m_1", "output_index": len(output), "content_index": 0}
        deltas = [{"type": "response.output_text.delta", **at, "delta": each} for each in _pieces(content, piece)]
        events += _item(len(output), item, {**item, "status": "in_progress", "content": []}, deltas)
        output.append(item)
    for number, (ident, name, arguments) in enumerate(tools):
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": ident, "name": name, "arguments": arguments}
        item |= {"status": "completed"}
        at = {"item_id": item["id"], "output_index": len(output)}
        deltas = [
            {"type": "response.function_call_arguments.delta", **at, "delta": each}
            for each in _pieces(arguments, piece)
        ]
        deltas.append({"type": "response.function_call_arguments.done", **at, "arguments": arguments})
        events += _item(len(output), item, {**item, "arguments": "", "status": "in_progress"}, deltas)
        output.append(item)
    whole = {**base, "status": status, "output": output, "usage": said}
    if status == "incomplete":
        whole["incomplete_details"] = {"reason": "max_output_tokens"}
    events.append({"type": f"response.{status}", "response": whole})
    return Reply(events=tuple({**event, "sequence_number": number} for number, event in enumerate(events)))


def ollama(content: str = "", *, tools: Tools = (), done: str = "stop", piece: int = 7) -> Reply:
    """A chat as Ollama streams it: one object a line, and calls whole."""
    head = {"model": "scripted", "created_at": "2026-11-22T12:00:00Z"}
    events: list[dict[str, Any]] = [
        {**head, "message": {"role": "assistant", "content": part}, "done": False} for part in _pieces(content, piece)
    ]
    for _, name, arguments in tools:
        call = {"function": {"name": name, "arguments": json.loads(arguments)}}
        events.append({**head, "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False})
    end = {"done": True, "done_reason": done, "prompt_eval_count": 120, "eval_count": 30, "total_duration": 1}
    events.append({**head, "message": {"role": "assistant", "content": ""}, **end})
    return Reply(headers={"content-type": "application/x-ndjson"}, events=tuple(events), lines=True)


def _block(number: int, block: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": number, "content_block": dict(block)},
        *({"type": "content_block_delta", "index": number, "delta": dict(delta)} for delta in deltas),
        {"type": "content_block_stop", "index": number},
    ]


def _item(
    number: int, whole: Mapping[str, Any], begun: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    return [
        {"type": "response.output_item.added", "output_index": number, "item": dict(begun)},
        *map(dict, deltas),
        {"type": "response.output_item.done", "output_index": number, "item": dict(whole)},
    ]


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
