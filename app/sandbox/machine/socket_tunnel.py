"""Gives a machine access to one unix socket of the host by a tunnel, which is opened again after it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.machine.base import Machine, MachineProgram, started
from app.sandbox.machine.execution import PLACE
from app.sandbox.tunnel import PROGRAM, from_lines, tunnel

INSIDE = f"{PLACE}/tunnel.py"


class SocketTunnel:
    """What connects to `place` inside (a port of 127.0.0.1, or a socket's path) reaches `socket`."""

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
                output = from_lines(output_lines(program)) if self._machine.text else output_lines(program)
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


@asynccontextmanager
async def socket_tunnel(machine: Machine, address: str, socket: Path) -> AsyncIterator[None]:
    """Open while the context lasts."""
    tunnel_to_socket = SocketTunnel(machine, address, socket)
    try:
        await tunnel_to_socket.ensure()
        yield
    finally:
        await tunnel_to_socket.close()


async def stop_program(program: MachineProgram) -> None:
    with suppress(SandboxError):  # nothing of a lost machine is left
        await program.kill()


async def output_lines(program: MachineProgram) -> AsyncIterator[bytes]:
    while chunk := await program.read():
        yield chunk
