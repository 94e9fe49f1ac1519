"""An outside agent's only way out: three protocols, one model, one budget, over a real socket and the real LiteLLM."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.external.exchange import CallBudget, Exchange, RequestRefused
from app.agent.external.gateway import Gateway, GatewayLimits, RequestSlots, serving
from app.llm.base import WireProtocol
from app.llm.errors import ModelError
from app.llm.litellm import LiteLLMRawCall, arguments_of
from app.llm.prices import Price
from tests.support.memory_ledger import MemoryLedger
from tests.support.openai_endpoint import OpenAIEndpoint, Reply, answer, cut, error, stall

TOKEN = "job-token-of-this-job"
KEY = "sk-the-real-key-of-the-host"
PRICE = Price(input=2.0, output=10.0, cached=0.2, context_window=60_000, max_output=4_000)
CALL = ("call_1", "bash", '{"command": "ls"}')
PATHS: dict[WireProtocol, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
BODIES: dict[WireProtocol, dict[str, Any]] = {
    "chat": {
        "model": "agent-fix",
        "messages": [{"role": "user", "content": "fix it"}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": PARAMETERS}}],
        "temperature": 0.25,
    },
    "responses": {
        "model": "agent-fix",
        "input": [{"role": "user", "content": "fix it"}],
        "instructions": "be brief",
        "tools": [{"type": "function", "name": "bash", "parameters": PARAMETERS}],
        "temperature": 0.25,
    },
    "messages": {
        "model": "agent-fix",
        "max_tokens": 700,
        "system": "be brief",
        "messages": [{"role": "user", "content": "fix it"}],
        "tools": [{"name": "bash", "description": "a shell", "input_schema": PARAMETERS}],
        "temperature": 0.25,
    },
}
WIRES: tuple[WireProtocol, ...] = ("chat", "responses", "messages")


class GatewayHarness:
    """A gateway before a scripted endpoint, and a client on its socket."""

    def __init__(self, endpoint: OpenAIEndpoint, client: httpx.AsyncClient, gateway: Gateway) -> None:
        self.endpoint = endpoint
        self.client = client
        self.gateway = gateway

    @property
    def ledger(self) -> Any:
        return self.gateway.account.ledger

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self.gateway.recorder.exchanges

    async def ask(self, wire: WireProtocol, *, token: str = TOKEN, **fields: Any) -> httpx.Response:
        headers = {"x-api-key": token} if wire == "messages" else {"authorization": f"Bearer {token}"}
        return await self.client.post(PATHS[wire], json=BODIES[wire] | fields, headers=headers)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint() as made:
        yield made


@asynccontextmanager
async def standing(
    endpoint: OpenAIEndpoint, place: Path, *, cap: int = 1_000_000, limits: GatewayLimits | None = None
) -> AsyncIterator[GatewayHarness]:
    environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": KEY}
    passage = LiteLLMRawCall("openai/priced", environment, PRICE)
    account = CallBudget(MemoryLedger(cap), passage.info)
    gateway = Gateway(passage, account, TOKEN, frozenset({"agent-fix"}), limits=limits or GatewayLimits())
    socket = place / "gateway.sock"
    async with serving(gateway, socket):
        transport = httpx.AsyncHTTPTransport(uds=str(socket), retries=0)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=30) as client:
            yield GatewayHarness(endpoint, client, gateway)
    assert not socket.exists()


@pytest.fixture
async def case_runner(endpoint: OpenAIEndpoint, tmp_path: Path) -> AsyncIterator[GatewayHarness]:
    async with standing(endpoint, tmp_path) as made:
        yield made


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # what is waited for is on the other side of a socket
            await asyncio.sleep(0.01)


async def asked(endpoint: OpenAIEndpoint) -> None:
    await until(lambda: bool(endpoint.requests))


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", WIRES)
async def test_each_protocol_reaches_the_model_and_is_booked(
    case_runner: GatewayHarness, wire: WireProtocol, *, stream: bool
) -> None:
    reply = answer("I look around.", tools=[CALL]) if stream else whole("I look around.", CALL)
    case_runner.endpoint.script(reply)
    response = await case_runner.ask(wire, stream=stream)
    assert response.status_code == 200, response.text
    assert "I look" in response.text
    assert "bash" in response.text
    (request,) = case_runner.endpoint.requests
    assert request.headers["authorization"] == f"Bearer {KEY}", "the real key is put in here, and only here"
    assert request.body["model"] == "priced"
    assert request.body["temperature"] == 0.25
    assert request.body["tools"][0]["function"]["name"] == "bash"
    (exchange,) = case_runner.exchanges
    assert exchange.text == "I look around."
    assert [(call.name, json.loads(call.arguments)) for call in exchange.calls] == [("bash", {"command": "ls"})]
    usage = exchange.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (120, 64, 30)
    assert (
        case_runner.ledger.spent() == usage.cost == 425
    )  # 56 fresh at 2, 64 cached at 0.2, 30 written at 10: micro-dollars
    assert KEY not in response.text


def whole(text: str, call: tuple[str, str, str]) -> Reply:
    """The same answer, not streamed."""
    ident, name, arguments = call
    calls = [{"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}]
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "priced",
        "choices": [choice],
        "usage": usage,
    }
    return Reply(headers={"content-type": "application/json"}, body=json.dumps(body).encode())


@pytest.mark.parametrize("wire", WIRES)
async def test_half_a_surrogate_pair_can_be_recorded(case_runner: GatewayHarness, wire: WireProtocol) -> None:
    halves, whole = "\ud83d\ude00 \ud83d", "😀 \ufffd"
    case_runner.endpoint.script(answer(halves, tools=[("c", "bash", json.dumps(halves, ensure_ascii=False))], piece=1))
    field = "input" if wire == "responses" else "messages"
    body = BODIES[wire] | {"stream": True, field: [{"role": "user", "content": halves}]}
    headers = {"authorization": f"Bearer {TOKEN}"}
    response = await case_runner.client.post(PATHS[wire], content=json.dumps(body), headers=headers)
    assert response.status_code == 200, response.text
    (exchange,) = case_runner.exchanges
    assert Exchange.model_validate_json(exchange.model_dump_json()) == exchange
    assert whole in exchange.new[-1]
    if wire == "chat":
        assert (exchange.text, exchange.calls[0].arguments) == (whole, f'"{whole}"')


async def test_a_chat_client_gets_the_usage_only_where_it_asked_for_it(case_runner: GatewayHarness) -> None:
    case_runner.endpoint.script(answer("a"), answer("b"))
    silent = await case_runner.ask("chat", stream=True)
    assert all(event["choices"] for event in events(silent))
    assert silent.text.endswith("data: [DONE]\n\n")
    asked = await case_runner.ask("chat", stream=True, stream_options={"include_usage": True})
    assert events(asked)[-1]["usage"]["prompt_tokens"] == 120


@pytest.mark.parametrize("wire", WIRES)
async def test_another_jobs_token_is_refused(case_runner: GatewayHarness, wire: WireProtocol) -> None:
    case_runner.endpoint.script()
    for token in ("none", "job-token-of-another-job", KEY, "ключ"):
        headers = [(b"authorization", f"Bearer {token}".encode()), (b"x-api-key", token.encode())]
        response = await case_runner.client.post(PATHS[wire], json=BODIES[wire], headers=headers)
        assert response.status_code == 401
        assert "not this job's token" in response.text
    assert case_runner.endpoint.requests == []
    assert (await case_runner.client.get("/v1/models")).status_code == 401


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("model", ["gpt-5", "openai/priced", "", None, 7, ["agent-fix"]])
async def test_another_model_is_refused(case_runner: GatewayHarness, wire: WireProtocol, model: Any) -> None:
    case_runner.endpoint.script()
    response = await case_runner.ask(wire, model=model)
    assert response.status_code == 404
    assert "agent-fix" in response.text
    assert case_runner.endpoint.requests == []
    assert case_runner.exchanges[-1].refused == "model_not_found"


URL = "https://a.example/?q=secret"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
GEMINI_PART = json.dumps({"fileData": {"fileUri": URL}})  # LiteLLM makes a part of it, for Gemini
FETCHED_PARTS: tuple[dict[str, Any], ...] = (
    IMAGE,
    {"type": "image_url", "image_url": URL},
    {"type": "image_url", "image_url": {"url": URL, "type": "text"}},
    {"type": "image_url", "image_url": {"url": "HTTP://169.254.169.254/"}},
    {"type": "image_url", "image_url": {"url": "gs://bucket/secret"}},
    {"type": "input_image", "image_url": "http://169.254.169.254/"},
    {"type": "image", "source": {"type": "url", "url": URL}},
    {"type": "file", "file": {"file_data": URL}},
    {"type": "file", "file": URL},
    {"type": "input_file", "file_data": URL},
    {"type": "document_url", "document_url": URL},
    {"type": "video_url", "video_url": {"url": URL}},
    {"type": "video", "video": [URL, URL]},
    {"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}},
    {"file_data": {"file_uri": URL}},
    {"fileData": {"fileUri": URL}},
)
WAYS_OUT: tuple[tuple[WireProtocol, dict[str, Any]], ...] = (
    ("responses", {"tools": [{"type": "web_search"}]}),
    ("responses", {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}]}),
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://elsewhere.example"}]}),
    ("responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
    ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("messages", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}),
    ("messages", {"mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}),
    ("chat", {"tools": [{"type": "web_search_preview"}]}),
    ("chat", {"tools": "bash"}),
    ("chat", {"tools": [{"google_search": {}}]}),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f"}, "googleSearch": {}}]}),
    ("chat", {"tools": [{"type": "namespace", "tools": []}]}),
    ("responses", {"tools": [{"urlContext": {}}]}),
    ("responses", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20250825"]}]}),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}),
    (
        "messages",
        {"system": [{"type": "text", "text": "long", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    ),
    ("responses", {"previous_response_id": "resp_of_another_job"}),
    ("responses", {"background": True}),
    ("responses", {"store": True}),
    ("chat", {"n": 50}),
    ("chat", {"max_tokens": -1}),
    ("chat", {"max_tokens": "all"}),
    ("responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-of-account"}]}]}),
    ("responses", {"instructions": [{"type": "input_image", "image_url": URL}]}),
    ("chat", {"messages": [{"role": "user", "type": "tool_use", "content": [IMAGE]}]}),
    ("responses", {"input": [{"role": "user", "type": "function_call", "content": [IMAGE]}]}),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [IMAGE]}]}]}),
    ("chat", {"messages": [{"role": "assistant", "content": "", "images": [IMAGE]}]}),
    ("chat", {"messages": [{"role": "assistant", "thinking_blocks": [{"type": "thinking", "thinking": GEMINI_PART}]}]}),
    *(("chat", {"messages": [{"role": "user", "content": [part]}]}) for part in FETCHED_PARTS),
)


@pytest.mark.parametrize(("wire", "fields"), WAYS_OUT)
async def test_the_provider_opens_no_route_out(
    case_runner: GatewayHarness, wire: WireProtocol, fields: dict[str, Any]
) -> None:
    """Its tools, its files and its fetching of addresses would be a network that the sandbox does not have."""
    case_runner.endpoint.script()
    response = await case_runner.ask(wire, **fields)
    assert response.status_code == 400, response.text
    assert case_runner.endpoint.requests == []
    assert case_runner.ledger.spent() == 0


async def test_litellm_itself_fetches_nothing(endpoint: OpenAIEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": KEY}
    part = {"type": "file", "file": {"file_id": f"{endpoint.url}/paper.pdf"}}
    with pytest.raises(ModelError):
        await LiteLLMRawCall("openai/priced", environment, PRICE).complete(
            "chat", {"messages": [{"role": "user", "content": [part]}]}, 100
        )
    assert "download is disabled" in caplog.text


OTHER_WAYS: Mapping[str, Any] = {
    "api_base": "http://127.0.0.1:1/v1",
    "base_url": "http://127.0.0.1:1/v1",
    "api_key": "mine",
    "custom_llm_provider": "ollama",
    "extra_headers": {"host": "elsewhere"},
    "mock_response": "free",
    "fallbacks": ["openai/other"],
    "vertex_credentials": "/etc/passwd",
    "extra_body": {"model": "dearer"},
    "models": ["dearer"],
    "route": "fallback",
    "provider": {"only": ["dearer"]},
    "plugins": [{"id": "web"}],
    "web_search_options": {},
    "search_parameters": {"mode": "on"},
    "enable_search": True,
    "generationConfig": {"maxOutputTokens": 100_000},
    "safety_settings": [],
    "functions": [{"google_search": {}}],
    "speed": "fast",
    "service_tier": "priority",
    "modalities": ["text", "audio"],
    "prompt_cache_retention": "24h",
    "n": True,
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("field", sorted(OTHER_WAYS))
async def test_no_field_leads_elsewhere_or_to_another_price(
    case_runner: GatewayHarness, wire: WireProtocol, field: str
) -> None:
    """An address or a key in a request must not turn where our key goes; nor do some providers' own fields."""
    case_runner.endpoint.script()
    response = await case_runner.ask(wire, stream=True, **{field: OTHER_WAYS[field]})
    assert response.status_code == 400, response.text
    told = response.json()
    assert field in told["error"]["message"]
    assert told["type"] == "error" if wire == "messages" else told["error"]["code"] == "not_offered"
    assert case_runner.endpoint.requests == []
    assert case_runner.ledger.totals().calls == 0


SENT: Mapping[WireProtocol, Mapping[str, Any]] = {
    "chat": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}],
            },
            {"role": "user", "content": [{"type": "text", "text": URL}]},
        ],
        "prompt_cache_key": "k",
        "reasoning_effort": "high",
        "tool_choice": "auto",
        "max_tokens": 900,
        "stream_options": {"include_usage": True},
        "user": None,
        "web_search_options": None,
        "service_tier": "auto",
    },
    "responses": {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"session_id": "s"},
    },
    "messages": {
        "messages": [
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"url": URL}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": URL}]},
        ],
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    },
}
"""What the six agents send besides."""


@pytest.mark.parametrize("wire", WIRES)
async def test_requests_that_real_agents_send_are_accepted(case_runner: GatewayHarness, wire: WireProtocol) -> None:
    case_runner.endpoint.script(answer("done"))
    response = await case_runner.ask(wire, stream=True, **SENT[wire])
    assert response.status_code == 200, response.text
    (request,) = case_runner.endpoint.requests
    assert request.body.get("prompt_cache_key") == SENT[wire].get("prompt_cache_key")
    assert request.body["model"] == "priced"


def test_unknown_request_fields_are_dropped() -> None:
    body = {"messages": [], "prompt_cache_key": "k", "model": "x", "stream": True, "plugins": ["web"], "user": None}
    arguments = arguments_of("chat", body, 9)
    assert arguments == {"messages": [], "max_tokens": 9, "extra_body": {"prompt_cache_key": "k"}}


async def test_an_answer_is_never_longer_than_the_money(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    async with standing(endpoint, tmp_path, cap=6_000) as case_runner:
        endpoint.script(answer("short"))
        assert (await case_runner.ask("chat", stream=True, max_tokens=4_000)).status_code == 200
        assert 256 <= endpoint.requests[0].body["max_tokens"] < 600


async def test_an_agent_at_its_spending_limit_is_told_to_stop(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    async with standing(endpoint, tmp_path, cap=3_000) as case_runner:
        endpoint.script(answer("a" * 400, usage={"prompt_tokens": 400, "completion_tokens": 90, "total_tokens": 490}))
        assert (await case_runner.ask("messages", stream=True)).status_code == 200
        response = await case_runner.ask("messages", stream=True)
        assert response.status_code == 402, "clients do not repeat this one"
        assert response.json()["error"]["type"] == "billing_error"
        assert "budget" in case_runner.gateway.cut_short
        assert case_runner.ledger.spent() == 1_700
        assert case_runner.ledger.totals().pending == 0


async def test_an_endless_answer_is_cut(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    """The limit was sent; a provider that does not keep it is not let to spend on."""
    async with standing(endpoint, tmp_path) as case_runner:
        endpoint.script(answer("x" * 60_000, piece=500))
        response = await case_runner.ask("chat", stream=True, max_tokens=300)
        assert "wrote more than it was let" in events(response)[-1]["error"]["message"]
        assert len(response.text) < 60_000


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_is_cut_says_so_and_is_booked(case_runner: GatewayHarness, wire: WireProtocol) -> None:
    case_runner.endpoint.script(cut(answer("I was about to say something long"), 3))
    response = await case_runner.ask(wire, stream=True)
    assert response.status_code == 200
    assert "error" in response.text.splitlines()[-2]
    assert "[DONE]" not in response.text
    (exchange,) = case_runner.exchanges
    assert exchange.usage.estimated
    assert case_runner.ledger.spent() == exchange.usage.cost > 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("status", "seen"), [(429, 429), (500, 503), (401, 400), (400, 400)])
async def test_faults_of_the_provider_keep_their_meaning(
    case_runner: GatewayHarness, wire: WireProtocol, status: int, seen: int
) -> None:
    headers = {"retry-after": "7"} if status == 429 else {}
    case_runner.endpoint.script(error(status, f"no {KEY}", headers=headers))
    response = await case_runner.ask(wire, stream=True)
    assert response.status_code == seen, response.text
    assert response.headers.get("retry-after") == ("7" if status == 429 else None)
    assert KEY not in response.text
    assert len(case_runner.endpoint.requests) == 1, "it is the agent's client that repeats"


async def test_a_hundred_megabytes_are_refused_unread(case_runner: GatewayHarness) -> None:
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024**2

    headers = {"authorization": f"Bearer {TOKEN}"}
    said = headers | {"content-length": str(100 * 1024**2)}
    declared = await case_runner.client.post(PATHS["chat"], content=flood(), headers=said)
    assert declared.status_code == 413
    streamed = await case_runner.client.post(PATHS["chat"], content=flood(), headers=headers)
    assert streamed.status_code == 413
    assert case_runner.ledger.totals().calls == 0


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff\xfe"])
async def test_a_malformed_request_is_refused(case_runner: GatewayHarness, raw: bytes) -> None:
    response = await case_runner.client.post(PATHS["chat"], content=raw, headers={"authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 400


async def test_hundreds_of_calls_at_once_are_sorted_out(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    """Some wait, the others are sent away, and the ledger is right to the micro-dollar."""
    async with standing(endpoint, tmp_path, limits=GatewayLimits(at_once=2, waiting=18)) as case_runner:
        endpoint.script(*[answer("ok")] * 120)
        transport = httpx.AsyncHTTPTransport(
            uds=str(tmp_path / "gateway.sock"), limits=httpx.Limits(max_connections=1_000)
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:
            case_runner.client = client
            responses = await asyncio.gather(*(case_runner.ask("chat", stream=True) for _ in range(120)))
        codes = [response.status_code for response in responses]
        assert set(codes) == {200, 429}
        assert 20 <= codes.count(200) == len(endpoint.requests)
        assert case_runner.ledger.spent() == 425 * codes.count(200)
        assert case_runner.ledger.totals().pending == 0


async def test_a_cancelled_waiter_frees_its_slot() -> None:
    places = RequestSlots(GatewayLimits(at_once=1, waiting=1))

    async def take() -> None:
        async with places.taken():
            raise AssertionError("the only place is taken")

    async with places.taken():
        for _ in range(3):
            waits = asyncio.ensure_future(take())
            await asyncio.sleep(0)
            with pytest.raises(RequestRefused) as refused:
                await take()
            assert refused.value.reason == "too_many_calls"
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
    async with places.taken():
        pass


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_that_is_killed_pays_for_what_it_heard(case_runner: GatewayHarness, *, stream: bool) -> None:
    case_runner.endpoint.script(stall(answer("I think about this for a long time"), 3))

    async def begin() -> None:
        async with case_runner.client.stream(
            "POST",
            PATHS["chat"],
            json=BODIES["chat"] | {"stream": stream},
            headers={"authorization": f"Bearer {TOKEN}"},
        ) as response:
            async for _ in response.aiter_bytes():
                heard.set()

    heard = asyncio.Event()
    call = asyncio.ensure_future(begin())
    if stream:
        await heard.wait()
    else:
        await asked(case_runner.endpoint)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await until(lambda: case_runner.ledger.totals().calls > case_runner.ledger.totals().pending)
    assert case_runner.ledger.totals().estimated == 1
    assert case_runner.ledger.spent() > 0


async def test_with_the_gateway_ends_what_is_under_way(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    async with standing(endpoint, tmp_path) as case_runner:
        endpoint.script(stall(answer("never said"), 2))
        call = asyncio.ensure_future(case_runner.ask("chat", stream=True))
        await asked(endpoint)
    await asyncio.gather(call, return_exceptions=True)
    assert case_runner.ledger.totals().pending == 0


async def test_signals_stay_with_those_who_listen(endpoint: OpenAIEndpoint, tmp_path: Path) -> None:
    """Ctrl-C and a worker's stop are the job's, and not the gateway's to take."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with standing(endpoint, tmp_path) as case_runner:
        assert [signal.getsignal(number) for number in numbers] == before
        loop.add_signal_handler(signal.SIGTERM, told.set)
        try:
            signal.raise_signal(signal.SIGTERM)
            await told.wait()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
        case_runner.endpoint.script(answer("still here"))
        assert (await case_runner.ask("chat", stream=True)).status_code == 200
    assert [signal.getsignal(number) for number in numbers] == before


async def test_only_what_is_new_is_recorded_of_a_conversation(case_runner: GatewayHarness) -> None:
    case_runner.endpoint.script(answer("one"), answer("two"))
    first = [{"role": "user", "content": "fix it"}]
    second = [*first, {"role": "assistant", "content": "one"}, {"role": "user", "content": "go on"}]
    for messages in (first, second):
        assert (await case_runner.ask("chat", messages=messages, stream=True)).status_code == 200
    assert [len(exchange.new) for exchange in case_runner.exchanges] == [1, 2]
    assert "go on" in case_runner.exchanges[1].new[-1]


async def test_models_and_counts_are_answered_without_a_call(case_runner: GatewayHarness) -> None:
    case_runner.endpoint.script()
    headers = {"authorization": f"Bearer {TOKEN}"}
    listed = (await case_runner.client.get("/v1/models", headers=headers)).json()
    assert [entry["id"] for entry in listed["data"]] == ["agent-fix"]
    counted = await case_runner.client.post("/v1/messages/count_tokens", json=BODIES["messages"], headers=headers)
    assert counted.json()["input_tokens"] > 20
    assert case_runner.endpoint.requests == []
