"""One call as stored in the trajectory: the new part of the request, and the result."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.agent.external.gateway.response_reader import ResponseReader
from app.core.record import Record
from app.llm.base import StreamEvent, ToolCall, Usage, WireProtocol

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
class RequestRefused(Exception):  # noqa: N818  # what the agent is told
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
        self._seen: set[bytes] = set()
        self._space = MAX_STORED
        self._refusals = 0
        self.exchanges: list[Exchange] = []

    def new_messages(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Messages, as JSON, that no earlier request had."""
        parts = [part for name in ("system", "instructions", "messages", "input") for part in _list(body.get(name))]
        texts = [json.dumps(part, ensure_ascii=False, sort_keys=True) for part in parts]
        keys = [_digest(text) for text in texts]
        new = [text for key, text in zip(keys, texts, strict=True) if key not in self._seen]
        self._seen.update(keys)
        return tuple(map(self._bounded, new))

    def _bounded(self, text: str) -> str:
        kept = clipped(text, MAX_TEXT if len(text) <= self._space else SHORTENED_LENGTH)
        self._space -= len(kept)
        return kept

    def answered(
        self, protocol: WireProtocol, new: tuple[str, ...], reading: ResponseReader, usage: Usage, seconds: float
    ) -> Exchange:
        return self._keep(
            Exchange(
                number=len(self.exchanges) + 1,
                wire=protocol,
                new=new,
                text=reading.text,
                calls=reading.calls,
                usage=usage,
                seconds=round(seconds, 3),
            )
        )

    def refused(self, protocol: WireProtocol, refusal: RequestRefused) -> Exchange | None:
        """None once too many refused calls are stored."""
        self._refusals += 1
        if self._refusals > MAX_REFUSALS:
            return None
        return self._keep(Exchange(number=len(self.exchanges) + 1, wire=protocol, refused=refusal.reason))

    def _keep(self, exchange: Exchange) -> Exchange:
        self.exchanges.append(exchange)
        return exchange


def clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value] if value else []
