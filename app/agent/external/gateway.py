"""Gives an agent's sandbox access to one job's model, with the job's key and money; its only way out.

agent ─► forwarder inside ─► unix socket ─► token? rules? money? ─► the model, by its own protocol ─► booked, recorded
"""

import asyncio
import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.agent.external.exchange import (
    DONE,
    PATHS,
    CallBudget,
    Exchange,
    ExchangeRecorder,
    RequestRefused,
    Reservation,
    ResponseReader,
    frame,
    refusal_body,
    refusal_event,
    wants_usage,
)
from app.agent.external.recipe import AgentRecipe
from app.core.errors import AgentFixError
from app.core.model_usage import MicroUSD
from app.core.text import storable
from app.llm.base import FIELDS, OURS, Body, RawProxyCall, StreamEvent, WireProtocol
from app.llm.errors import BudgetError, ModelError, is_outage
from app.llm.ledger import Ledger
from app.llm.tokens import count_text

T = TypeVar("T")
_NAMED = frozenset({"type", "name", "description", "strict", "defer_loading", "cache_control"})
_RESPONSES = _NAMED | {"parameters"}
_MESSAGES = _NAMED | {"input_schema", "input_examples", "eager_input_streaming"}
_ANTHROPIC = frozenset({"type", "name", "cache_control", "max_characters"})
OWN_TOOLS: Mapping[WireProtocol, Mapping[str, frozenset[str]]] = {
    "chat": {
        "function": frozenset({"type", "function", "strict", "cache_control"}),
        "custom": frozenset({"type", "custom"}),
    },
    "responses": {
        "function": _RESPONSES,
        "custom": _NAMED | {"format"},
        "local_shell": frozenset({"type"}),
        "shell": frozenset({"type"}),
        "apply_patch": frozenset({"type"}),
    },
    "messages": {"custom": _MESSAGES, "bash_": _ANTHROPIC, "text_editor_": _ANTHROPIC, "memory_": _ANTHROPIC},
}
"""Allowed fields by kind (`_` at its end: any version). The provider runs all other kinds on its own network, some
of them for a key alone (`{"google_search": {}}`)."""


def check_tools(protocol: WireProtocol, tools: Any) -> None:
    """Check a request's tools. Raises RequestRefused for malformed ones and those that the provider would execute."""
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RequestRefused(400, "bad_request", "tools is to be a list of objects.")
    for tool in tools:
        if protocol == "responses" and tool.get("type") == "namespace":  # a namespace for the agent's own tools
            check_tools(protocol, tool.get("tools"))
            continue
        own = _fields_of_tool(protocol, tool.get("type", "custom" if protocol == "messages" else None))
        if own is None:
            name = repr(str(tool.get("type") or ", ".join(map(str, tool)))[:60])
            message = f"The tool {name} is carried out by the provider, with a network that this job lacks."
            raise RequestRefused(400, "tool_not_offered", message)
        if odd := sorted(str(name)[:60] for name in tool.keys() - own):
            raise RequestRefused(400, "tool_not_offered", f"A tool of this kind has no {odd[0]!r} here.")
        check_cache(tool)


def _fields_of_tool(protocol: WireProtocol, kind: Any) -> frozenset[str] | None:
    """The fields that a tool of this kind may have; None for kinds that are not the agent's own."""
    for name, fields in OWN_TOOLS[protocol].items():
        if isinstance(kind, str) and (kind == name or (name.endswith("_") and kind.startswith(name))):
            return fields
    return None


def check_cache(part: Mapping[str, Any]) -> None:
    """Raises RequestRefused for a cache with another price than the expected one."""
    kept = part.get("cache_control")
    if isinstance(kept, dict) and kept.get("ttl", "5m") != "5m":
        raise RequestRefused(400, "not_offered", "A cache is kept for 5m here: longer has another price.")


PROVIDER_STATE_FIELDS = ("previous_response_id", "conversation", "prompt", "background", "container", "mcp_servers")
"""Fields that refer to what the provider stores, or does later or elsewhere."""
ALLOWED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "store": (False,),
    "service_tier": ("auto", "default", "standard_only"),
    "modalities": (["text"],),
    "prompt_cache_retention": ("in_memory", "in-memory"),
}
"""Fields with only one allowed set of values: one answer, nothing stored, at the expected price."""
URL_FIELD = re.compile(r"ur[il]s?$|^(file|file_data|images?|video|audio|document)$", re.IGNORECASE)
"""Names of fields that LiteLLM or a provider fetches if they contain a URL."""
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
SCHEME = re.compile(r"\s*\w+://")
MAX_PARTS = 200_000


def check(protocol: WireProtocol, body: Body, models: Collection[str]) -> None:
    """Check a request before anything is reserved. Raises RequestRefused.

    Unknown fields are refused, because some providers' fields select other models, prices or their own searches.
    """
    model = body.get("model")
    if not isinstance(model, str) or model not in models:
        known = " or ".join(sorted(models))
        raise RequestRefused(404, "model_not_found", f"This job has no model {str(model)[:100]!r}. Ask for {known}.")
    for name in PROVIDER_STATE_FIELDS:
        if body.get(name):
            raise RequestRefused(400, "not_offered", f"{name} is not offered here: send the whole conversation.")
    for name, value in body.items():
        if value is None or name in PROVIDER_STATE_FIELDS:
            continue
        if name not in OURS | FIELDS[protocol].known:
            raise RequestRefused(400, "not_offered", f"The field {name[:60]!r} is not offered here.")
        allowed = ALLOWED_VALUES.get(name)
        if allowed is not None and not any(value == each and type(value) is type(each) for each in allowed):
            raise RequestRefused(400, "not_offered", f"{name} can only be {allowed[0]!r} here.")
    check_tools(protocol, body.get("tools"))
    _check_parts(body)


def _check_parts(body: Body) -> None:
    """Reject URLs for the provider to fetch and files of the account: both lead out of the sandbox."""
    contents = [body.get(name) for name in ("messages", "input", "system", "instructions")]
    for number, part in enumerate(_parts(contents)):
        if number >= MAX_PARTS:
            raise RequestRefused(413, "too_large", f"A conversation has at most {MAX_PARTS:,} parts.")
        if "file_id" in part:
            raise RequestRefused(400, "not_offered", "Files of the provider's account are not offered.")
        if any(_is_fetched(name, value) for name, value in part.items()):
            raise RequestRefused(400, "not_offered", "Images and files go into the request itself, as data: addresses.")
        check_cache(part)


def _is_fetched(name: str, value: Any) -> bool:
    """True if the field is a URL, or a list with one, that is not a data: URL. The field's name decides, not the type
    of its part, because LiteLLM ignores a type that it does not expect."""
    if isinstance(value, list):
        return any(_is_fetched(name, each) for each in value if isinstance(each, str))
    if not isinstance(value, str):
        return False
    if name == "data":  # base64, or the text of a document
        return SCHEME.match(value) is not None
    return URL_FIELD.search(name) is not None and not value.startswith("data:")


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object inside, except in what a tool is called with: the model wrote that, and nobody fetches it."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            yield found
            waiting += (each for name, each in found.items() if (found.get("type"), name) != ("tool_use", "input"))
            thinking = found.get("thinking")
            if isinstance(thinking, str):
                with suppress(ValueError, RecursionError):
                    waiting.append(json.loads(thinking))  # for Gemini, LiteLLM makes a part of the message of it


@dataclass(slots=True)
class JobAllowance:
    """Admits calls in order. A call that is blocked only by other open calls waits, because they may use less than
    reserved. A call that is blocked with none open is refused, and `cut_short` says why."""

    account: CallBudget
    turns: int
    used: int = 0
    cut_short: str = ""
    _open: set[str] = field(default_factory=set)
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, protocol: WireProtocol, body: Mapping[str, Any]) -> Reservation:
        """Reserve the cost of a request, after waiting for earlier ones if needed. Raises RequestRefused."""
        wanted = await self.account.measure(protocol, body)
        async with self._in_order:
            while True:
                self._ended.clear()
                if self.used + len(self._open) >= self.turns:
                    reason, message = "turns_used", f"All {self.turns} turns are used."
                else:
                    try:
                        reserved = await self.account.reserve(wanted, alone=not self._open)
                    except BudgetError as error:
                        reason, message = "budget_reached", error.message
                    else:
                        self._open.add(reserved.call)
                        return reserved
                if not self._open and not self._ended.is_set():
                    self.cut_short = message
                    raise RequestRefused(402, reason, f"{message} Stop here: the job is paused.")
                await self._ended.wait()

    def ended(self, reserved: Reservation, *, answered: bool) -> None:
        """Mark a call as booked; `answered` is true if it counts as a turn."""
        self._open.discard(reserved.call)
        self.used += answered
        self._ended.set()


STATUS: Mapping[str, int] = {"retry": 503, "wait": 429, "shrink": 400, "give_up": 400}
CHARGED = frozenset({"timeout", "connection_lost", "stream_cut", "over_limit"})
"""Failures after which the provider may have charged for a call without an answer."""
MAX_PIECE_LENGTH = 16
"""Characters that one token may have: a provider that writes more than allowed is cut off."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bytes of a request, calls at once, and calls that may wait."""

    body: int = 32 * 1024**2
    at_once: int = 8
    waiting: int = 56


class RequestSlots:
    """Limits the number of calls at once and of waiting calls; further calls are refused."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._free = asyncio.Semaphore(limits.at_once)
        self._max_calls = limits.at_once + limits.waiting
        self._current = 0

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        if self._current >= self._max_calls:
            raise RequestRefused(429, "too_many_calls", "Too many calls at once.", retry_after=1.0)
        self._current += 1
        try:
            async with self._free:
                yield
        finally:
            self._current -= 1


@dataclass(slots=True)
class Gateway:
    """Forwards an agent's calls. Independent of HTTP, except for the status of refusals.

    `token` is valid for this job only; `names` are the model's accepted names. Fields in `leaves_out` are dropped.
    `used` of the job's `turns` were used before; only answers count.
    """

    raw_call: RawProxyCall
    account: CallBudget
    token: str
    names: Collection[str]
    leaves_out: Collection[str] = ()
    limits: GatewayLimits = GatewayLimits()
    on_exchange: Callable[[Exchange], None] = lambda _: None
    clock: Callable[[], float] = field(default=lambda: asyncio.get_running_loop().time())
    recorder: ExchangeRecorder = field(default_factory=ExchangeRecorder)
    turns: int = 1_000
    used: int = 0
    outage: ModelError | None = None
    """Why the last call failed, if another call may be answered later."""
    places: RequestSlots = field(init=False)
    allowance: JobAllowance = field(init=False)

    def __post_init__(self) -> None:
        self.places = RequestSlots(self.limits)
        self.allowance = JobAllowance(self.account, self.turns, self.used)

    @property
    def cut_short(self) -> str:
        """The limit that refused a call, if any: the job is then paused, whatever the agent reports."""
        return self.allowance.cut_short

    def admit(self, token: str) -> None:
        """Raises RequestRefused unless the token is this job's."""
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            raise RequestRefused(401, "invalid_api_key", "This is not this job's token.")

    def models(self) -> dict[str, Any]:
        """The list of models in OpenAI's format."""
        entries = [
            {"id": name, "object": "model", "created": 0, "owned_by": "agent-fix"} for name in sorted(self.names)
        ]
        return {"object": "list", "data": entries}

    def parse(self, raw: bytes) -> dict[str, Any]:
        try:
            body = json.loads(raw)
            if SURROGATE.search(raw):  # agents cut texts in the middle of an emoji, which LiteLLM cannot send
                body = json.loads(storable(json.dumps(body, ensure_ascii=False)))
        except (ValueError, RecursionError) as error:
            raise RequestRefused(400, "bad_request", "The request is no JSON.") from error
        if not isinstance(body, dict):
            raise RequestRefused(400, "bad_request", "The request is to be a JSON object.")
        return body

    async def answer(self, protocol: WireProtocol, body: Mapping[str, Any]) -> dict[str, Any] | AsyncGenerator[bytes]:
        """A document, or the frames of a started stream. Raises RequestRefused."""
        body = {name: value for name, value in body.items() if name not in self.leaves_out}
        try:
            check(protocol, body, self.names)
            return await self._forward(protocol, body)
        except RequestRefused as refusal:
            if refused_exchange := self.recorder.refused(protocol, refusal):
                self.on_exchange(refused_exchange)
            raise

    async def _forward(self, protocol: WireProtocol, body: Body) -> dict[str, Any] | AsyncGenerator[bytes]:
        if not body.get("stream"):
            return await self._document(protocol, body)
        async with AsyncExitStack() as unless_started:
            frames = await unless_started.enter_async_context(aclosing(self._frames(protocol, body)))
            first = await anext(frames)  # so that an immediate failure gets an error status instead of half a stream
            unless_started.pop_all()
        return _prepend(first, frames)

    async def _document(self, protocol: WireProtocol, body: Body) -> dict[str, Any]:
        reading: ResponseReader | None = None
        async with self.places.taken():
            reserved, started, new = await self._begin(protocol, body)
            try:
                reading = ResponseReader(protocol)
                document = await self.raw_call.complete(protocol, body, reserved.limit)
                reading.whole(document)
                self.outage = None
            except ModelError as error:
                self.outage = error if is_outage(error) else None
                reading = reading if error.reason in CHARGED else None
                raise as_refusal(error) from error
            else:
                return document
            finally:
                self._end(protocol, reserved, reading, new, started)

    async def _frames(self, protocol: WireProtocol, body: Body) -> AsyncGenerator[bytes]:
        """Ends as the protocol requires; an error in the middle becomes one more event before the end."""
        reading, answer_started = ResponseReader(protocol), False
        # the usage chunk is our own request; a chat client that did not request it may fail on it
        hides_usage = protocol == "chat" and not wants_usage(body)
        async with self.places.taken():
            reserved, started, new = await self._begin(protocol, body)
            charged: ResponseReader | None = reading
            try:
                async with aclosing(self._events(protocol, body, reserved, reading)) as events:
                    async for event in events:
                        answer_started = True
                        if event.data.get("choices") or not hides_usage:
                            yield frame(event)
                self.outage = None
                if protocol == "chat":
                    yield DONE
            except ModelError as error:
                self.outage = error if is_outage(error) else None
                if not answer_started:
                    charged = reading if error.reason in CHARGED else None
                    raise as_refusal(error) from error
                yield refusal_event(protocol, as_refusal(error))
            finally:
                self._end(protocol, reserved, charged, new, started)

    async def _events(
        self, protocol: WireProtocol, body: Body, reserved: Reservation, reading: ResponseReader
    ) -> AsyncGenerator[StreamEvent]:
        """Events in their order; a stream without its last event is an error, whatever the client makes of it."""
        async with aclosing(self.raw_call.stream(protocol, body, reserved.limit)) as events:
            async for event in events:
                reading.add(event)
                if reading.characters > MAX_PIECE_LENGTH * reserved.limit + 10_000:
                    raise ModelError("The model wrote more than it was let.", kind="give_up", reason="over_limit")
                yield event
        if not reading.finished:
            raise ModelError("The model's answer broke off.", kind="retry", reason="stream_cut")

    async def _begin(self, protocol: WireProtocol, body: Body) -> tuple[Reservation, float, tuple[str, ...]]:
        reserved = await self.allowance.reserve(protocol, body)
        return reserved, self.clock(), self.recorder.new_messages(body)

    def _end(
        self,
        protocol: WireProtocol,
        reserved: Reservation,
        reading: ResponseReader | None,
        new: tuple[str, ...],
        started: float,
    ) -> None:
        """Has no `await`: a task that is cancelled here may be cancelled again before the money is booked."""
        usage = self.account.book(reserved, reading)
        self.allowance.ended(reserved, answered=reading is not None)
        if reading is not None:
            self.on_exchange(self.recorder.answered(protocol, new, reading, usage, self.clock() - started))


async def _prepend(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


def as_refusal(error: AgentFixError) -> RequestRefused:
    """A provider's error, as a status that the agent's client handles correctly."""
    if not isinstance(error, ModelError):
        return RequestRefused(500, "error", error.message)
    status = STATUS[error.kind]
    reason = "context_length_exceeded" if error.kind == "shrink" else error.reason
    return RequestRefused(status, reason, error.message, retry_after=error.retry_after)


START_SECONDS = 10.0
TOO_LARGE = 413
CLIENT_CLOSED = 499
COUNT_PATH = "/v1/messages/count_tokens"
MAX_CONNECTIONS = 256
SOCKET_MODE = 0o666
"""The agent is another user; the directory around the socket limits who can reach it."""


class BoundedProtocol(H11Protocol):
    """Limits connections, which use up file descriptors of the job's process."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()


class SilentServer(uvicorn.Server):
    """A server without signal handlers: Ctrl-C and a worker's stop end the job, not this server."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serving(gateway: Gateway, socket: Path) -> AsyncIterator[None]:
    """Listen while the context is open. At its end, calls in progress are cancelled and booked."""
    config = uvicorn.Config(
        application(gateway),
        uds=str(socket),
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        http=BoundedProtocol,
        ws="none",
        timeout_graceful_shutdown=0,
    )
    server = SilentServer(config)
    task = asyncio.ensure_future(server.serve())
    try:
        async with asyncio.timeout(START_SECONDS):
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.005)
        os.chmod(socket, SOCKET_MODE)  # noqa: PTH101 - what is there is a socket
        yield
    finally:
        server.should_exit = server.force_exit = True
        await task
        await asyncio.to_thread(socket.unlink, missing_ok=True)


def application(gateway: Gateway) -> Starlette:
    async def call(request: Request) -> Response:
        gateway.admit(token_of(request))
        body = gateway.parse(await _read(request, gateway.limits.body))
        answer = await _while_connected(request, gateway.answer(PATHS[request.url.path], body))
        if isinstance(answer, dict):
            return JSONResponse(answer)
        return StreamingResponse(answer, media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def models(request: Request) -> Response:
        gateway.admit(token_of(request))
        return JSONResponse(gateway.models())

    async def count(request: Request) -> Response:
        """Anthropic's clients ask for the size of a conversation; counted here, at no cost."""
        gateway.admit(token_of(request))
        raw = await _read(request, gateway.limits.body)
        async with gateway.places.taken():
            text = raw.decode("utf-8", "replace")
            tokens = await asyncio.to_thread(count_text, gateway.account.info.name, text)
        return JSONResponse({"input_tokens": tokens})

    async def refused(request: Request, refusal: Any) -> Response:
        protocol = PATHS.get(request.url.path, "messages" if request.url.path == COUNT_PATH else "chat")
        headers = {"retry-after": f"{refusal.retry_after:.0f}"} if refusal.retry_after is not None else {}
        if refusal.status == TOO_LARGE:
            headers["connection"] = "close"  # otherwise the rest would still be read
        return JSONResponse(refusal_body(protocol, refusal), refusal.status, headers)

    async def disconnected(_request: Request, _error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED)

    return Starlette(
        routes=[
            *(Route(path, call, methods=["POST"]) for path in PATHS),
            Route(COUNT_PATH, count, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
        ],
        exception_handlers={RequestRefused: refused, ClientDisconnect: disconnected},
    )


def token_of(request: Request) -> str:
    """From the header of OpenAI's or Anthropic's clients."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


async def _while_connected(request: Request, handler: Coroutine[Any, Any, T]) -> T:
    """The answer; cancelled if the client disconnects before it starts, with ClientDisconnect."""
    answer, disconnected = asyncio.ensure_future(handler), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        for task in (answer, disconnected):
            task.cancel()
        await asyncio.gather(answer, disconnected, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    """Returns when the client has disconnected; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read(request: Request, most: int) -> bytes:
    """The body. Raises RequestRefused if its declared or actual size is too large."""
    refusal = RequestRefused(TOO_LARGE, "too_large", f"A request has at most {most:,} bytes.")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise refusal
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise refusal
    return bytes(body)


@dataclass(frozen=True, slots=True)
class ModelSocket:
    """`socket` is the path that the sandbox specification names; it exists only while an agent works.

    `until` is the job's spending at which the agent's share is used; 0 if only the job's limit counts.
    """

    socket: Path
    raw_call: RawProxyCall
    ledger: Ledger
    until: MicroUSD = 0

    def new_token(self) -> str:
        """A new random token, valid for one start of one agent."""
        return f"agent-fix-{secrets.token_urlsafe(24)}"

    @asynccontextmanager
    async def open(
        self,
        name: str,
        token: str,
        recipe: AgentRecipe,
        on_exchange: Callable[[Exchange], None],
        *,
        turns: int,
        used: int,
    ) -> AsyncIterator[Gateway]:
        """`name` is the start's name, the same if it is repeated; `used` of the `turns` were used in earlier starts."""
        account = CallBudget(self.ledger, self.raw_call.info, name, self.until)
        await account.begin()
        names = frozenset({recipe.model, recipe.model.rpartition("/")[2]})
        gateway = Gateway(
            self.raw_call, account, token, names, recipe.leaves_out, on_exchange=on_exchange, turns=turns, used=used
        )
        async with serving(gateway, self.socket):
            yield gateway
