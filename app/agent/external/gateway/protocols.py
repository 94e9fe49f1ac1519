"""The three protocols from a client's view: what a request says about itself, and the form of a refusal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.llm.raw_call import StreamEvent, WireProtocol

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
