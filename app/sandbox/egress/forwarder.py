"""Runs inside the sandbox during set-up: forwards 127.0.0.1:PORT to the egress proxy's unix socket.

python3 -I forwarder.py SOCKET PORT -- COMMAND [ARGUMENT ...]

Standard library only, Python 3.8 or newer, so that any interpreter inside can run it. Ends with the command's exit
code, or 128 plus its signal's number; 125 if it could not listen.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import signal
import socket
import struct
import sys
from collections.abc import Awaitable

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_CHUNK = 64 * 1024


def bring_up_loopback() -> None:
    """A new network namespace has its loopback interface down; most sandboxes, but not all, bring it up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        if not flags & _IFF_UP:
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def listen(port: int) -> socket.socket:
    bring_up_loopback()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(512)
    listener.setblocking(False)
    return listener


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while True:
        chunk = await source.read(_CHUNK)
        if not chunk:
            break
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def relay_until_closed(up: Awaitable[None], down: Awaitable[None]) -> None:
    """Continue until the far side ends; what the client still sends then is dropped."""
    sending = asyncio.ensure_future(up)
    try:
        await down
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def forward(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        try:
            await relay_until_closed(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            far_writer.close()
    except (OSError, asyncio.CancelledError):
        pass  # one side hung up, or the command ended; both are closed, and the client sees that
    finally:
        writer.close()


async def execute(command: list[str]) -> int:
    """Run the command with our own stdin, stdout and stderr, passing signals on."""
    received: asyncio.Queue[int] = asyncio.Queue()  # from the start; an early signal would otherwise end only us
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, received.put_nowait, number)
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except FileNotFoundError:
        print(f"forwarder: {command[0]}: not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"forwarder: {command[0]}: {error.strerror}", file=sys.stderr)
        return 126
    passing = asyncio.ensure_future(pass_on(received, process))
    code = await process.wait()
    passing.cancel()
    return 128 - code if code < 0 else code


async def pass_on(received: asyncio.Queue[int], process: asyncio.subprocess.Process) -> None:
    while True:
        process.send_signal(await received.get())


async def main(arguments: list[str]) -> int:
    if len(arguments) < 4 or arguments[2] != "--" or not arguments[1].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    try:
        listener = listen(int(arguments[1]))
    except OSError as error:
        print(f"forwarder: cannot listen on 127.0.0.1:{arguments[1]}: {error}", file=sys.stderr)
        return 125
    server = await asyncio.start_server(functools.partial(forward, arguments[0]), sock=listener)
    try:
        return await execute(arguments[3:])
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
