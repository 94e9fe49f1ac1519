"""The egress proxy over real sockets: what it carries, what it refuses, and what it says then."""

import asyncio
import base64
import contextlib
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.sandbox.egress.allow_list import AllowList, address_of, is_public, parse_rule
from app.sandbox.egress.proxy import EgressProxy, RelayLimits, Upstream, record_length, server_name

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def far_server(handler: Handler) -> AsyncIterator[int]:
    """A loopback server; yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()


class Recorder:
    """Answers every request with `ok` and keeps what it was sent."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") -> None:
        self.heard = b""
        self.connections = 0
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.heard += await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()


async def talk(path: Path, request: bytes) -> bytes:
    """Send one request and read all that comes back."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request)
    answer = await reader.read(-1)
    writer.close()
    return answer


async def tunnel(path: Path, authority: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "egress.sock"


async def test_an_allowed_host_is_reached_by_a_tunnel(path: Path) -> None:
    async with far_server(echo) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]) as proxy:
        reader, writer, head = await tunnel(path, f"127.0.0.1:{port}")
        assert head.startswith(b"HTTP/1.1 200 ")
        hello = client_hello(None) + b"hello"
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        writer.write_eof()
        assert await reader.read(-1) == b""
        writer.close()
        assert proxy.refused == []
        assert proxy.explanation == ""


async def test_a_plain_get_is_rebuilt_and_carried(path: Path) -> None:
    recorder = Recorder()
    async with far_server(recorder) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]):
        request = f"GET http://127.0.0.1:{port}/simple/a?b=c HTTP/1.1\r\nHost: elsewhere.test\r\nAccept: */*\r\n"
        answer = await talk(
            path, request.encode() + b"Proxy-Authorization: secret\r\nConnection: x-mine\r\nX-Mine: 1\r\n\r\n"
        )
    assert answer.endswith(b"\r\n\r\nok")
    lines = recorder.heard.decode().split("\r\n")
    assert lines[0] == "GET /simple/a?b=c HTTP/1.1"
    assert lines[1:] == [f"Host: 127.0.0.1:{port}", "Accept: */*", "Connection: close", "", ""]


async def test_a_host_that_is_not_allowed_is_refused_with_the_way_to_allow_it(path: Path) -> None:
    async with EgressProxy(path, ["example.com"]) as proxy:
        for request in (b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n", b"GET http://evil.test/ HTTP/1.1\r\n\r\n"):
            answer = (await talk(path, request)).decode()
            assert answer.startswith("HTTP/1.1 403 ")
            assert "evil.test" in answer
            assert "`network:` in .github/agent-fix.yml" in answer
        assert proxy.refused == ["evil.test"]
        assert "refused: evil.test" in proxy.explanation


async def test_another_port_of_an_allowed_host_is_refused(path: Path) -> None:
    recorder = Recorder()
    async with far_server(recorder) as port, EgressProxy(path, ["http://127.0.0.1:9", "example.com"]) as proxy:
        for authority in (f"127.0.0.1:{port}", "example.com:22", "example.com:8443"):
            _, writer, head = await tunnel(path, authority)
            writer.close()
            assert head.startswith(b"HTTP/1.1 403 "), authority
        assert proxy.refused == [f"127.0.0.1:{port}", "example.com:22", "example.com:8443"]
    assert recorder.connections == 0


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "10.1.2.3", "localhost", "2130706433", "0x7f.1"],
)
async def test_an_address_or_a_name_of_this_machine_is_refused(path: Path, host: str) -> None:
    async with EgressProxy(path, ["example.com", "*.example.org"]):
        _, writer, head = await tunnel(path, f"{host}:443")
        writer.close()
    assert head.startswith(b"HTTP/1.1 403 ")


async def test_an_allowed_name_that_leads_to_a_private_address_is_refused(path: Path) -> None:
    recorder = Recorder()
    async with (
        far_server(recorder) as port,
        EgressProxy(path, [f"loopback.example.com:{port}"], upstream=Upstream(resolve=loopback)) as proxy,
    ):
        _, writer, head = await tunnel(path, f"loopback.example.com:{port}")
        writer.close()
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"private address" in head
    assert proxy.refused == [f"loopback.example.com:{port}"]
    assert recorder.connections == 0


async def test_a_configured_index_may_live_on_a_private_address(path: Path) -> None:
    async with (
        far_server(Recorder()) as port,
        EgressProxy(path, [f"http://index.example.com:{port}"], upstream=Upstream(resolve=loopback)),
    ):
        answer = await talk(path, f"GET http://index.example.com:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.endswith(b"ok")


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST http://example.com/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"GET http://example.com/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"GET http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nA: b\nHost: evil.test\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\nHost: evil.test\n\n\r\n\r\n",
        b"GET /etc/passwd HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://user@example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com:99999/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com/a b HTTP/1.1\r\n\r\n",
        b"GET http://exa\xcc\x88mple.com/ HTTP/1.1\r\n\r\n",
        b"GET file:///etc/passwd HTTP/1.1\r\n\r\n",
        b"CONNECT example.com HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:0 HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:443@evil.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:443 HTTP/2.0\r\n\r\n",
        b"\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
    ],
)
async def test_whatever_is_not_plainly_one_request_is_refused(path: Path, request_head: bytes) -> None:
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return []

    async with EgressProxy(path, ["example.com"], upstream=Upstream(resolve=resolve)):
        answer = await talk(path, request_head)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert asked == []


async def test_a_second_request_behind_the_first_is_not_carried(path: Path) -> None:
    recorder = Recorder()
    async with far_server(recorder) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]):
        first = f"GET http://127.0.0.1:{port}/one HTTP/1.1\r\n\r\n"
        await talk(path, (first + "GET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n").encode())
    assert recorder.connections == 1
    assert b"/two" not in recorder.heard


async def test_a_head_without_an_end_is_not_kept_in_memory(path: Path) -> None:
    async with EgressProxy(path, ["example.com"]):
        answer = await talk(path, b"GET http://example.com/ HTTP/1.1\r\nA: " + b"a" * 40_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_hosts_that_do_not_answer_and_refused_ones_are_distinguished(path: Path) -> None:
    listener = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    async with EgressProxy(path, [f"http://127.0.0.1:{port}"]) as proxy:
        answer = await talk(path, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert proxy.refused == []


def client_hello(name: str | None) -> bytes:
    """The first message of a real TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    said = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


@pytest.mark.parametrize("name", ["files.example.com", "a.b", None])
def test_the_name_in_a_real_handshake_is_read(name: str | None) -> None:
    hello = client_hello(name)
    assert record_length(hello[:5]) == len(hello) - 5
    assert server_name(hello) == (name or "")


def test_a_handshake_cut_anywhere_is_refused_and_not_misread() -> None:
    hello = client_hello("files.example.com")
    for end in range(len(hello)):
        with pytest.raises(ValueError):
            server_name(hello[:end])


async def test_a_tunnel_to_an_allowed_name_cannot_speak_to_another(path: Path) -> None:
    heard = asyncio.Event()

    async def far(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            heard.set()

    async with (
        far_server(far) as port,
        EgressProxy(path, [f"https://index.example.com:{port}"], upstream=Upstream(resolve=loopback)) as proxy,
    ):
        for first in (client_hello("evil.test"), client_hello(None), b"SSH-2.0-x\r\n", b"\x16\x03\x01\xff\xff"):
            reader, writer, head = await tunnel(path, f"index.example.com:{port}")
            assert head.startswith(b"HTTP/1.1 200 ")
            writer.write(first)
            assert await reader.read(-1) == b""
            writer.close()
    assert not heard.is_set()
    assert proxy.refused == ["evil.test"]


async def test_a_tunnel_to_a_host_of_the_repository_must_be_tls_at_any_port(path: Path) -> None:
    upstream = ChainedProxy(b"HTTP/1.1 200 fine\r\n\r\n")
    async with (
        far_server(upstream) as port,
        EgressProxy(path, ["cdn.example.com"], upstream=Upstream(f"http://127.0.0.1:{port}", resolve=public)),
    ):
        reader, writer, _ = await tunnel(path, "cdn.example.com:80")
        writer.write(b"POST /stolen HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        assert await reader.read(-1) == b""
        writer.close()


async def test_a_tunnel_to_an_address_needs_no_name(path: Path) -> None:
    hello = client_hello(None)
    async with far_server(echo) as port, EgressProxy(path, [f"https://127.0.0.1:{port}"]):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        writer.close()


async def test_a_tunnel_carries_the_handshake_it_has_looked_at_unchanged(path: Path) -> None:
    hello = client_hello("index.example.com")
    async with (
        far_server(echo) as port,
        EgressProxy(path, [f"https://index.example.com:{port}"], upstream=Upstream(resolve=loopback)),
    ):
        reader, writer, _ = await tunnel(path, f"index.example.com:{port}")
        for byte in hello[:9]:
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(hello[9:] + b"more")
        assert await reader.readexactly(len(hello) + 4) == hello + b"more"
        writer.close()


async def test_a_large_download_arrives_whole(path: Path) -> None:
    size = 20 * 1024**2

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(size // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()

    async with far_server(far) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]):
        answer = await talk(path, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert len(answer) == size + len(b"HTTP/1.1 200 OK\r\n\r\n")


async def test_more_bytes_than_a_set_up_may_receive_end_it(path: Path) -> None:
    async with (
        far_server(Recorder(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000)) as port,
        EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(received=100_000)) as proxy,
    ):
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode()
        assert len(await talk(path, request)) < 200_000
        assert (await talk(path, request)).startswith(b"HTTP/1.1 403 ")
        assert "received more than 100000 bytes" in proxy.explanation


async def test_more_bytes_than_a_set_up_may_send_end_it(path: Path) -> None:
    async with (
        far_server(echo) as port,
        EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(sent=100_000)) as proxy,
    ):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(client_hello(None))
        with contextlib.suppress(ConnectionError):
            for _ in range(8):
                writer.write(b"x" * 65536)
                await writer.drain()
            writer.write_eof()
            assert len(await reader.read(-1)) <= 100_000 + 65536
        writer.close()
        assert "sent more than 100000 bytes" in proxy.explanation


async def test_an_upload_in_a_tunnel_ends_the_set_up(path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(b"more, please")

    async with (
        far_server(swallow) as port,
        EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(upload=100_000)) as proxy,
    ):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(client_hello(None))
        with contextlib.suppress(ConnectionError):
            for _ in range(8):
                writer.write(b"x" * 65536)
                await writer.drain()
            await reader.read(-1)
        writer.close()
        assert proxy.explanation == "the set-up sent more than it received, as an upload does"


INNER = (
    b"PUT /stolen HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /stolen HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET http://evil.test/ HTTP/1.1\r\n\r\n",
    b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n",
    b"PATCH /a HTTP/1.1\r\n\r\n",
    b"\x00\x01any other protocol\r\n\r\n",
    b"GET @evil.test/ HTTP/1.1\r\n\r\n",
)


@pytest.mark.parametrize("inner", INNER)
async def test_a_tunnel_without_tls_carries_downloads_only(path: Path, inner: bytes) -> None:
    recorder = Recorder()
    async with far_server(recorder) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(inner)
        assert (await reader.read(-1)).startswith(b"HTTP/1.1 403 ")
        writer.close()
    assert recorder.heard == b""


async def test_a_download_in_a_tunnel_without_tls_is_one_rebuilt_request(path: Path) -> None:
    recorder = Recorder()
    async with far_server(recorder) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"]):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(b"GET /simple/a?b=c HTTP/1.1\r\nHost: evil.test\r\n\r\nPUT /stolen HTTP/1.1\r\n\r\n")
        assert (await reader.read(-1)).endswith(b"ok")
        writer.close()
    lines = recorder.heard.decode().split("\r\n")
    assert lines == ["GET /simple/a?b=c HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", "", ""]


async def test_a_connection_on_which_nothing_moves_is_closed(path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with (
        far_server(silent) as port,
        EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(idle=0.05)),
    ):
        reader, writer, head = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(b"x")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reader.read(-1) == b""
        writer.close()


async def test_a_slow_download_is_carried_as_long_as_something_moves(path: Path) -> None:
    """The client asks for each byte, so that the pace is the test's and not the clock's."""

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(hello))
        writer.write(b".")
        while await reader.read(1):
            writer.write(b".")

    hello = client_hello(None)
    async with far_server(far) as port, EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(idle=5)):
        reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        writer.write(hello)
        await reader.readuntil(b".")
        for _ in range(200):
            writer.write(b"?")
            assert await reader.readexactly(1) == b"."
        writer.close()


async def test_two_hundred_at_once_are_all_served_a_few_at_a_time(path: Path) -> None:
    busy = most = 0

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nok")
        busy -= 1

    async with (
        far_server(far) as port,
        EgressProxy(path, [f"http://127.0.0.1:{port}"], caps=RelayLimits(connections=16)),
    ):
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode()
        answers = await asyncio.gather(*(talk(path, request) for _ in range(200)))
    assert all(answer.endswith(b"ok") for answer in answers)
    assert most <= 16


async def test_more_than_may_wait_are_turned_away(path: Path) -> None:
    async with EgressProxy(path, ["example.com"], caps=RelayLimits(connections=1, waiting=1)):
        first, second = [await asyncio.open_unix_connection(str(path)) for _ in range(2)]
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert await reader.read(-1) == b""
        for each in (first[1], second[1], writer):
            each.close()


async def test_the_socket_is_its_owners_only_and_gone_afterwards(path: Path) -> None:
    async with EgressProxy(path, []):
        status = await asyncio.to_thread(path.stat)
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o600
    assert not await asyncio.to_thread(path.exists)


async def test_a_socket_path_longer_than_the_kernel_takes_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / "egress.sock"
    async with EgressProxy(deep, []):
        assert stat.S_ISSOCK((await asyncio.to_thread(deep.stat)).st_mode)


def test_socket_is_private_without_paths_by_descriptor(path: Path) -> None:
    """As on macOS: in a process whose `os` does not have O_PATH."""
    program = (
        "import os, sys; from pathlib import Path; from app.sandbox.egress.proxy import listen_privately\n"
        "del os.O_PATH\n"
        "listener = listen_privately(Path(sys.argv[1]), None)\n"
        "print(listener.getsockname(), oct(Path(sys.argv[1]).stat().st_mode & 0o777))\n"
    )
    words = [sys.executable, "-c", program, str(path)]
    assert subprocess.check_output(words, text=True) == f"{path} 0o600\n"


async def test_leaving_ends_what_is_under_way(path: Path) -> None:
    async with far_server(echo) as port:
        async with EgressProxy(path, [f"http://127.0.0.1:{port}"]):
            reader, writer, _ = await tunnel(path, f"127.0.0.1:{port}")
        assert await reader.read(-1) == b""
        writer.close()


class ChainedProxy:
    """This machine's own proxy: keeps the heads it is sent and answers like an origin that echoes."""

    def __init__(self, answer: bytes) -> None:
        self.heads: list[str] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self._answer)
        await echo(reader, writer)


async def test_an_upstream_proxy_is_chained_to_with_its_credentials(path: Path) -> None:
    upstream = ChainedProxy(b"HTTP/1.1 200 fine\r\n\r\n")
    async with (
        far_server(upstream) as port,
        EgressProxy(path, ["http://example.com:80"], upstream=Upstream(f"http://me:p%40ss@127.0.0.1:{port}")),
    ):
        reader, writer, head = await tunnel(path, "example.com:80")
        assert head.startswith(b"HTTP/1.1 200 ")
        hello = client_hello("example.com")
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        writer.close()
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET http://example.com/a HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
    basic = "Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss").decode()
    connect, get = upstream.heads
    assert connect.splitlines()[0] == "CONNECT example.com:80 HTTP/1.1"
    assert get.splitlines()[0] == "GET http://example.com/a HTTP/1.1"
    assert basic in connect
    assert basic in get


async def test_an_upstream_proxy_is_not_asked_for_a_private_address(path: Path) -> None:
    upstream = ChainedProxy(b"HTTP/1.1 200 fine\r\n\r\n")
    async with far_server(upstream) as port:
        machine = Upstream(f"http://127.0.0.1:{port}", resolve=loopback)
        async with EgressProxy(path, ["10-0-0-5.example.com"], upstream=machine) as proxy:
            for head in (b"GET http://10-0-0-5.example.com/", b"CONNECT 10-0-0-5.example.com:443"):
                assert b"private address" in await talk(path, head + b" HTTP/1.1\r\n\r\n")
    assert proxy.refused == ["10-0-0-5.example.com"]
    assert upstream.heads == []


async def test_an_upstream_proxy_resolves_what_this_machine_cannot(path: Path) -> None:
    async def unknown(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    upstream = ChainedProxy(b"HTTP/1.1 200 fine\r\n\r\n")
    async with far_server(upstream) as port:
        machine = Upstream(f"http://127.0.0.1:{port}", resolve=unknown)
        async with EgressProxy(path, ["example.com"], upstream=machine):
            _, writer, head = await tunnel(path, "example.com:443")
            writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")


async def test_an_upstream_proxy_that_refuses_is_quoted(path: Path) -> None:
    async with (
        far_server(ChainedProxy(b"HTTP/1.1 407 who are you\r\n\r\n")) as port,
        EgressProxy(path, ["https://example.com"], upstream=Upstream(f"http://127.0.0.1:{port}")),
    ):
        answer = await talk(path, b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"407 who are you" in answer


@pytest.mark.parametrize("no_proxy", ["localhost, .example.com", "*.example.com", "a, *", "index.example.com:{port}"])
async def test_hosts_that_need_no_upstream_proxy_are_reached_straight(path: Path, no_proxy: str) -> None:
    async with far_server(Recorder()) as port:
        upstream = Upstream("http://127.0.0.1:9", no_proxy.format(port=port), loopback)
        async with EgressProxy(path, [f"http://index.example.com:{port}"], upstream=upstream):
            answer = await talk(path, f"GET http://index.example.com:{port}/ HTTP/1.1\r\n\r\n".encode())
    assert answer.endswith(b"ok")


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, ""),
        ({"https_proxy": "http://p:1", "NO_PROXY": "a"}, "http://p:1"),
        ({"HTTPS_PROXY": "", "HTTP_PROXY": "http://q:1"}, "http://q:1"),
        ({"ALL_PROXY": "socks5h://s:1", "HTTP_PROXY": "http://q:1"}, "http://q:1"),
        ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
    ],
)
def test_proxy_of_the_machine_is_an_http_proxy(environment: dict[str, str], url: str) -> None:
    found = Upstream.from_environment(environment, ["example.com"])
    assert (found.url, found.no_proxy) == (url, environment.get("NO_PROXY", ""))


def test_proxy_that_is_not_an_http_proxy_is_named() -> None:
    environment = {"ALL_PROXY": "socks5://me:secret@127.0.0.1:1080"}
    with pytest.raises(SetupError, match="ALL_PROXY") as caught:
        Upstream.from_environment(environment, ["example.com"])
    assert "secret" not in caught.value.message + caught.value.hint
    assert Upstream.from_environment(environment, []).url == "", "nothing is reached"


NO_PUBLIC_HOST = """
* *.com *.*.com a.*.com localhost a.local x.internal 127.0.0.1 10.0.0.1 169.254.169.254 [::1] ::1 2130706433 0x7f.0.0.1
example.com:0 example.com:70000 example.com:x example.com/path user@example.com ftp://example.com https:// https://*.com
x.intranet x.onion exämple.com -a.com a..com http://exämple.com
"""


@pytest.mark.parametrize("entry", ["", "a b.com", "http://a b", *NO_PUBLIC_HOST.split()])
def test_entries_that_name_no_public_host_are_not_rules(entry: str) -> None:
    with pytest.raises(ValueError):
        parse_rule(entry)


def test_each_kind_of_entry_allows_its_hosts() -> None:
    allowed = AllowList(
        ["Example.com", "*.example.org", "other.test:8080", "https://index.corp.test:8443", "http://10.0.0.5"]
    )
    assert allowed.find("example.com", 443)
    assert allowed.find("example.com", 80)
    assert not allowed.find("sub.example.com", 443)
    assert allowed.find("a.b.example.org", 443)
    assert not allowed.find("example.org", 443)
    assert not allowed.find("evilexample.org", 443)
    assert allowed.find("other.test", 8080)
    assert not allowed.find("other.test", 443)
    index = allowed.find("index.corp.test", 8443)
    assert index is not None
    assert index.configured
    assert allowed.find("10.0.0.5", 80)
    assert not allowed.find("10.0.0.5", 443)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, *, public: bool) -> None:
    parsed = address_of(address)
    assert parsed is not None
    assert is_public(parsed) is public


async def public(_host: str, _port: int) -> list[str]:
    return ["93.184.216.34"]


async def loopback(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]
