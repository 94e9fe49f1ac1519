"""The way out of a cloud machine, which can mount nothing of ours: open while a command executes that may need it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from app.errors import SandboxError
from app.sandbox.base import FORWARDER, WAY_OUT
from app.sandbox.inside.base import Machine, Program, started
from app.sandbox.inside.execution import PLACE
from app.sandbox.layer_build import FORWARDER_PROGRAM
from app.sandbox.tunnel import PROGRAM, from_lines, tunnel

TUNNEL = f"{PLACE}/tunnel.py"
logger = logging.getLogger(__name__)


async def furnish_way_out(machine: Machine) -> None:
    """The programs at both ends inside. Those are found again in a machine that was parked, and cost little."""
    await machine.upload(TUNNEL, PROGRAM.read_bytes())
    await machine.upload(FORWARDER, FORWARDER_PROGRAM.read_bytes())


class WayOut:
    """Commands side by side share one; it ends with the last of them, and nothing of it stays inside."""

    def __init__(self, machine: Machine, socket: Path) -> None:
        self._machine = machine
        self._socket = socket
        self._lock = asyncio.Lock()
        self._users = 0
        self._opened = AsyncExitStack()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Without one where the host's socket is not there: what it leads to is not open either."""
        if not self._socket.exists():
            yield
            return
        async with self._lock:
            if not self._users:
                await self._opened.enter_async_context(carried(self._machine, self._socket))
            self._users += 1
        try:
            yield
        finally:
            async with self._lock:
                self._users -= 1
                if not self._users:
                    await self._opened.aclose()

    async def close(self) -> None:
        """For who uses it still, too."""
        async with self._lock:
            await self._opened.aclose()


@asynccontextmanager
async def carried(machine: Machine, socket: Path) -> AsyncIterator[None]:
    """While the context lasts, who connects to WAY_OUT inside speaks with `socket`. SandboxError where it cannot be."""
    async with started(machine, ["python3", "-I", TUNNEL, WAY_OUT, "lines"]) as program:
        try:
            async with tunnel(from_lines(_pieces(program)), program.write, socket) as carrying:
                yield
                if carrying.done():
                    logger.warning("the way out of the sandbox ended early: %s", carrying.result())
        finally:
            with suppress(SandboxError):  # of a lost machine nothing is left
                await program.kill()


async def _pieces(program: Program) -> AsyncIterator[bytes]:
    while piece := await program.read():
        yield piece
