"""One call of another agent: what it answered, what is stored in the trajectory, and what it cost."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from app.core.model_usage import MicroUSD
from app.core.record import Record
from app.core.text import clip, storable
from app.llm.base import ModelInfo, StreamEvent, ToolCall, Usage, WireProtocol
from app.llm.errors import BudgetError
from app.llm.ledger import NOTHING, SHARE_USED_UP, Ledger, run_or_undo
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.tokens import count_text


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
        return storable("".join(self._text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(id=storable(call), name=storable(name), arguments=storable("".join(arguments)))
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
            self._usage = {
                "prompt": _number(usage, "prompt_tokens"),
                "completion": _number(usage, "completion_tokens"),
                "cached": _number(usage.get("prompt_tokens_details"), "cached_tokens"),
                "written": _number(usage, "cache_creation_input_tokens"),
            }
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
                    call, arguments = item.get("call_id"), item.get("arguments", item.get("input"))
                    self._call(call, call, item.get("name"), arguments)
            case "response.completed" | "response.incomplete" if isinstance(response := data.get("response"), dict):
                self.finished = True
                if isinstance(usage := response.get("usage"), dict):
                    self._usage = {
                        "prompt": _number(usage, "input_tokens"),
                        "completion": _number(usage, "output_tokens"),
                        "cached": _number(usage.get("input_tokens_details"), "cached_tokens"),
                    }

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


PATHS: Mapping[str, WireProtocol] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
LIMITS: Mapping[WireProtocol, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
DONE = b"data: [DONE]\n\n"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
_KINDS |= {402: "billing_error", 429: "rate_limit_error", 529: "overloaded_error"}


@dataclass(slots=True, eq=False)
class RequestRefused(Exception):  # noqa: N818  # the answer to the agent
    """A refused call: the HTTP status, a stable word for programs, and a sentence."""

    status: int
    reason: str
    message: str
    retry_after: float | None = None


def refusal_body(protocol: WireProtocol, refusal: RequestRefused) -> dict[str, Any]:
    """The refusal in the form that the protocol's clients read. They repeat 429 and 5xx by themselves, and nothing
    else."""
    kind = _KINDS.get(refusal.status, "api_error")
    if protocol == "messages":
        return {"type": "error", "error": {"type": kind, "message": refusal.message}}
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.reason}}


def refusal_event(protocol: WireProtocol, refusal: RequestRefused) -> bytes:
    """The refusal inside an answer that has already started."""
    if protocol == "responses":
        data = {"type": "error", "code": refusal.reason, "message": refusal.message, "param": None}
        return frame(StreamEvent("error", data))
    return frame(StreamEvent("error" if protocol == "messages" else "", refusal_body(protocol, refusal)))


def frame(event: StreamEvent) -> bytes:
    head = f"event: {event.name}\n" if event.name else ""
    return f"{head}data: {json.dumps(event.data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def limit_of(protocol: WireProtocol, body: Mapping[str, Any]) -> int | None:
    """The requested length of the answer; None if absent. Raises RequestRefused if it is not a number."""
    for name in LIMITS[protocol]:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RequestRefused(400, "bad_request", f"{name} is to be a positive number.")
        return value
    return None


def wants_usage(body: Mapping[str, Any]) -> bool:
    """True if a chat client expects the last chunk, without choices."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


MAX_TEXT = 200_000
"""Characters of one message: other agents send their whole conversation every time."""
MAX_STORED = 20_000_000
"""Characters of all new messages of one start; later ones are shortened."""
SHORTENED_LENGTH = 300
MAX_REFUSALS = 100
"""Refused calls to store, so that an agent that repeats them does not fill the disk."""


class Exchange(Record):
    """`new` are messages that the previous request did not have; `refused` is the reason, if refused."""

    number: int
    wire: WireProtocol
    new: tuple[str, ...] = ()
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    refused: str = ""


class ExchangeRecorder:
    """Finds the new messages in each request of a conversation and, as far as possible, of its sub-agents."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._space = MAX_STORED
        self._refusals = 0
        self.exchanges: list[Exchange] = []

    def new_messages(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Messages, as JSON, that no earlier request had."""
        new: list[str] = []
        digests: set[bytes] = set()
        for name in ("system", "instructions", "messages", "input"):
            value = body.get(name)
            for part in value if isinstance(value, list) else [value] if value else []:
                text = json.dumps(part, ensure_ascii=False, sort_keys=True)
                digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
                digests.add(digest)
                if digest not in self._known:
                    new.append(clip(text, MAX_TEXT if len(text) <= self._space else SHORTENED_LENGTH))
                    self._space -= len(new[-1])
        self._known |= digests
        return tuple(new)

    def answered(
        self, protocol: WireProtocol, new: tuple[str, ...], reading: ResponseReader, usage: Usage, seconds: float
    ) -> Exchange:
        exchange = Exchange(
            number=len(self.exchanges) + 1,
            wire=protocol,
            new=new,
            text=reading.text,
            calls=reading.calls,
            usage=usage,
            seconds=round(seconds, 3),
        )
        self.exchanges.append(exchange)
        return exchange

    def refused(self, protocol: WireProtocol, refusal: RequestRefused) -> Exchange | None:
        """None once too many refused calls are stored."""
        self._refusals += 1
        if self._refusals > MAX_REFUSALS:
            return None
        exchange = Exchange(number=len(self.exchanges) + 1, wire=protocol, refused=refusal.reason)
        self.exchanges.append(exchange)
        return exchange


MIN_ANSWER = 256
"""Output tokens below which an answer is useless; agents have small questions too."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """Tokens of a request: its prompt, a useful answer, and the longest possible answer."""

    prompt: int
    enough: int
    space: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A call that may be made; its answer may have `limit` tokens."""

    call: str
    prompt: int
    limit: int


@dataclass(frozen=True, slots=True)
class CallBudget:
    """One job's ledger, for the calls `name.1`, `name.2` and so on of one agent start.

    `until` is the job's spending at which an attempt has used its share; 0 if only the job's limit counts.
    """

    ledger: Ledger
    info: ModelInfo
    name: str = "agent"
    until: MicroUSD = 0
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    async def begin(self) -> None:
        """An earlier process may have made the same start: its open calls count as lost."""
        await asyncio.to_thread(self.ledger.mark_lost, f"{self.name}.")

    async def measure(self, protocol: WireProtocol, body: Mapping[str, Any]) -> CallRequest:
        """Raises RequestRefused if the request exceeds the context window."""
        info, wanted = self.info, limit_of(protocol, body)
        text = await asyncio.to_thread(json.dumps, body, ensure_ascii=False)
        prompt = await asyncio.to_thread(count_text, info.name, text)
        enough = min(MIN_ANSWER, wanted or MIN_ANSWER)
        space = min(wanted or info.max_output, info.max_output, info.context_window - prompt)
        if space < enough:
            message = f"{prompt:,} tokens do not fit into the context window of {info.context_window:,} tokens."
            raise RequestRefused(400, "context_length_exceeded", message)
        return CallRequest(prompt, enough, space)

    async def reserve(self, wanted: CallRequest, *, alone: bool = True) -> Reservation:
        """Raises BudgetError if there is not enough money. While other calls hold money, an answer is never
        shortened: the call is refused and may be repeated."""
        reserve = partial(self._reserve, wanted, alone=alone)
        return await run_or_undo(reserve, lambda made: self.ledger.book(made.call, NOTHING))

    def _reserve(self, wanted: CallRequest, *, alone: bool) -> Reservation:
        info, prompt, call = self.info, wanted.prompt, f"{self.name}.{next(self._numbers)}"
        enough = wanted.enough if alone else wanted.space
        left = self.ledger.remaining(call)
        share = max(0, self.until - self.ledger.spent()) if self.until else left
        space = affordable(info, prompt, min(left, share), wanted.space)
        if space < enough:
            worst = worst_case(info, prompt, enough)
            raise BudgetError(SHARE_USED_UP) if worst <= left else self.ledger.refusal(call, worst)
        lost = Usage(prompt_tokens=prompt, estimated=True)
        lost = lost.model_copy(update={"cost": cost_of(info, lost)})
        self.ledger.reserve(call, worst_case(info, prompt, space), if_lost=lost)
        return Reservation(call, prompt, space)

    def book(self, reserved: Reservation, reading: ResponseReader | None) -> Usage:
        """Book the reported usage, or an estimate; nothing if the provider was never called."""
        usage = Usage()
        if reading is not None:
            usage = self._used(reserved, reading)
            usage = usage.model_copy(update={"cost": cost_of(self.info, usage, reading.cache_written)})
        self.ledger.book(reserved.call, usage)
        return usage

    def _used(self, reserved: Reservation, reading: ResponseReader) -> Usage:
        """Until its end, a provider has reported the prompt at most."""
        reported = reading.usage
        if reported is not None and reading.finished:
            return reported
        completion = count_text(self.info.name, reading.all_text)
        if reported is None:
            return Usage(prompt_tokens=reserved.prompt, completion_tokens=completion, estimated=True)
        completion = max(completion, reported.completion_tokens)
        prompt = reported.prompt_tokens or reserved.prompt
        return reported.model_copy(update={"prompt_tokens": prompt, "completion_tokens": completion, "estimated": True})
