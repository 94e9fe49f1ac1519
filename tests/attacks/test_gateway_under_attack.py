"""An agent that attacks its gateway: it is refused or ended by rule, and the ledger is exact to the token."""

import asyncio
import json
import resource
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.agent.external.exchange import (
    MAX_REFUSALS,
    MAX_STORED,
    MAX_TEXT,
    CallBudget,
    Exchange,
    ExchangeRecorder,
)
from app.agent.external.gateway import MAX_CONNECTIONS, Gateway, GatewayLimits, serving
from app.core.model_usage import Totals
from app.llm.base import Body, ModelInfo, StreamEvent, WireProtocol
from app.llm.sql_ledger import SqlLedger, metadata
from app.llm.tokens import count_text

PATHS: Mapping[WireProtocol, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
INFO = ModelInfo("openai/gpt-plain", 20_000, 1_000, input_price=2_000_000, output_price=10_000_000)
USAGE = {"prompt_tokens": 120, "completion_tokens": 30}
COST = 120 * 2 + 30 * 10
NOTHING = Totals()
HUNG_UP = 0


async def _at_once() -> None:
    """Nobody is waited for."""


@dataclass
class Provider:
    """A passage whose answers are what a test wants; `closed` counts those that were heard or hung up upon."""

    said: Callable[[int], Sequence[StreamEvent]]
    before: Callable[[], Awaitable[None]] = _at_once
    after: Callable[[], Awaitable[None]] = _at_once
    info: ModelInfo = INFO
    asked: int = 0
    closed: int = 0

    async def stream(self, wire: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        self.asked += 1
        try:
            await self.before()
            for event in self.said(limit):
                yield event
            await self.after()
        finally:
            self.closed += 1

    async def complete(self, wire: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        raise AssertionError("these attacks are streams")


def text(content: str) -> StreamEvent:
    return StreamEvent("", {"choices": [{"index": 0, "delta": {"content": content}}]})


def end(reason: str = "stop", usage: Mapping[str, Any] = USAGE) -> tuple[StreamEvent, StreamEvent]:
    finish = StreamEvent("", {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return finish, StreamEvent("", {"choices": [], "usage": dict(usage)})


def short(limit: int) -> Sequence[StreamEvent]:
    return text("I look around."), *end()


@dataclass
class Job:
    """One job's gateway on its socket, with an account in a real database."""

    socket: Path
    token: str
    gateway: Gateway
    ledger: SqlLedger

    @property
    def totals(self) -> Totals:
        return self.ledger.totals()

    async def send(
        self, body: bytes, path: str = PATHS["chat"], *, token: str = "", length: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The request on a connection of its own, as any program in the sandbox could make it."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token or self.token}\r\n"
        )
        size = len(body) if length is None else length
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {size}\r\n\r\n".encode() + body)
        await writer.drain()
        return reader, writer

    async def ask(self, path: str = PATHS["chat"], *, token: str = "", **fields: Any) -> tuple[int, str]:
        """Status and text of an answer to its end."""
        try:
            reader, writer = await self.send(request(**fields), path, token=token)
        except ConnectionError:
            return HUNG_UP, ""
        return await heard(reader, writer)


def request(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": "fix it"}]
    return json.dumps({"model": "m", "messages": messages, "max_tokens": 400, "stream": True, **fields}).encode()


async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, str]:
    try:
        async with asyncio.timeout(60):
            raw = await reader.read()
    except ConnectionError:
        return HUNG_UP, ""
    writer.close()
    return int(raw.split(b" ", 2)[1]), raw.decode("utf-8", "replace")


@dataclass
class ParallelJobs:
    """Jobs side by side on one machine."""

    place: Path
    engine: sa.Engine
    made: int = 0

    @asynccontextmanager
    async def job(self, provider: Provider, cap: int = 1_000_000, **more: Any) -> AsyncIterator[Job]:
        self.made += 1
        ledger = SqlLedger(self.engine, f"job-{self.made}", cap)
        token, socket = f"agent-fix-token-{self.made}", self.place / f"{self.made}.sock"
        gateway = Gateway(provider, CallBudget(ledger, provider.info, "agent.1"), token, frozenset({"m"}), **more)
        async with serving(gateway, socket):
            yield Job(socket, token, gateway, ledger)


@pytest.fixture
def e2e_server(tmp_path: Path) -> Iterator[ParallelJobs]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.db'}", connect_args={"timeout": 30})
    metadata.create_all(engine)
    yield ParallelJobs(tmp_path, engine)
    engine.dispose()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Here both ends of a connection are in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Gate:
    """Holds answers until it is opened; `here` is how many wait."""

    here: int = 0
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def hold(self) -> None:
        async with self._came:
            self.here += 1
            self._came.notify_all()
        await self._open.wait()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(60), self._came:
            await self._came.wait_for(lambda: self.here >= count)

    def open(self) -> None:
        self._open.set()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # what is waited for is on the other side of a socket
            await asyncio.sleep(0.01)


async def test_another_jobs_key_opens_nothing(e2e_server: ParallelJobs) -> None:
    mine, theirs = Provider(short), Provider(short)
    async with e2e_server.job(mine) as job, e2e_server.job(theirs) as other:
        for path in (*PATHS.values(), "/v1/messages/count_tokens"):
            for token in (job.token, job.token[:-1], f"{other.token}x", " ", "*"):
                status, told = await other.ask(path, token=token)
                assert status == 401, (path, token)
                assert other.token not in told
        assert (await job.ask())[0] == 200
        assert (theirs.asked, other.totals) == (0, NOTHING)
        assert (job.totals.calls, job.totals.cost) == (1, COST)


async def test_another_model_is_not_there(e2e_server: ParallelJobs) -> None:
    provider = Provider(short)
    async with e2e_server.job(provider) as job:
        for model in ("gpt-5", "openai/gpt-plain", "M", "m ", "", None, ["m"], {"m": 1}, True):
            for path in PATHS.values():
                assert (await job.ask(path, model=model))[0] == 404
        assert (provider.asked, job.totals) == (0, NOTHING)


async def test_repeated_refused_calls_do_not_fill_the_disk(e2e_server: ParallelJobs) -> None:
    told: list[Exchange] = []
    async with e2e_server.job(Provider(short), on_exchange=told.append) as job:
        for _ in range(MAX_REFUSALS + 50):
            assert (await job.ask(model="gpt-5"))[0] == 404
        assert (await job.ask())[0] == 200
        assert len(told) == len(job.gateway.recorder.exchanges) == MAX_REFUSALS + 1
        assert job.totals.calls == 1


def test_long_conversations_are_stored_shortened() -> None:
    recorder, kept = ExchangeRecorder(), 0
    for number in range(300):
        content = f"{number} {'x' * (MAX_TEXT - 100)}"
        (text,) = recorder.new_messages({"messages": [{"role": "user", "content": content}]})
        kept += len(text)
    assert kept < MAX_STORED + 300 * 1_000
    assert text.startswith('{"content": "299 ')
    assert "more characters" in text


@pytest.mark.parametrize("length", [100 * 1024**2, 10**18])
async def test_a_request_declared_too_large_is_not_read(e2e_server: ParallelJobs, length: int) -> None:
    async with e2e_server.job(Provider(short)) as job:
        status, told = await heard(*await job.send(b"{", length=length))
        assert (status, "at most" in told) == (413, True)
        assert job.totals == NOTHING


async def test_a_hundred_megabytes_in_pieces_are_not_taken(e2e_server: ParallelJobs) -> None:
    """It says nothing of its size: what is kept of it is no more than a request may have."""
    async with e2e_server.job(Provider(short), limits=GatewayLimits(body=4 * 1024**2)) as job:
        _, writer = await asyncio.open_unix_connection(job.socket)
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {job.token}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        sent, piece = 0, b"100000\r\n" + b" " * 1024**2 + b"\r\n"
        try:
            while sent < 100:
                writer.write(piece)
                await writer.drain()
                sent += 1
        except ConnectionError:
            pass
        assert sent < 16, "whoever goes on sending is hung up upon"
        writer.close()
        assert job.totals == NOTHING


@pytest.mark.usefixtures("many_files")
async def test_a_thousand_parallel_calls_are_limited(e2e_server: ParallelJobs) -> None:
    gate = Gate()
    provider = Provider(short, before=gate.hold)
    async with e2e_server.job(provider) as job:
        most = GatewayLimits().at_once + GatewayLimits().waiting
        calls = [asyncio.ensure_future(job.ask()) for _ in range(1_000)]
        await until(lambda: sum(call.done() for call in calls) == 1_000 - most)
        await gate.reached(GatewayLimits().at_once)
        assert gate.here == provider.asked == GatewayLimits().at_once
        assert (job.totals.pending, job.totals.calls) == (GatewayLimits().at_once, GatewayLimits().at_once)
        gate.open()
        statuses = [status for status, _ in await asyncio.gather(*calls)]
        assert set(statuses) == {200, 429, HUNG_UP}
        assert statuses.count(HUNG_UP) == 1_000 - MAX_CONNECTIONS
        assert statuses.count(200) == provider.asked == most
        totals = job.totals
        assert (totals.calls, totals.pending, totals.lost, totals.estimated) == (most, 0, 0, 0)
        assert (totals.prompt_tokens, totals.completion_tokens) == (most * 120, most * 30)
        assert totals.cost == most * COST


async def test_counting_takes_a_place_and_holds_up_no_other_call(e2e_server: ParallelJobs) -> None:
    path = "/v1/messages/count_tokens"
    async with e2e_server.job(Provider(short), limits=GatewayLimits(at_once=1, waiting=0)) as job:
        large = asyncio.ensure_future(heard(*await job.send(b" " * 4_000_000, path)))
        statuses: set[int] = set()
        while not large.done():
            statuses.add((await job.ask(path))[0])
        assert statuses == {200, 429}
        assert (await large)[0] == 200


def test_counted_texts_are_not_kept() -> None:
    counted = request(max_tokens=7).decode()
    references = sys.getrefcount(counted)
    assert count_text(INFO.name, counted) > 10
    assert sys.getrefcount(counted) == references


async def test_a_stream_ends_where_the_money_does(e2e_server: ParallelJobs) -> None:
    """The answer was let be as long as there is money for, and not a token longer."""

    def to_the_limit(limit: int) -> Sequence[StreamEvent]:
        usage = {"prompt_tokens": prompt, "completion_tokens": limit}
        return *(text(" more") for _ in range(limit)), *end("length", usage)

    prompt = count_text(INFO.name, json.dumps(json.loads(request(max_tokens=1_000))))
    cap = 500 * 10 + prompt * 2 + 9
    provider = Provider(to_the_limit)
    async with e2e_server.job(provider, cap) as job:
        status, told = await job.ask(max_tokens=1_000)
        assert (status, told.count(" more"), told.rstrip().endswith("[DONE]\n\n\r\n0")) == (200, 500, True)
        assert (job.totals.cost, job.ledger.remaining()) == (cap - 9, 9)
        assert (await job.ask())[0] == 402
        assert "budget" in job.gateway.cut_short
        assert (provider.asked, job.totals.pending, job.totals.calls) == (1, 0, 1)


async def test_a_provider_that_writes_past_its_limit_is_cut_off(e2e_server: ParallelJobs) -> None:
    provider = Provider(lambda limit: [text("x" * 1_000) for _ in range(100)])
    async with e2e_server.job(provider, 5_000) as job:
        status, told = await job.ask(max_tokens=300)
        assert status == 200
        assert "wrote more than it was let" in told
        heard_of = "x" * 1_000 * 15  # 300 tokens of 16 characters, and 10,000
        written = count_text(INFO.name, heard_of)
        prompt = count_text(INFO.name, json.dumps(json.loads(request(max_tokens=300))))
        totals = job.totals
        assert (totals.prompt_tokens, totals.completion_tokens) == (prompt, written)
        assert (totals.cost, totals.estimated, totals.pending) == (prompt * 2 + written * 10, 1, 0)
        assert provider.closed == 1


async def test_spending_by_other_calls_does_not_end_a_stream(e2e_server: ParallelJobs) -> None:
    """What it may cost was set aside for it; who comes then waits for it, and is refused when it has ended."""
    gate = Gate()
    provider = Provider(short, after=gate.hold)
    async with e2e_server.job(provider, 4_400) as job:
        first = asyncio.ensure_future(job.ask())
        await gate.reached(1)
        others = [asyncio.ensure_future(job.ask(max_tokens=380)) for _ in range(9)]
        assert job.totals.pending == 1
        gate.open()
        assert (await first)[0] == 200
        statuses = [status for status, _ in await asyncio.gather(*others)]
        assert set(statuses) == {200, 402}
        totals = job.totals
        assert totals.calls == 1 + statuses.count(200) == provider.asked
        assert (totals.cost, totals.pending) == (totals.calls * COST, 0)
        assert job.ledger.remaining() < 256 * 10 + totals.prompt_tokens


async def test_a_killed_agent_is_charged_for_the_answer_it_received(e2e_server: ParallelJobs) -> None:
    """With all its calls: those that stream, those that have heard nothing, and those that wait for a place."""
    gate = Gate()
    provider = Provider(lambda limit: [text("I look around, and")], after=gate.hold)
    async with e2e_server.job(provider, limits=GatewayLimits(at_once=3, waiting=4)) as job:
        sent = [await job.send(request()) for _ in range(7)]
        await gate.reached(3)
        for _, writer in sent:
            writer.transport.abort()
        await until(lambda: provider.closed == 3 and not job.totals.pending)
        prompt = count_text(INFO.name, json.dumps(json.loads(request())))
        written = count_text(INFO.name, "I look around, and")
        totals = job.totals
        assert (totals.calls, totals.estimated, provider.asked) == (3, 3, 3)
        assert totals.cost == 3 * (prompt * 2 + written * 10)
        provider.said, provider.after = short, _at_once
        assert (await job.ask())[0] == 200, "its places are free again"
    assert job.totals.cost == totals.cost + COST


async def test_everything_open_ends_with_the_job(e2e_server: ParallelJobs) -> None:
    gate = Gate()
    provider = Provider(lambda limit: [text("I look around, and")], after=gate.hold)
    async with e2e_server.job(provider) as job:
        sent = [await job.send(request()) for _ in range(20)]
        await gate.reached(8)
    assert not job.socket.exists()
    assert provider.asked == provider.closed == 8
    assert (job.totals.calls, job.totals.estimated, job.totals.pending) == (8, 8, 0)
    for _, writer in sent:
        writer.close()
