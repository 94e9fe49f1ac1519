"""Serves the gateway over HTTP on a unix socket in the sandbox, while one agent works."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.agent.external.gateway.exchange import PATHS, CallBudget, Exchange, RequestRefused, refusal_body
from app.agent.external.gateway.gateway import Gateway
from app.agent.external.recipe import AgentRecipe
from app.core.money import MicroUSD
from app.llm.base import RawProxyCall, WireProtocol
from app.llm.ledger import Ledger
from app.llm.tokens import count_text

T = TypeVar("T")
START_SECONDS = 10.0
TOO_LARGE = 413
CLIENT_CLOSED = 499
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
        protocol = PATHS[request.url.path]
        try:
            gateway.admit(token_of(request))
            body = gateway.parse(await _read(request, gateway.limits.body))
            answer = await _while_connected(request, gateway.answer(protocol, body))
        except RequestRefused as refusal:
            return _refused(protocol, refusal)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)
        if isinstance(answer, dict):
            return JSONResponse(answer)
        return StreamingResponse(answer, media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def models(request: Request) -> Response:
        try:
            gateway.admit(token_of(request))
        except RequestRefused as refusal:
            return _refused("chat", refusal)
        return JSONResponse(gateway.models())

    async def count(request: Request) -> Response:
        """Anthropic's clients ask for the size of a conversation; counted here, at no cost."""
        try:
            gateway.admit(token_of(request))
            raw = await _read(request, gateway.limits.body)
        except RequestRefused as refusal:
            return _refused("messages", refusal)
        tokens = count_text(gateway.account.info.name, raw.decode("utf-8", "replace"))
        return JSONResponse({"input_tokens": tokens})

    return Starlette(
        routes=[
            *(Route(path, call, methods=["POST"]) for path in PATHS),
            Route("/v1/messages/count_tokens", count, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
        ]
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


def _refused(protocol: WireProtocol, refusal: RequestRefused) -> Response:
    headers = {"retry-after": f"{refusal.retry_after:.0f}"} if refusal.retry_after is not None else {}
    if refusal.status == TOO_LARGE:
        headers["connection"] = "close"  # otherwise the rest would still be read
    return JSONResponse(refusal_body(protocol, refusal), refusal.status, headers)


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
        self, name: str, token: str, recipe: AgentRecipe, turns: int, on_exchange: Callable[[Exchange], None]
    ) -> AsyncIterator[Gateway]:
        """`name` is the start's name, the same if it is repeated."""
        account = CallBudget(self.ledger, self.raw_call.info, name, self.until)
        await account.begin()
        names = frozenset({recipe.model, recipe.model.rpartition("/")[2]})
        gateway = Gateway(
            self.raw_call, account, token, names, recipe.leaves_out, on_exchange=on_exchange, most_calls=turns
        )
        async with serving(gateway, self.socket):
            yield gateway
