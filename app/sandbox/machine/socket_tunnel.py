"""Gives a machine access to one of our sockets over the streams of one command: a remote one cannot mount it.

who connects inside ─► tunnel_inside.py ─► stdout, stdin of a command ─► carry(…) ─► a unix socket of this host

Everything from inside is hostile: an invalid frame ends the tunnel, and memory is bounded by our own numbers (MOST
connections with WINDOW bytes each, one frame, one line).
"""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from app.core.errors import SandboxError
from app.sandbox.machine.base import PLACE, LineBuffer, Machine, MachineProgram, started
from app.sandbox.machine.tunnel_inside import (
    CHUNK,
    CLOSED,
    MOST,
    OPENED,
    READY,
    BadFrameError,
    FrameParser,
    OutgoingBuffer,
    TunnelConnection,
    Write,
)

PROGRAM = Path(__file__).with_name("tunnel_inside.py")
"""The standalone program to execute inside, `python3 -I PROGRAM PLACE [lines]`."""
SECONDS = 30.0
"""How long the program inside may take until it listens."""
ATTEMPTS, PAUSE = 500, 0.02
"""How often, and after how many seconds, a socket with a full queue is tried again."""
MAX_LINE_LENGTH = 2 * CHUNK


@asynccontextmanager
async def tunnel(
    incoming: AsyncIterator[bytes], write: Write, way: Path, *, seconds: float = SECONDS
) -> AsyncIterator[asyncio.Task[str]]:
    """While the context lasts, what connects inside is connected to the socket `way`.

    Raises SandboxError if it does not start. The task ends early, with a sentence, if the tunnel does.
    """
    ready = asyncio.Event()
    carrying = asyncio.create_task(run_tunnel_host(incoming, write, way, ready))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({carrying, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            reason = carrying.result() if carrying.done() else f"it was not ready within {seconds:.0f} s"
            raise SandboxError(f"The tunnel out of the sandbox could not be opened: {reason}.")
        yield carrying
    finally:
        waiting.cancel()
        carrying.cancel()
        await asyncio.wait({carrying, waiting})


async def run_tunnel_host(
    incoming: AsyncIterator[bytes], write: Write, way: Path, ready: asyncio.Event | None = None
) -> str:
    """Run until the other end is gone or sends something invalid; returns how it ended. Cancelling ends all
    connections."""
    host = _TunnelHost(way, ready or asyncio.Event())
    parts = {asyncio.create_task(host.outgoing.write_all(write)), asyncio.create_task(host.listen(incoming))}
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        return next(_reason(part) for part in done)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.wait(parts)
        await host.end()


def _reason(part: asyncio.Task[None]) -> str:
    match part.exception():
        case None:
            return "the program inside is gone"
        case BadFrameError() as error:
            return f"the program inside sent something invalid: {error}"
        case SandboxError() as error:
            return error.message
        case OSError() as error:
            return f"its streams failed: {error}"
        case error:
            raise error


async def from_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The bytes that the program inside sent as base64 lines, in any chunks."""
    lines = LineBuffer(MAX_LINE_LENGTH)
    async for piece in pieces:
        try:
            for line in lines.feed(piece):
                yield base64.b64decode(line, validate=True)
        except ValueError as error:
            raise BadFrameError("a line that is no base64, or none at all") from error


class _TunnelHost:
    """The connecting end: validates all input, and never waits because of it."""

    def __init__(self, socket_path: Path, ready: asyncio.Event) -> None:
        self.outgoing = OutgoingBuffer()
        self._socket_path = socket_path
        self._ready = ready
        self._lines: dict[int, TunnelConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0

    async def listen(self, incoming: AsyncIterator[bytes]) -> None:
        frames = FrameParser()
        async for piece in incoming:
            for kind, number, payload in frames.feed(piece):
                self._receive_frame(kind, number, payload)

    def _receive_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == READY:
            self._ready.set()
        elif kind == OPENED:
            self._open(number)
        elif number > self._last:
            raise BadFrameError("a connection that was never opened")
        elif (line := self._lines.get(number)) is None:
            pass  # it is over on this side, which the other one may not know yet
        elif kind == CLOSED:
            line.abort()
        else:
            line.on_frame(kind, payload)

    def _open(self, number: int) -> None:
        if not self._ready.is_set() or number <= self._last or len(self._lines) >= MOST:
            raise BadFrameError(f"connection {number} where that cannot be")
        self._last = number
        line = self._lines[number] = TunnelConnection(number, self.outgoing)
        task = asyncio.create_task(self._connect(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, line: TunnelConnection) -> None:
        with suppress(OSError):  # nobody listens, or one side hung up: the other side sees that
            reader, writer = await self._reach()
            await line.transfer(reader, writer)
        del self._lines[line.number]
        await self.outgoing.send(CLOSED, line.number)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect by hand: asyncio treats a unix socket with a full queue as connected."""
        for _ in range(ATTEMPTS):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                connection.connect(str(self._socket_path))
            except BlockingIOError:
                connection.close()
                await asyncio.sleep(PAUSE)
            except OSError:
                connection.close()
                raise
            else:
                return await asyncio.open_unix_connection(sock=connection)
        raise TimeoutError

    async def end(self) -> None:
        await self.outgoing.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


INSIDE = f"{PLACE}/tunnel.py"


class SocketTunnel:
    """What connects to `address` inside (a port of 127.0.0.1, or a socket's path) reaches `socket` while it is open."""

    def __init__(self, machine: Machine, address: str, socket: Path) -> None:
        self._machine = machine
        self._address = address
        self._socket = socket
        self._opened = AsyncExitStack()
        self._tunnel_task: asyncio.Task[str] | None = None
        self._lock = asyncio.Lock()

    async def ensure(self) -> None:
        """Raises SandboxError if it cannot be opened."""
        async with self._lock:
            if self._tunnel_task is not None and not self._tunnel_task.done():
                return
            await self._opened.aclose()
            await self._machine.upload(INSIDE, PROGRAM.read_bytes())
            async with AsyncExitStack() as opening:
                argv = ["python3", "-I", INSIDE, self._address, *(["lines"] if self._machine.text else [])]
                program = await opening.enter_async_context(started(self._machine, argv))
                opening.push_async_callback(stop_program, program)
                pieces = output_pieces(program)
                output = from_lines(pieces) if self._machine.text else pieces
                self._tunnel_task = await opening.enter_async_context(tunnel(output, program.write, self._socket))
                self._opened = opening.pop_all()

    async def follow(self) -> None:
        """Keep the tunnel open while the host's socket exists."""
        if self._socket.exists():
            await self.ensure()
        else:
            await self.close()

    async def close(self) -> None:
        async with self._lock:
            self._tunnel_task = None
            await self._opened.aclose()

    async def __aenter__(self) -> Self:
        await self.ensure()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def stop_program(program: MachineProgram) -> None:
    with suppress(SandboxError):  # nothing of a lost machine is left
        await program.kill()


async def output_pieces(program: MachineProgram) -> AsyncIterator[bytes]:
    while chunk := await program.read():
        yield chunk
