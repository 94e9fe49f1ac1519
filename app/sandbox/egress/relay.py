"""Copies bytes between the two sides of proxied connections, within one set-up's limits; and the listening socket."""

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.egress.upstream import Streams

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Limits of one set-up: connections at once (and waiting), total bytes each way, seconds without a byte."""

    connections: int = 64
    waiting: int = 448
    received: int = 4 * 1024**3
    sent: int = 64 * 1024**2
    idle: float = 60.0


class ConnectionRelay:
    """Copies connections and counts them all together."""

    def __init__(self, caps: RelayLimits) -> None:
        self.exhausted = ""
        """If not empty: the limit that was reached, in a sentence; nothing is copied any more."""
        self._caps = caps
        self._received = self._sent = 0

    async def relay(self, near: Streams, far: Streams, *, both: bool) -> None:
        """Until the far side ends, nothing moves for too long, or a limit is reached. `both` is a tunnel."""
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
                break
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
            self.exhausted = f"the set-up sent more than {self._caps.sent} bytes, the limit"
        elif self._received > self._caps.received:
            self.exhausted = f"the set-up received more than {self._caps.received} bytes, the limit"
        return not self.exhausted


def listen_privately(path: Path, owner: int | None) -> socket.socket:
    """A listening unix socket for its owner only, even if the path is longer than such paths may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchmod(
            listener.fileno(), 0o600
        )  # the mode for the file that bind() creates, so that it is never open to others
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
