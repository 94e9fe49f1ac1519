"""The way out over a command's streams: a real program at the other end, and one that sent something invalid."""

import ast
import asyncio
import hashlib
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import SandboxError
from app.sandbox.machine.socket_tunnel import MAX_LINE_LENGTH, PROGRAM, from_lines, run_tunnel_host, tunnel
from app.sandbox.machine.tunnel_inside import (
    CLOSED,
    DATA,
    ENDED,
    HEAD,
    LARGEST,
    MOST,
    OPENED,
    PASSED,
    READY,
    WINDOW,
    BadFrameError,
    FrameParser,
    frame,
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def listening(path: Path, talk: Talk) -> AsyncIterator[Path]:
    """A server of this host; whoever still talks at the end is cut off."""
    talking: set[asyncio.Task[None]] = set()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(met, path)
    try:
        yield path
    finally:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


class Program:
    """The program inside, over pipes."""

    def __init__(self, process: asyncio.subprocess.Process, *, lines: bool) -> None:
        self.process = process
        self._lines = lines

    def incoming(self) -> AsyncIterator[bytes]:
        return from_lines(self._pieces()) if self._lines else self._pieces()

    async def write(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        await self.process.stdin.drain()

    async def _pieces(self) -> AsyncIterator[bytes]:
        assert self.process.stdout is not None
        while piece := await self.process.stdout.read(50_000):
            yield piece


@asynccontextmanager
async def program(place: str, *, lines: bool = False) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(PROGRAM), place, *(["lines"] if lines else [])),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        yield Program(process, lines=lines)
    finally:
        if process.returncode is None:
            process.stdin.close()
            assert process.stderr is not None
            said = await process.stderr.read()
            assert (await process.wait(), said) in {(0, b""), (-9, b"")}


@asynccontextmanager
async def tunnelled(directory: Path, talk: Talk, *, lines: bool = False) -> AsyncIterator[Path]:
    """The socket inside, which leads to `talk`."""
    inside = directory / "inside"
    async with (
        listening(directory / "host", talk) as host,
        program(str(inside), lines=lines) as end,
        tunnel(end.incoming(), end.write, host),
    ):
        yield inside


async def asked(place: Path, content: bytes) -> bytes:
    """Say it, end, and hear the answer to its end."""
    reader, writer = await asyncio.open_unix_connection(place)

    async def say() -> None:
        writer.write(content)
        await writer.drain()
        writer.write_eof()

    _, answer = await asyncio.gather(say(), reader.read())
    writer.close()
    return answer


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class TestCarrying:
    @pytest.mark.parametrize("lines", [False, True])
    async def test_many_connections_with_much_both_ways(self, tmp_path: Path, lines: bool) -> None:
        contents = [os.urandom(1 + 17_011 * number) for number in range(40)]
        async with tunnelled(tmp_path, echo, lines=lines) as inside:
            answers = await asyncio.gather(*(asked(inside, content) for content in contents))
        assert [digest(answer) for answer in answers] == [digest(content) for content in contents]

    async def test_more_than_may_be_at_once_wait_for_their_turn(self, tmp_path: Path) -> None:
        most = now = 0

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await echo(reader, writer)
            now -= 1

        async with tunnelled(tmp_path, count) as inside:
            answers = await asyncio.gather(*(asked(inside, b"%d" % number) for number in range(2 * MOST)))
        assert answers == [b"%d" % number for number in range(2 * MOST)]
        assert most <= MOST

    async def test_large_ones_by_a_port(self, tmp_path: Path, unused_tcp_port: int) -> None:
        content = os.urandom(20_000_000)
        async with (
            listening(tmp_path / "host", echo) as host,
            program(str(unused_tcp_port)) as end,
            tunnel(end.incoming(), end.write, host),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
            writer.write(content)
            writer.write_eof()
            assert digest(await reader.read()) == digest(content)
            writer.close()

    async def test_either_side_may_end_first(self, tmp_path: Path) -> None:
        heard: list[bytes] = []

        async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"all that I have")
            writer.write_eof()
            heard.append(await reader.read())

        async with tunnelled(tmp_path, answer_first) as inside:
            reader, writer = await asyncio.open_unix_connection(inside)
            assert await reader.read() == b"all that I have"
            writer.write(b"late")
            writer.write_eof()
            await asked(inside, b"")
            writer.close()
        assert heard[0] == b"late"

    async def test_a_host_that_does_not_listen_yet_is_a_closed_connection(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        async with program(str(inside)) as end, tunnel(end.incoming(), end.write, tmp_path / "host"):
            reader, writer = await asyncio.open_unix_connection(inside)
            with pytest.raises(ConnectionResetError):
                _ = await reader.read() or _raise(ConnectionResetError())
            writer.close()
            async with listening(tmp_path / "host", echo):
                assert await asked(inside, b"now") == b"now"

    async def test_closing_one_end_closes_the_other(self, tmp_path: Path) -> None:
        over = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.read(10):
                    writer.write(b"x" * 1000)
                    await writer.drain()
            finally:
                over.set()

        async with tunnelled(tmp_path, wait) as inside:
            reader, writer = await asyncio.open_unix_connection(inside)
            writer.write(b"hello")
            await reader.readexactly(10)
            writer.transport.abort()
            await over.wait()
            assert await asked(inside, b"") == b""


class TestSlowness:
    """A window is what may be under way; a socket's own buffers come on top of it, and are small."""

    BUFFERED = WINDOW + 2_000_000

    async def test_a_reader_inside_that_does_not_read_stops_its_own_connection_only(self, tmp_path: Path) -> None:
        sent = 0

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            if await reader.read(1) == b"e":
                return await echo(reader, writer)
            while sent < 50_000_000:
                writer.write(bytes(10_000))
                await writer.drain()
                sent += 10_000
            return None

        async with tunnelled(tmp_path, flood) as inside:
            _, stalled = await asyncio.open_unix_connection(inside, limit=1000)
            stalled.write(b"f")
            for _ in range(50):
                assert await asked(inside, b"echo") == b"cho"
            assert sent < self.BUFFERED
            stalled.close()

    async def test_a_host_that_does_not_read_stops_its_own_connection_only(self, tmp_path: Path) -> None:
        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(1) == b"e":
                await echo(reader, writer)
            await asyncio.Event().wait()

        async with tunnelled(tmp_path, wait) as inside:
            _, stalled = await asyncio.open_unix_connection(inside)
            sent = 0

            async def flood() -> None:
                nonlocal sent
                while True:
                    stalled.write(bytes(10_000))
                    await stalled.drain()
                    sent += 10_000

            flooding = asyncio.create_task(flood())
            reader, writer = await asyncio.open_unix_connection(inside)
            writer.write(b"e")
            for _ in range(50):
                writer.write(b"ping")
                assert await reader.readexactly(4) == b"ping"
            assert sent < self.BUFFERED
            flooding.cancel()
            for one in (writer, stalled):
                one.close()


class TestEnding:
    async def test_a_tunnel_that_cannot_listen_is_an_error(self, tmp_path: Path) -> None:
        async with program(str(tmp_path / "none" / "inside")) as end:
            with pytest.raises(SandboxError, match="could not be opened: the program inside is gone"):
                async with tunnel(end.incoming(), end.write, tmp_path / "host"):
                    pass
            assert await end.process.wait() == 125

    async def test_a_tunnel_that_never_becomes_ready_is_given_up(self, tmp_path: Path) -> None:
        async with program(str(tmp_path / "inside")) as end:
            with pytest.raises(SandboxError, match="not ready within 0 s"):
                async with tunnel(_silence(), end.write, tmp_path / "host", seconds=0.01):
                    pass

    async def test_the_program_dies_at_any_moment(self, tmp_path: Path) -> None:
        met, ended = asyncio.Event(), asyncio.Event()

        async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            try:
                await reader.read(1)
                met.set()
                await reader.read()
            finally:
                ended.set()

        inside = tmp_path / "inside"
        async with (
            listening(tmp_path / "host", wait) as host,
            program(str(inside)) as end,
            tunnel(end.incoming(), end.write, host) as carrying,
        ):
            reader, writer = await asyncio.open_unix_connection(inside)
            writer.write(os.urandom(1_000_000))
            await met.wait()
            end.process.kill()
            assert (await carrying).startswith(("the program inside is gone", "its streams failed"))
            await ended.wait()
            with pytest.raises(ConnectionResetError):
                _ = await reader.read() or _raise(ConnectionResetError())
            writer.close()

    async def test_a_host_that_goes_away_ends_the_program_and_its_connections(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        async with listening(tmp_path / "host", echo) as host, program(str(inside)) as end:
            async with tunnel(end.incoming(), end.write, host):
                reader, writer = await asyncio.open_unix_connection(inside)
                writer.write(b"begun")
                assert await reader.readexactly(5) == b"begun"
            assert end.process.stdin is not None
            end.process.stdin.close()
            assert await end.process.wait() == 0
            assert await reader.read() == b""
            writer.close()

    async def test_a_failing_stream_ends_it(self, tmp_path: Path) -> None:
        async def fail(_: bytes) -> None:
            raise SandboxError("The machine is gone.")

        async def opened() -> AsyncIterator[bytes]:
            yield frame(READY) + frame(OPENED, 1)
            await asyncio.Event().wait()

        assert await run_tunnel_host(opened(), fail, tmp_path / "none") == "The machine is gone."

    async def test_cancelling_leaves_no_connection(self, tmp_path: Path) -> None:
        met, ended = asyncio.Event(), asyncio.Event()

        async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            met.set()
            await reader.read()
            ended.set()

        async def opened() -> AsyncIterator[bytes]:
            yield frame(READY) + frame(OPENED, 1)
            await asyncio.Event().wait()

        async with listening(tmp_path / "host", wait) as host:
            carrying = asyncio.create_task(run_tunnel_host(opened(), _nowhere, host))
            await met.wait()
            carrying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await carrying
            await ended.wait()


GARBLED = {
    "a huge length": HEAD.pack(DATA, 1, 2**32 - 1),
    "one more than the largest": HEAD.pack(DATA, 1, LARGEST + 1),
    "a kind that there is not": frame(6, 1),
    "noise": bytes(range(200, 256)) * 100,
    "a connection that was never opened": frame(DATA, 7, b"x"),
    "bytes for the number after the last": frame(DATA, 2, b"x"),
    "a number again": frame(OPENED, 1),
    "number nothing": frame(OPENED, 0),
    "more than the window": frame(DATA, 1, bytes(LARGEST)) * (WINDOW // LARGEST + 1),
    "empty bytes": frame(DATA, 1),
    "bytes after the end": frame(ENDED, 1) + frame(DATA, 1, b"x"),
    "an end after the end": frame(ENDED, 1) * 2,
    "more passed on than was sent": frame(PASSED, 1, b"\xff\xff\xff\xff"),
    "nothing passed on": frame(PASSED, 1, bytes(4)),
    "an amount of five bytes": frame(PASSED, 1, bytes(5)),
    "a flood of connections": b"".join(frame(OPENED, number) for number in range(2, 100_000)),
}


class TestHostility:
    @pytest.mark.parametrize("said", GARBLED.values(), ids=GARBLED)
    async def test_a_forbidden_frame_closes_the_tunnel(self, tmp_path: Path, said: bytes) -> None:
        async def hostile() -> AsyncIterator[bytes]:
            yield frame(READY) + frame(OPENED, 1)
            for start in range(0, len(said), 1000):
                yield said[start : start + 1000]
            await asyncio.Event().wait()

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with listening(tmp_path / "host", deaf) as host:
            assert "sent something invalid" in await run_tunnel_host(hostile(), _nowhere, host)

    async def test_before_it_is_ready_nothing_is_opened(self, tmp_path: Path) -> None:
        async def early() -> AsyncIterator[bytes]:
            yield frame(OPENED, 1)

        assert "connection 1 where that cannot be" in await run_tunnel_host(early(), _nowhere, tmp_path / "none")

    async def test_opening_and_closing_without_end_takes_no_memory(self, tmp_path: Path) -> None:
        async def restless() -> AsyncIterator[bytes]:
            yield frame(READY)
            for number in range(1, 4000):
                yield frame(OPENED, number) + frame(CLOSED, number) + frame(DATA, number, b"late")
                await asyncio.sleep(0)

        tracemalloc.start()
        try:
            said = await run_tunnel_host(restless(), _nowhere, tmp_path / "none")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert said == "the program inside is gone"
        assert peak < 500_000

    async def test_bytes_one_by_one_take_no_more_than_the_window(self, tmp_path: Path) -> None:
        async def dripping() -> AsyncIterator[bytes]:
            yield frame(READY) + frame(OPENED, 1)
            for _ in range(30):
                yield frame(DATA, 1, b"xy") * 1000

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with listening(tmp_path / "host", deaf) as host:
            tracemalloc.start()
            try:
                await run_tunnel_host(dripping(), _nowhere, host)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert peak < 3 * WINDOW

    @pytest.mark.parametrize("piece", [b"no base64!\n", b"YQ=\n", b"\xff\n", b"A" * (MAX_LINE_LENGTH + 1)])
    async def test_lines_that_are_none(self, tmp_path: Path, piece: bytes) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield piece
            await asyncio.Event().wait()

        assert "sent something invalid" in await run_tunnel_host(from_lines(pieces()), _nowhere, tmp_path / "none")


NUMBERS = st.integers(0, 3) | st.integers(0, 2**32 - 1)
SAID = st.one_of(
    st.binary(max_size=40),
    st.builds(frame, st.integers(0, 7), NUMBERS, st.binary(max_size=40)),
    st.builds(HEAD.pack, st.integers(0, 255), NUMBERS, NUMBERS),
)


@given(st.lists(SAID, max_size=20))
def test_any_agent_output_ends_in_a_result(said: list[bytes]) -> None:
    async def hostile() -> AsyncIterator[bytes]:
        yield frame(READY) + frame(OPENED, 1)
        for piece in said:
            yield piece
            await asyncio.sleep(0)

    assert asyncio.run(run_tunnel_host(hostile(), _nowhere, Path("/nonexistent/socket"))).startswith(
        "the program inside"
    )


def test_frames_come_in_any_pieces() -> None:
    said = [(OPENED, 1, b""), (DATA, 1, os.urandom(300)), (DATA, 2**32 - 1, b"x" * LARGEST), (CLOSED, 1, b"")]
    stream = b"".join(frame(*one) for one in said)
    for size in (1, 7, 1000, len(stream)):
        frames = FrameParser()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [one for piece in pieces for one in frames.feed(piece)] == said
    with pytest.raises(BadFrameError):
        list(FrameParser().feed(HEAD.pack(DATA, 1, LARGEST + 1)))


def test_the_program_inside_needs_no_more_than_python_3_8() -> None:
    tree = ast.parse(PROGRAM.read_text("utf-8"), feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


async def _nowhere(_: bytes) -> None:
    pass


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def _raise(error: Exception) -> bytes:
    raise error
