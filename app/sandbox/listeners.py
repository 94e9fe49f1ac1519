"""Host ports and sockets that record connections, for programs inside that try to get out."""

import asyncio
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from app.core.scratch import scratch

METADATA = ("169.254.169.254", 80)
ListenerTarget = tuple[str, str, object]
"""A target to try, for `probe_inside`: label, kind, address."""


@asynccontextmanager
async def listeners() -> AsyncIterator[tuple[list[ListenerTarget], list[str]]]:
    """The targets to try, and the names of those that were reached, updated while this is open."""
    reached: list[str] = []

    def record(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(name)
            writer.close()

        return accept

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            reached.append("host udp")

    async with AsyncExitStack() as stack:
        directory = stack.enter_context(scratch("ears"))
        directory.chmod(0o711)  # anyone who knows its name may try
        tcp = await stack.enter_async_context(await asyncio.start_server(record("host tcp"), "127.0.0.1", 0))
        path = str(directory / "socket")
        await stack.enter_async_context(await asyncio.start_unix_server(record("host socket"), path))
        (directory / "socket").chmod(0o777)
        udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0), family=socket.AF_INET
        )
        stack.callback(udp.close)
        targets: list[ListenerTarget] = [
            ("tcp", "tcp", list(tcp.sockets[0].getsockname())),
            ("udp", "udp", list(udp.get_extra_info("sockname"))),
            ("socket", "path", path),
            ("metadata address", "tcp", list(METADATA)),
        ]
        if sys.platform == "linux":
            name = f"agent-fix-{secrets.token_hex(8)}"
            await stack.enter_async_context(
                await asyncio.start_unix_server(record("host abstract socket"), f"\0{name}")
            )
            targets.append(("abstract socket", "unix", name))
        yield targets, reached
