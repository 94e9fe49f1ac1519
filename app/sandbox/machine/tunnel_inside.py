"""Runs inside a machine: carries connections to a socket here over our stdin and stdout, in frames, to the host.

python3 -I tunnel_inside.py PLACE [lines]

PLACE is a port of 127.0.0.1, or the path of a unix socket. With `lines`, stdout is base64, a line for each write, for
carriers of text only. Standard library only, Python 3.8 or newer. `SocketTunnel`, the host's end, shares the classes.
Ends when stdin does; 125 if it could not listen.

A frame is kind, number of the connection, length, and that many bytes. Each side of a connection may have WINDOW bytes
in flight, and more only after the other side reports that it has passed them on, so a slow side fills nobody's memory.
Numbers rise. The host sends the last CLOSED of a connection, and until then it counts as one of the MOST.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator

HEAD = struct.Struct("!BII")
READY, OPENED, DATA, ENDED, PASSED, CLOSED = range(6)
"""Listening; a new connection; bytes; no more bytes from this side; bytes that were passed on; over for both sides."""
LARGEST = 32 * 1024
WINDOW = 256 * 1024
MOST = 128
PENDING = 256 * 1024
CHUNK = 64 * 1024
_AMOUNT = struct.Struct("!I")

Write = Callable[[bytes], Awaitable[None]]


class BadFrameError(Exception):
    """The other end sent something invalid."""


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, number, len(payload)) + payload


class FrameParser:
    """Splits chunks into frames; holds never more than one chunk and one frame."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[int, int, bytes]]:
        self._rest += piece
        at = 0
        while len(self._rest) - at >= HEAD.size:
            kind, number, length = HEAD.unpack_from(self._rest, at)
            if kind > CLOSED or length > LARGEST:
                raise BadFrameError(f"a frame of kind {kind} with {length} bytes")
            if len(self._rest) - at < HEAD.size + length:
                break
            at += HEAD.size + length
            yield kind, number, bytes(self._rest[at - length : at])
        del self._rest[:at]


class OutgoingBuffer:
    """Frames for the other end, collected during a write; senders wait while it is full."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._changed = asyncio.Condition()
        self._over = False

    async def send(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._over or len(self._pending) < PENDING)
            if not self._over:
                self._pending += frame(kind, number, payload)
                self._changed.notify_all()

    async def write_all(self, write: Write) -> None:
        """Runs until it is cancelled, or `write` fails."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._pending))
                taken, self._pending = bytes(self._pending), bytearray()
                self._changed.notify_all()
            await write(taken)

    async def end(self) -> None:
        """Wake all senders; what was not written is lost."""
        async with self._changed:
            self._over = True
            self._changed.notify_all()


class TunnelConnection:
    """One connection. Input from the other end (`on_frame`, `abort`) is handled at once, within bounds."""

    def __init__(self, number: int, outgoing: OutgoingBuffer) -> None:
        self.number = number
        self.closed = asyncio.Event()
        self._outgoing = outgoing
        self._credit = WINDOW
        self._window_left = WINDOW
        self._arrived = bytearray()
        self._ended = self._aborted = False
        self._changed = asyncio.Event()
        self._space = asyncio.Event()
        self._directions: list[asyncio.Future[None]] = []

    @property
    def ended(self) -> bool:
        """True if the other end has sent all it will."""
        return self._ended

    def on_frame(self, kind: int, payload: bytes) -> None:
        if kind == DATA:
            self._take(payload)
        elif kind == PASSED:
            self._passed_on(payload)
        elif self._ended:
            raise BadFrameError("a connection that ends twice")
        else:
            self._ended = True
            self._changed.set()

    def abort(self) -> None:
        self._aborted = True
        for way in self._directions:
            way.cancel()

    def _take(self, content: bytes) -> None:
        self._window_left -= len(content)
        if not content or self._window_left < 0 or self._ended:
            raise BadFrameError("bytes that a connection has no room for")
        self._arrived += content
        self._changed.set()

    def _passed_on(self, payload: bytes) -> None:
        amount = _AMOUNT.unpack(payload)[0] if len(payload) == _AMOUNT.size else 0
        self._credit += amount
        if not amount or self._credit > WINDOW:
            raise BadFrameError("more bytes passed on than were sent")
        self._space.set()

    async def transfer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until both directions have ended, or one has failed (OSError), or it is aborted."""
        self._directions = [asyncio.ensure_future(self._send(reader)), asyncio.ensure_future(self._receive(writer))]
        whole = False
        try:
            if self._aborted:
                self.abort()
            done, _ = await asyncio.wait(self._directions, return_when=asyncio.FIRST_EXCEPTION)
            whole = len(done) == len(self._directions) and not any(way.cancelled() or way.exception() for way in done)
            for way in done:
                _ = way.cancelled() or way.result()
        finally:
            for way in self._directions:
                way.cancel()
            await asyncio.gather(*self._directions, return_exceptions=True)
            if whole:
                writer.close()
            else:
                writer.transport.abort()

    async def _send(self, reader: asyncio.StreamReader) -> None:
        while True:
            while not self._credit:
                self._space.clear()
                await self._space.wait()
            content = await reader.read(min(LARGEST, self._credit))
            if not content:
                break
            self._credit -= len(content)
            await self._outgoing.send(DATA, self.number, content)
        await self._outgoing.send(ENDED, self.number)

    async def _receive(self, writer: asyncio.StreamWriter) -> None:
        passed = 0
        while True:
            while not self._arrived and not self._ended:
                self._changed.clear()
                await self._changed.wait()
            content = bytes(self._arrived[:LARGEST])
            if not content:
                break
            del self._arrived[: len(content)]
            writer.write(content)
            await writer.drain()
            passed += len(content)
            if passed >= WINDOW // 4 or not self._arrived:
                self._window_left += passed
                await self._outgoing.send(PASSED, self.number, _AMOUNT.pack(passed))
                passed = 0
        if writer.can_write_eof():
            writer.write_eof()


class TunnelInside:
    """The listening end. Input from the host is trusted to be valid."""

    def __init__(self) -> None:
        self.outgoing = OutgoingBuffer()
        self._lines: dict[int, TunnelConnection] = {}
        self._last = 0
        self._places = asyncio.Semaphore(MOST)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._places:
                await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # the tunnel is over
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._last += 1
        line = self._lines[self._last] = TunnelConnection(self._last, self.outgoing)
        await self.outgoing.send(OPENED, line.number)
        try:
            await line.transfer(reader, writer)
        except OSError:
            await self.outgoing.send(CLOSED, line.number)  # the client is gone
        await line.closed.wait()

    def on_frame(self, kind: int, number: int, payload: bytes) -> None:
        line = self._lines.get(number)
        if line is None:
            return
        if kind != CLOSED:
            line.on_frame(kind, payload)
            return
        del self._lines[number]
        line.closed.set()
        if not line.ended:
            line.abort()


async def listen(place: str, inside: TunnelInside) -> asyncio.AbstractServer:
    if place.isdigit():
        return await asyncio.start_server(inside.connected, "127.0.0.1", int(place), backlog=512)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)  # noqa: PTH108 - of one that died here before
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place)
    os.chmod(place, 0o666)  # noqa: PTH101, S103 - it is for the machine's other accounts
    return await asyncio.start_unix_server(inside.connected, sock=listener, backlog=512)


async def standard_streams(lines: bool) -> tuple[asyncio.StreamReader, Write]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(content: bytes) -> None:
        for start in range(0, len(content), CHUNK):
            piece = content[start : start + CHUNK]
            writer.write(base64.b64encode(piece) + b"\n" if lines else piece)
            await writer.drain()

    return reader, write


async def main(place: str, lines: bool) -> int:
    inside = TunnelInside()
    try:
        server = await listen(place, inside)
    except OSError as error:
        print(f"tunnel: cannot listen on {place}: {error}", file=sys.stderr)
        return 125
    reader, write = await standard_streams(lines)
    await inside.outgoing.send(READY)
    writing = asyncio.ensure_future(inside.outgoing.write_all(write))
    receiving = asyncio.ensure_future(_read_frames(reader, inside))
    await asyncio.wait({writing, receiving}, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    return 0


async def _read_frames(reader: asyncio.StreamReader, inside: TunnelInside) -> None:
    frames = FrameParser()
    while True:
        piece = await reader.read(CHUNK)
        if not piece:
            return
        for kind, number, payload in frames.feed(piece):
            inside.on_frame(kind, number, payload)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2:] == ["lines"])))
