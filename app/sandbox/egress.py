"""The only way out of a sandbox during set-up: an HTTP proxy on a unix socket that reaches allow-listed hosts.

client in the sandbox ─► forwarder (127.0.0.1) ─► unix socket ─► EgressProxy ─► package host
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from app.sandbox.allowlist import AllowList
from app.sandbox.request_head import BadRequest, RequestHead, parse_head
from app.sandbox.upstream import OutOfBounds, Streams, Unreachable, Upstream

_CHUNK = 64 * 1024
_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Caps:
    """What one set-up may use: connections at once (and waiting), bytes each way in all, seconds without a byte."""

    connections: int = 64
    waiting: int = 448
    received: int = 4 * 1024**3
    sent: int = 64 * 1024**2
    idle: float = 60.0


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class EgressProxy:
    """An allow-list proxy, listening while its context is entered.

    `hosts` are entries as `app.sandbox.allowlist` reads them. `owner` is the uid that may connect besides the
    proxy's own (root's sandbox runs as another user); without it only this process's user may.
    """

    def __init__(
        self,
        socket_path: Path,
        hosts: Sequence[str],
        *,
        upstream: str = "",
        no_proxy: str = "",
        owner: int | None = None,
        caps: Caps | None = None,
    ) -> None:
        self.refused: list[str] = []
        """Hosts that were asked for and not allowed, in order of appearance, each once."""
        self.exhausted = ""
        """Not empty: the cap that was reached, in a sentence."""
        self._path = socket_path
        self._allowed = AllowList(hosts)
        self._upstream = Upstream(upstream, no_proxy)
        self._owner = owner
        self._caps = caps or Caps()
        self._slots = asyncio.Semaphore(self._caps.connections)
        self._received = self._sent = 0
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def explanation(self) -> str:
        """Why a set-up may have failed on the network, for the end of its error; empty where nothing was refused."""
        parts = [self.exhausted] if self.exhausted else []
        if self.refused:
            parts.append(f"refused: {', '.join(self.refused)} (allow with `network:` in .github/agent-fix.yml)")
        return "; ".join(parts)

    async def __aenter__(self) -> Self:
        listener = _listen(self._path, self._owner)
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=_HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= self._caps.connections + self._caps.waiting:
            writer.close()
            return
        client = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._slots:
                await self._answer(reader, writer)
        except _Refused as refusal:
            with contextlib.suppress(OSError, TimeoutError):
                await _say(writer, refusal.status, str(refusal))
        except OSError:
            pass  # either side hung up: the other is closed below, and the client inside says what it missed
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _read_head(reader)
        far = await self._connect(head)
        try:
            if head.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._relay((reader, writer), far, both=True)
            else:
                chained = self._upstream.used_for(head.host)
                extra = self._upstream.authorization if chained else ()
                far[1].write(head.to_bytes(absolute=chained, extra=extra))
                await self._relay((reader, writer), far, both=False)
        finally:
            far[1].close()

    async def _connect(self, head: RequestHead) -> Streams:
        if self.exhausted:
            raise _Refused(HTTPStatus.FORBIDDEN, self.exhausted)
        rule = self._allowed.find(head.host, head.port)
        if rule is None:
            self._note(head)
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"{head.authority} is not a host that this set-up may reach; "
                "a maintainer can allow it under `network:` in .github/agent-fix.yml",
            )
        try:
            return await self._upstream.open(head, rule)
        except OutOfBounds:
            self._note(head)
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"{head.host} leads to a private address, and is not the index that a client on this machine is "
                "configured with; `network:` in .github/agent-fix.yml opens public hosts only",
            ) from None
        except Unreachable as error:
            raise _Refused(HTTPStatus.BAD_GATEWAY, str(error)) from error

    def _note(self, head: RequestHead) -> None:
        name = head.host if head.port in {80, 443} else head.authority
        if name not in self.refused and len(self.refused) < 100:
            self.refused.append(name)

    async def _relay(self, near: Streams, far: Streams, *, both: bool) -> None:
        """Carry bytes until the far side ends, everything is idle too long, or a cap is reached."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._caps.idle) as clock:
                up = asyncio.create_task(self._pump(near[0], far[1], clock, sending=True)) if both else None
                try:
                    await self._pump(far[0], near[1], clock, sending=False)
                finally:
                    if up is not None:
                        up.cancel()
                        await asyncio.gather(up, return_exceptions=True)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, clock: asyncio.Timeout, *, sending: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await source.read(_CHUNK):
            if not self._count(len(chunk), sending=sending):
                return
            clock.reschedule(loop.time() + self._caps.idle)
            sink.write(chunk)
            await sink.drain()
        if sending and sink.can_write_eof():
            sink.write_eof()

    def _count(self, size: int, *, sending: bool) -> bool:
        if sending:
            self._sent += size
        else:
            self._received += size
        if self._sent > self._caps.sent:
            self.exhausted = f"the set-up sent more than {self._caps.sent} bytes, which is its limit"
        elif self._received > self._caps.received:
            self.exhausted = f"the set-up received more than {self._caps.received} bytes, which is its limit"
        return not self.exhausted


async def _read_head(reader: asyncio.StreamReader) -> RequestHead:
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except BadRequest as error:
        raise _Refused(HTTPStatus.FORBIDDEN, str(error)) from error
    except asyncio.LimitOverrunError:
        raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large") from None
    except asyncio.IncompleteReadError:
        raise _Refused(HTTPStatus.BAD_REQUEST, "the request ended before its head did") from None
    except TimeoutError:
        raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "the request's head did not arrive in time") from None


async def _say(writer: asyncio.StreamWriter, status: HTTPStatus, sentence: str) -> None:
    """Refuse with one plain sentence; the reason phrase carries it too, as clients often show only that."""
    body = f"agent-fix: {sentence}\n".encode()
    reason = sentence.encode("ascii", "replace").decode("ascii")
    head = (
        f"HTTP/1.1 {status.value} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + body)
    async with asyncio.timeout(_HEAD_SECONDS):
        await writer.drain()


def _listen(path: Path, owner: int | None) -> socket.socket:
    """A listening unix socket that only its owner may use, also where the path is longer than such paths may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the mode that bind() gives the file, so that it is never open to others
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        if owner is not None:
            os.chown(path, owner, -1)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(directory)
    listener.setblocking(False)
    return listener
