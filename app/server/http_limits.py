"""Limits the size and duration of HTTP request heads, which uvicorn does not limit by itself.

Without the limits anybody could fill the memory with endless headers, or hold connections with headers that never come.
"""

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import ClassVar, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_CONNECTIONS: Final = 800
"""Below the number of files that a process may open almost everywhere."""
GRACE_SECONDS: Final = 10
LOOPBACK: Final = ("127.0.0.1", "::1")
_REFUSED = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedRequestHeads(HttpToolsProtocol):
    """Counts what is not body: request lines, headers, framing of chunks, trailers."""

    seconds_for_a_head: ClassVar[float] = 10.0
    _overhead = 0
    _head = 0
    """Bytes of the request's head, also if it came in one piece with its body."""
    _refused = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > MAX_HEAD_BYTES and (self._deadline is not None or self._in_a_body):
            self._refuse()

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            self.transport.write(_REFUSED)
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + len(b": \r\n")
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        if self._deadline is None:
            self._overhead = 0
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_here()
        if self._head > MAX_HEAD_BYTES:
            self._refuse()
        if not self._refused:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._overhead = max(self._overhead - 2 * len(body), 0)  # chunks may be framed with as much as they carry
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_a_body and self.cycle.response_complete and self._deadline is None:
            self._await_head()  # the rest of the body must not take longer than the next head

    @property
    def _in_a_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    def _await_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self.seconds_for_a_head, self._too_slow)

    def _head_is_here(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded_server(app: ASGIApp, trusted_proxies: Sequence[str] = LOOPBACK) -> uvicorn.Server:
    """A server that shuts down in order at SIGTERM and SIGINT, and then returns.

    `X-Forwarded-For` and `X-Forwarded-Proto` count only from `trusted_proxies`, which are addresses and networks.
    """
    config = uvicorn.Config(
        app,
        http=BoundedRequestHeads,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        forwarded_allow_ips=list(trusted_proxies),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # uvicorn restores this handler and raises the signal again at its end
    return uvicorn.Server(config)
