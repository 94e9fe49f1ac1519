"""The bounds on a request's head, over a real socket: size, time, trailers, and what must go on working."""

import json
import socket
import threading
from collections.abc import Iterator
from itertools import repeat

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from app.server.http_limits import MAX_HEAD_BYTES, BoundedRequestHeads


class ShortTimeouts(BoundedRequestHeads):
    seconds_for_a_head = 0.3


async def told(request: Request) -> PlainTextResponse:
    return PlainTextResponse(json.dumps([len(await request.body()), len(request.headers)]))


async def refused(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("no", 401)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = Starlette(routes=[Route("/", told, methods=["GET", "POST"]), Route("/early", refused, methods=["POST"])])
        config = uvicorn.Config(app, http=ShortTimeouts, loop="uvloop", ws="none", lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(30)


def connection(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def sent(link: socket.socket, parts: Iterator[bytes]) -> int:
    """How many bytes were taken before the other side hung up."""
    count = 0
    try:
        for part in parts:
            link.sendall(part)
            count += len(part)
    except OSError:
        pass
    return count


def answer(link: socket.socket) -> bytes:
    """Everything that comes until the other side hangs up."""
    said = b""
    try:
        while part := link.recv(65_536):
            said += part
    except OSError:
        pass
    return said


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x-more: " + b"y" * 1_000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ", b"y" * 1_000),
        (b"GET /", b"y" * 1_000),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"x-trailer: " + b"y" * 1_000 + b"\r\n",
        ),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1;" + b"y" * 1_000 + b"\r\nz\r\n"),
    ],
)
def test_endless_response_headers_are_cut(port: int, head: bytes, more: bytes) -> None:
    with connection(port) as link:
        link.sendall(head)
        taken = sent(link, repeat(more, 64 * 1_024))
        assert taken < 64 * 1_024 * len(more)
        said = answer(link)
        assert said == b"" or b" 431 " in said[:20] or b" 400 " in said[:20]


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_long_heads_that_come_at_once_are_refused(port: int, body: bytes) -> None:
    length = b"content-length: %d\r\n\r\n" % len(body)
    for method, head in ((b"GET", b"x-long: " + b"y" * 100_000), (b"POST", b"x: y\r\n" * 20_000 + b"z: z")):
        with connection(port) as link:
            link.sendall(method + b" / HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n" + length + body)
            assert answer(link).startswith(b"HTTP/1.1 431 ")
    with connection(port) as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: " + b"y" * 50_000 + b"\r\n\r\n")
        assert answer(link).startswith(b"HTTP/1.1 200 ")


def test_missing_response_headers_time_out(port: int) -> None:
    for begin in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"):
        with connection(port) as link:
            link.sendall(begin)
            assert answer(link) == b""


def test_slow_response_headers_time_out(port: int) -> None:
    with connection(port) as link:
        link.settimeout(0.05)
        for character in b"GET / HTTP/1.1\r\nx: " + b"y" * 2_000:
            try:
                link.send(bytes([character]))
                if link.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it was waited for")


def test_slow_body_after_its_response_times_out(port: int) -> None:
    with connection(port) as link:
        link.sendall(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999999\r\n\r\n")
        assert b" 401 " in link.recv(4_096)
        link.settimeout(0.05)
        for _ in range(200):
            try:
                link.send(b"x")
                if link.recv(4_096) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        pytest.fail("it was waited for")


def test_many_requests_with_large_bodies_over_one_connection(port: int) -> None:
    body = b"z" * 3_000_000
    request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with connection(port) as link:
        reader = link.makefile("rb")
        for _ in range(4):
            link.sendall(request)
            assert b"200" in reader.readline()
            while reader.readline() != b"\r\n":
                pass
            assert json.loads(reader.read(len("[3000000, 2]")))[0] == len(body)


def test_chunks_of_an_ordinary_size_are_taken(port: int) -> None:
    chunk = b"%x\r\n" % 1_000 + b"z" * 1_000 + b"\r\n"
    with connection(port) as link:
        link.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        sent(link, repeat(chunk, 1_000))
        link.sendall(b"0\r\n\r\n")
        assert b"[1000000, " in answer(link)


def test_headers_of_an_ordinary_size_are_taken(port: int) -> None:
    head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncookie: " + b"c" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    with connection(port) as link:
        link.sendall(head)
        assert b" 200 " in answer(link)[:20]
