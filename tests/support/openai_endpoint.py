"""A loopback HTTP server that speaks OpenAI's chat protocol and plays a script of replies, faults included."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

USAGE: Mapping[str, Any] = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 64},
}
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gets: a body as it is, or else `events` as a stream, whole or cut after `cut` of them.

    `stall` waits before that many events, for as long as the endpoint lives. `hang_up` closes without a word.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    events: tuple[dict[str, Any] | str, ...] = ()
    cut: int | None = None
    stall: int | None = None
    hang_up: bool = False
    lines: bool = False
    """One JSON object a line in the place of server-sent events, as Ollama has it."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as it came; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    raw: bytes = b""


def answer(
    content: str = "",
    *,
    tools: Sequence[tuple[str, str, str]] = (),
    finish: str | None = None,
    usage: Mapping[str, Any] | None = USAGE,
    piece: int = 7,
) -> Reply:
    """A streamed answer in pieces of `piece` characters; `tools` are (id, name, arguments as raw text)."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": part} for part in _pieces(content, piece)]
    for index, (ident, name, arguments) in enumerate(tools):
        head = {"index": index, "id": ident, "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _pieces(arguments, piece)
        ]
    events: list[dict[str, Any] | str] = [_chunk(delta) for delta in deltas]
    events.append(_chunk({}, finish or ("tool_calls" if tools else "stop")))
    if usage is not None:
        events.append({**_chunk({}), "choices": [], "usage": dict(usage)})
    return Reply(events=(*events, DONE))


def error(
    status: int, message: str, *, code: str | None = None, kind: str = "error", headers: Mapping[str, str] | None = None
) -> Reply:
    """A refusal in OpenAI's shape."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Reply(status=status, headers=dict(headers or {}), body=json.dumps(body).encode())


def cut(reply: Reply, after: int) -> Reply:
    """The connection breaks after so many events of the stream."""
    return replace(reply, cut=after)


def stall(reply: Reply, before: int) -> Reply:
    """The stream goes silent before that event; with 0 not even the headers come."""
    return replace(reply, stall=before)


def finds_nothing(_: ReceivedRequest) -> Reply:
    """A reviewer who has no counter-example."""
    return answer(tools=[("call-1", "counter", json.dumps({"reason": "This story is about something else."}))])


def is_review(received: ReceivedRequest) -> bool:
    """The request is of the conversation in which a submitted change is reviewed."""
    tools = received.body.get("tools") or ()
    return any(tool.get("function", tool).get("name") == "counter" for tool in tools)


class OpenAIEndpoint:
    """Serves `replies` in order while used as a context; what was asked by POST stands in `requests`.

    `models` is what every GET is answered with, or decides that by the request's headers. The reviewer has answers
    of its own, and requests that are kept apart.
    """

    reviewer: Callable[[ReceivedRequest], Reply] = staticmethod(finds_nothing)

    def __init__(self, replies: Iterable[Reply] = (), *, models: Reply | None = None) -> None:
        self._replies = list(replies)
        self.models: Reply | Callable[[Mapping[str, str]], Reply] = models or Reply(
            body=b'{"object": "list", "data": []}'
        )
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[ReceivedRequest] = []
        self.review_requests: list[ReceivedRequest] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, *replies: Reply) -> None:
        """Play these from now on."""
        with self._lock:
            self._replies = list(replies)
            self.requests.clear()

    def reply(self, received: ReceivedRequest) -> Reply:
        if not is_review(received):
            return self.take(received)
        with self._lock:
            self.review_requests.append(received)
        return self.reviewer(received)

    def take(self, received: ReceivedRequest) -> Reply:
        with self._lock:
            self.requests.append(received)
            if not self._replies:
                return error(599, "the script is at its end")
            return self._replies.pop(0)

    def wait_for_close(self) -> None:
        self._closing.wait(60)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: OpenAIEndpoint) -> None:
        self.endpoint = endpoint
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever has heard enough and goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = ReceivedRequest(self.path, headers, json.loads(raw), raw)
        reply = self.server.endpoint.reply(received)
        self.close_connection = True
        if reply.hang_up:
            return
        if reply.stall == 0:
            self.server.endpoint.wait_for_close()
        elif reply.body is not None:
            self._send(reply, reply.body)
        else:
            self._stream(reply)

    def do_GET(self) -> None:
        reply = self.server.endpoint.models
        if not isinstance(reply, Reply):
            reply = reply({name.lower(): value for name, value in self.headers.items()})
        self._send(reply, reply.body or b"")

    def _send(self, reply: Reply, body: bytes) -> None:
        self.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"content-type": "text/event-stream", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for number, event in enumerate(reply.events):
            if number == reply.cut:
                return
            if number == reply.stall:
                self.server.endpoint.wait_for_close()
                return
            self._write_chunk(_framed(event, lines=reply.lines))
        self._write_chunk(b"")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing on stderr."""


def _framed(event: dict[str, Any] | str, *, lines: bool) -> bytes:
    """Text is written as it is after `data: `; an object that has a `type` is named by it, as Anthropic does."""
    text = event if isinstance(event, str) else json.dumps(event)
    if lines:
        return f"{text}\n".encode()
    named = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
    return f"{named}data: {text}\n\n".encode()


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
