"""The forwarder as it is used: a program of its own between a command and the egress proxy's socket."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest

from app.sandbox.egress import forwarder
from app.sandbox.egress.proxy import EgressProxy

PROGRAM = str(Path(forwarder.__file__))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def start(path: Path, port: int, *command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", PROGRAM, str(path), str(port), "--", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def run(path: Path, port: int, *command: str) -> tuple[int | None, str]:
    process = await start(path, port, *command)
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("/bin/sh", "-c", "exit 0"), 0),
        (("/bin/sh", "-c", "exit 7"), 7),
        (("/bin/sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
        (("/no/such/program",), 127),
        (("/etc/passwd",), 126),
    ],
)
async def test_the_forwarder_exits_with_the_commands_code(tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    assert (await run(tmp_path / "none.sock", free_port(), *command))[0] == code


async def test_signals_reach_the_command(tmp_path: Path) -> None:
    process = await start(tmp_path / "none.sock", free_port(), "/bin/sh", "-c", "echo ready; exec sleep 600")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.terminate()
    assert await process.wait() == 128 + signal.SIGTERM


async def test_a_port_that_is_taken_is_reported_before_the_command_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, output = await run(tmp_path / "none.sock", taken.getsockname()[1], "/bin/sh", "-c", "echo started")
    assert code == 125
    assert "cannot listen" in output
    assert "started" not in output


async def test_wrong_arguments_are_answered_with_how_to_use_it() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", PROGRAM, "only-one"), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"SOCKET PORT -- COMMAND" in said


CLIENT = """
import concurrent.futures, sys, urllib.error, urllib.request
proxy = urllib.request.ProxyHandler({"http": "http://127.0.0.1:" + sys.argv[1]})
opener = urllib.request.build_opener(proxy)
def get(number):
    return opener.open(sys.argv[2] + str(number), timeout=60).read()
with concurrent.futures.ThreadPoolExecutor(40) as pool:
    bodies = list(pool.map(get, range(200)))
print(all(body == b"x" * 70000 + str(number).encode() for number, body in enumerate(bodies)))
try:
    opener.open("http://evil.example.com/", timeout=60)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


async def test_a_client_behind_it_reaches_what_the_proxy_allows_and_nothing_else(tmp_path: Path) -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        number = head.split()[1].rpartition(b"/")[2]
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 70000 + number)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(far, "127.0.0.1", 0, backlog=512)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path, port = tmp_path / "egress.sock", free_port()
    async with server, EgressProxy(path, [address]) as proxy:
        code, output = await run(path, port, sys.executable, "-I", "-c", CLIENT, str(port), f"{address}/")
    assert (code, output.splitlines()[0]) == (0, "True")
    assert output.splitlines()[1].startswith("403 agent-fix: evil.example.com:80 is not a host")
    assert proxy.refused == ["evil.example.com"]


async def test_without_a_proxy_a_clients_connection_is_closed(tmp_path: Path) -> None:
    port = free_port()
    script = f"import socket; print(socket.create_connection(('127.0.0.1', {port})).recv(1))"
    assert await run(tmp_path / "none.sock", port, sys.executable, "-I", "-c", script) == (0, "b''\n")


async def test_a_connection_that_is_open_when_the_command_ends_is_not_reported(tmp_path: Path) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    path, port = tmp_path / "silent.sock", free_port()
    connect = f"import os, socket; socket.create_connection(('127.0.0.1', {port})).send(b'x'); os._exit(3)"
    async with await asyncio.start_unix_server(hold, path):
        assert await run(path, port, sys.executable, "-I", "-c", connect) == (3, "")
