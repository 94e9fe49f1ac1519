"""LiteLLM behind our port, against a real endpoint on the loopback that plays every fault it can have."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app.llm.base import Message, ModelAnswer, ModelRequest, ToolCall, ToolSpec
from app.llm.errors import ModelError
from app.llm.litellm import LiteLLMModel, ModelTimeouts
from app.llm.prices import Price
from app.llm.providers import route
from tests.support.openai_endpoint import OpenAIEndpoint, Reply, answer, cut, error, stall

pytestmark = pytest.mark.xdist_group("litellm")  # one process imports LiteLLM, which takes seconds

KEY = "sk-canary-0123456789"
BASH = ToolSpec(name="bash", description="run", parameters={"type": "object", "properties": {}})
ASK = ModelRequest(messages=(Message(role="user", content="hi"),), tools=(BASH,), max_tokens=100)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "default": "", "title": "A"}}}
STRUCTURED = ModelRequest(messages=ASK.messages, schema_name="plan", response_schema=SCHEMA)
WHOLE = answer("one two three", tools=[("c1", "bash", '{"command": "ls"}')])


@pytest.fixture
def endpoint() -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint() as endpoint:
        yield endpoint


def model(endpoint: OpenAIEndpoint, name: str = "openai/local", **more: Any) -> LiteLLMModel:
    environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": KEY}
    return LiteLLMModel(name, environment=environment, **more)


async def failure(model: LiteLLMModel, request: ModelRequest = ASK) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request)
    assert KEY not in str(caught.value) + caught.value.hint
    return caught.value


async def test_text_streams_as_it_comes(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("one two three"))
    heard: list[str] = []
    got = await model(endpoint).complete(ASK, on_text=heard.append)
    assert heard == ["one two", " three"]
    assert (got.content, got.finish_reason, got.model) == ("one two three", "stop", "openai/local")
    assert (got.usage.prompt_tokens, got.usage.cached_tokens, got.usage.completion_tokens) == (120, 64, 30)
    assert not got.usage.estimated
    body = endpoint.requests[0].body
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_tokens"] == 100
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_headers_for_a_gateway_are_sent_to_it_alone(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("one"))
    headers = {"OPENAI_CUSTOM_HEADERS": "X-Team: payments\nX-Url: https://a.example/b\n\nno header\n"}
    environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": KEY, **headers}
    await LiteLLMModel("openai/local", environment=environment).complete(ASK)
    sent = endpoint.requests[0].headers
    assert (sent["x-team"], sent["x-url"]) == ("payments", "https://a.example/b")
    assert sent["authorization"] == f"Bearer {KEY}"
    assert "extra_headers" not in route("openai/gpt-5", {"OPENAI_API_KEY": KEY, **headers}).connection
    assert route("anthropic/claude-x", {**environment, "ANTHROPIC_API_BASE": endpoint.url}).headers == ()


async def test_tool_calls_are_put_together(endpoint: OpenAIEndpoint) -> None:
    calls = [("c1", "bash", '{"command": "echo \\"ä\\""}'), ("c2", "edit", "not json {")]
    endpoint.script(answer("so", tools=calls, piece=3))
    got = await model(endpoint).complete(ASK)
    assert [(call.id, call.name, call.arguments) for call in got.tool_calls] == calls
    assert got.finish_reason == "tool_calls"


async def test_half_a_surrogate_pair_can_be_stored(endpoint: OpenAIEndpoint) -> None:
    halves = "\ud83d\ude00 \ud83d"
    endpoint.script(answer(halves, tools=[(f"c{halves}", f"b{halves}", f'"{halves}"')], piece=1))
    heard: list[str] = []
    got = await model(endpoint).complete(ASK, on_text=heard.append)
    assert ModelAnswer.model_validate_json(got.model_dump_json()) == got
    (call,) = got.tool_calls
    whole = "😀 \ufffd"
    assert (got.content, call.id, call.name, call.arguments) == (whole, f"c{whole}", f"b{whole}", f'"{whole}"')
    assert "".join(heard).encode()


async def test_calls_that_all_have_index_0_stay_apart(endpoint: OpenAIEndpoint) -> None:
    whole = answer("", tools=[("c1", "bash", "{}"), ("c2", "bash", "{}")], piece=99)
    events = [event for event in whole.events if isinstance(event, dict)]
    for event in events:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                call["index"] = 0
    endpoint.script(Reply(events=(*events, "[DONE]")))
    got = await model(endpoint).complete(ASK)
    assert [(call.id, call.arguments) for call in got.tool_calls] == [("c1", "{}"), ("c2", "{}")]


async def test_the_history_goes_back_byte_for_byte(endpoint: OpenAIEndpoint) -> None:
    raw = '{"command" :  "printf \'\\u00e4\'",\n "x": 1.0}'
    history = (
        Message(role="system", content="be brief"),
        Message(role="user", content="go"),
        Message(role="assistant", tool_calls=(ToolCall(id="c1", name="bash", arguments=raw),)),
        Message(role="tool", tool_call_id="c1", content="line\n\x1b[0m\ttab ä"),
        Message(role="assistant", tool_calls=(ToolCall(id="c2", name="bash", arguments="{broken"),)),
        Message(role="tool", tool_call_id="c2", content="that was no JSON"),
        Message(role="assistant", content=""),
        Message(role="user", content="name: \udcff"),
    )
    endpoint.script(answer("ok"), answer("ok"))
    asked = model(endpoint)
    for _ in range(2):
        await asked.complete(ModelRequest(messages=history, tools=(BASH,)))
    sent = endpoint.requests[0].body["messages"]
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == raw
    assert sent[3] == {"role": "tool", "content": "line\n\x1b[0m\ttab ä", "tool_call_id": "c1"}
    assert sent[4]["tool_calls"][0]["function"]["arguments"] == '{"malformed": "{broken"}'
    assert sent[6]["content"]
    assert sent[7]["content"] == "name: \ufffd"
    assert endpoint.requests[1].body == endpoint.requests[0].body


@pytest.mark.parametrize("after", range(len(WHOLE.events) - 2))
async def test_a_stream_cut_anywhere_before_its_end_is_not_an_answer(endpoint: OpenAIEndpoint, after: int) -> None:
    endpoint.script(cut(WHOLE, after))
    found = await failure(model(endpoint))
    assert (found.kind, found.reason) == ("retry", "stream_cut")
    assert found.usage is not None
    assert found.usage.estimated
    assert found.usage.prompt_tokens > 0
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("after", range(1, len(WHOLE.events) - 3))
async def test_a_stream_that_ends_politely_but_early_is_not_an_answer(endpoint: OpenAIEndpoint, after: int) -> None:
    endpoint.script(Reply(events=(*WHOLE.events[:after], "[DONE]")))
    assert (await failure(model(endpoint))).reason in ("stream_cut", "bad_response")


async def test_missing_usage_is_estimated(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("one two three", usage=None))
    got = await model(endpoint, price=Price(input=10, output=20)).complete(ASK)
    assert got.usage.estimated
    assert got.usage.prompt_tokens > 0
    assert got.usage.cost == 10 * got.usage.prompt_tokens + 20 * got.usage.completion_tokens


async def test_torn_arguments_without_usage_are_a_cut(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("", tools=[("c1", "bash", '{"command": "rm -r')], usage=None))
    assert (await failure(model(endpoint))).reason == "stream_cut"


async def test_an_answer_at_its_limit_is_an_answer(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("", tools=[("c1", "bash", '{"command": "ec')], finish="length"))
    got = await model(endpoint).complete(ASK)
    assert (got.finish_reason, got.tool_calls[0].arguments) == ("length", '{"command": "ec')


FAULTS = {
    "rate": (error(429, "slow down", headers={"retry-after": "7"}), "wait", "rate_limited"),
    "quota": (error(429, "You exceeded your current quota", code="insufficient_quota"), "give_up", "quota"),
    "credit": (error(400, "Your credit balance is too low"), "give_up", "quota"),
    "payment": (error(402, "Insufficient Balance"), "give_up", "quota"),
    "server": (error(500, "oops"), "retry", "server_error"),
    "gateway": (Reply(status=502, body=b"<html>bad gateway</html>"), "retry", "server_error"),
    "overloaded": (error(529, "Overloaded"), "retry", "server_error"),
    "back soon": (error(503, "overloaded", headers={"retry-after": "9"}), "wait", "overloaded"),
    "key": (error(401, f"Incorrect API key provided: {KEY}"), "give_up", "bad_key"),
    "forbidden": (error(403, "no access to this model"), "give_up", "bad_key"),
    "model": (error(404, "The model `local` does not exist", code="model_not_found"), "give_up", "unknown_model"),
    "request": (error(400, "messages.3: bad role"), "give_up", "bad_request"),
    "filter": (error(400, "The response was filtered", code="content_filter"), "give_up", "refused"),
    "policy": (error(400, "Invalid prompt: violates our usage policy"), "give_up", "refused"),
    "no tools": (error(400, "local does not support tools"), "give_up", "no_tools"),
    "too large": (error(413, "Request too large"), "shrink", "context_window"),
    "text": (Reply(body=b"hello there"), "retry", "bad_response"),
    "page": (Reply(body=b"<html>login</html>", headers={"content-type": "text/html"}), "retry", "bad_response"),
    "nothing": (Reply(body=b""), "retry", "bad_response"),
    "broken event": (Reply(events=(WHOLE.events[0], '{"broken')), "retry", "stream_cut"),
    "error event": (Reply(events=(WHOLE.events[0], {"error": {"message": "overloaded"}})), "retry", "stream_cut"),
    "hung up": (Reply(hang_up=True), "retry", "connection_lost"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_every_fault_has_its_kind_and_is_sent_once(endpoint: OpenAIEndpoint, name: str) -> None:
    reply, kind, reason = FAULTS[name]
    endpoint.script(reply)
    found = await failure(model(endpoint))
    assert (found.kind, found.reason) == (kind, reason)
    assert found.retry_after == float(reply.headers.get("retry-after", 0)) or found.retry_after is None
    assert (found.retry_after is None) == ("retry-after" not in reply.headers)
    assert len(found.message) < 400
    assert len(endpoint.requests) == 1


PHRASES = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "input length and `max_tokens` exceed context limit: 197 + 8192 > 200000",
    "The input token count (1198000) exceeds the maximum number of tokens allowed (1048576).",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size (exceed_context_size_error)",
    "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 20000",
]


@pytest.mark.parametrize("status", [400, 413, 429, 500])
@pytest.mark.parametrize("phrase", PHRASES)
async def test_an_overflow_is_known_by_its_words(endpoint: OpenAIEndpoint, status: int, phrase: str) -> None:
    endpoint.script(error(status, phrase))
    found = await failure(model(endpoint))
    assert (found.kind, found.reason) == ("shrink", "context_window")


GEMINI = "You exceeded your current quota, please check your plan and billing details.\nPlease retry in 21.4s."
GEMINI_METRIC = "* Quota exceeded for metric: generate_content_free_tier_requests, limit: "
GEMINI_QUOTA = '{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}'
BEDROCK = "Too many tokens, please wait before trying again."


@pytest.mark.parametrize(("text", "delay"), [(GEMINI, 21.4), (f"{GEMINI}\n{GEMINI_METRIC}0.5", 21.4), (BEDROCK, None)])
async def test_a_limit_per_minute_is_waited_for(endpoint: OpenAIEndpoint, text: str, delay: float | None) -> None:
    endpoint.script(error(429, text))
    found = await failure(model(endpoint))
    assert (found.kind, found.reason, found.retry_after) == ("wait", "rate_limited", delay)


@pytest.mark.parametrize("more", [f"{GEMINI_METRIC}0, model: a", f"{GEMINI_METRIC}50\n{GEMINI_QUOTA}"])
async def test_a_limit_per_day_and_one_of_nothing_are_not_waited_for(endpoint: OpenAIEndpoint, more: str) -> None:
    endpoint.script(error(429, f"{GEMINI}\n{more}"))
    found = await failure(model(endpoint))
    assert (found.kind, found.reason) == ("give_up", "quota")


async def test_an_empty_account_is_known_although_a_delay_is_named(endpoint: OpenAIEndpoint) -> None:
    text = "You exceeded your current quota"
    endpoint.script(error(429, text, code="insufficient_quota", headers={"retry-after": "7"}))
    assert (await failure(model(endpoint))).reason == "quota"


async def test_too_many_tokens_are_an_overflow_unless_it_is_a_limit_of_the_rate(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(error(400, "too many tokens: the prompt cannot exceed 4081 tokens, received 5000"))
    assert (await failure(model(endpoint))).kind == "shrink"


async def test_a_silent_endpoint_is_given_up_after_the_time_limit(endpoint: OpenAIEndpoint) -> None:
    asked = model(endpoint, timeouts=ModelTimeouts(first=0.3, between=0.3))
    for before in (0, 2):
        endpoint.script(stall(WHOLE, before))
        found = await failure(asked)
        assert (found.kind, found.reason) == ("retry", "timeout")
        assert found.usage is not None


async def test_a_cancelled_call_ends_at_once(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(stall(answer("one two three"), 2))
    heard = asyncio.Event()
    call = asyncio.create_task(model(endpoint).complete(ASK, on_text=lambda _: heard.set()))
    await heard.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_an_unreachable_endpoint_is_reported() -> None:
    asked = LiteLLMModel("local", environment={"OPENAI_API_BASE": "http://127.0.0.1:9/v1"})
    found = await failure(asked)
    assert (found.kind, found.reason) == ("retry", "unreachable")
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:9") as caught:
        await asked.check()
    assert (caught.value.kind, caught.value.reason) == ("give_up", "unreachable")


@pytest.mark.parametrize("path", ["/v1", "/v 1"])
async def test_an_endpoint_that_does_not_speak_http_is_reported(path: str) -> None:
    async def speak_smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(speak_smtp, "127.0.0.1", 0) as server:
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        with pytest.raises(ModelError) as caught:
            await LiteLLMModel("local", environment={"OPENAI_API_BASE": base}).check()
    assert (caught.value.kind, caught.value.reason) == ("give_up", "unreachable")


async def test_a_password_in_an_endpoints_address_is_sent_and_never_shown(endpoint: OpenAIEndpoint) -> None:
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": endpoint.url.replace("//", "//ada:pass%20word@")}
    asked = LiteLLMModel("local", environment=environment)
    endpoint.script(answer("ok"))
    await asked.complete(ASK)
    sent = endpoint.requests[0].headers["authorization"]
    endpoint.models = lambda headers: Reply(status=200 if headers["authorization"] == sent else 401, body=b"{}")
    await asked.check()
    closed = environment | {"OPENAI_API_BASE": "http://ada:pass%20word@127.0.0.1:9/v1"}
    with pytest.raises(ModelError, match=r"at http://127\.0\.0\.1:9/v1\.") as caught:
        await LiteLLMModel("local", environment=closed).check()
    assert caught.value.reason == "unreachable"


async def test_a_schema_is_asked_for_strictly(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer('{"a": "b"}'))
    got = await model(endpoint).complete(STRUCTURED)
    assert got.content == '{"a": "b"}'
    asked = endpoint.requests[0].body["response_format"]["json_schema"]
    assert (asked["name"], asked["strict"]) == ("plan", True)
    assert asked["schema"] == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }


async def test_refused_parameters_are_left_out_from_then_on(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(
        error(400, "Unsupported parameter: 'response_format' of type json_schema"),
        error(400, "response_format is not supported"),
        error(400, "unknown field: stream_options"),
        error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        answer('{"a": "b"}'),
        answer('{"a": "c"}'),
    )
    asked = model(endpoint)
    assert (await asked.complete(STRUCTURED)).content == '{"a": "b"}'
    assert (await asked.complete(STRUCTURED)).content == '{"a": "c"}'
    bodies = [received.body for received in endpoint.requests]
    assert bodies[1]["response_format"] == {"type": "json_object"}
    assert "response_format" not in bodies[2]
    assert "JSON schema" in bodies[2]["messages"][-1]["content"]
    assert "stream_options" not in bodies[3]
    assert bodies[5]["max_completion_tokens"] == STRUCTURED.max_tokens
    assert len(bodies) == 6


async def test_a_repeated_problem_ends_the_job(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(*[error(400, "bad schema")] * 9)
    assert (await failure(model(endpoint), STRUCTURED)).reason == "bad_request"
    assert len(endpoint.requests) == 3


async def test_prices(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("x"), answer("x"), answer("x"))
    listed = await model(endpoint, "openai/gpt-4o").complete(ASK)
    assert listed.usage.cost == 56 * 2.5 + 64 * 1.25 + 30 * 10
    own = await model(endpoint, price=Price(input=1, cached=0.5, output=2)).complete(ASK)
    assert own.usage.cost == 56 + 32 + 60
    unknown = model(endpoint)
    assert (await unknown.complete(ASK)).usage.cost == 0
    assert not unknown.info.priced
    assert (unknown.info.context_window, unknown.info.max_output) == (128_000, 8_192)


async def test_anthropic_gets_cache_points_and_its_usage_is_understood() -> None:
    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, **more}

    usage = {"input_tokens": 10, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": usage}
    block = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"command": "ls"}'}
    events = (
        event("message_start", message=start),
        event("content_block_start", index=0, content_block=block),
        event("content_block_delta", index=0, delta=delta),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 30}),
        event("message_stop"),
    )
    with OpenAIEndpoint([Reply(events=events), cut(Reply(events=events), 3)]) as endpoint:
        environment = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_API_BASE": endpoint.url.removesuffix("/v1")}
        asked = LiteLLMModel("anthropic/claude-sonnet-4-5", environment=environment)
        request = ModelRequest(messages=(Message(role="system", content="be brief"), *ASK.messages), tools=(BASH,))
        got = await asked.complete(request)
        assert got.tool_calls == (ToolCall(id="t1", name="bash", arguments='{"command": "ls"}'),)
        assert (got.usage.prompt_tokens, got.usage.cached_tokens, got.usage.completion_tokens) == (100, 70, 30)
        assert got.usage.cost == 10 * 3 + 70 * 0.3 + 20 * 3.75 + 30 * 15
        sent = endpoint.requests[0].body
        assert sent["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert sent["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
        assert (await failure(asked, request)).reason == "stream_cut"


@pytest.fixture
async def locked() -> AsyncIterator[OpenAIEndpoint]:
    with OpenAIEndpoint(models=error(401, "no")) as endpoint:
        yield endpoint


async def test_a_refused_key_is_found_before_anything_is_bought(locked: OpenAIEndpoint) -> None:
    with pytest.raises(ModelError) as caught:
        await model(locked).check()
    assert (caught.value.kind, caught.value.reason) == ("give_up", "bad_key")
    assert locked.requests == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic/claude-sonnet-4-5", "Did you mean anthropic/claude-sonnet-4-5"),
        ("OpenAI/gpt-4o", "Did you mean openai/gpt-4o"),
        ("olama/qwen3:8b", "ollama/qwen3:8b"),
        ("qwen/qwen3-coder", "write openai/qwen/qwen3-coder."),
    ],
)
async def test_an_unknown_provider_is_not_sent_to_another_endpoint(
    endpoint: OpenAIEndpoint, name: str, hint: str
) -> None:
    asked = LiteLLMModel(name, environment={"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": "k"})
    with pytest.raises(ModelError, match="LiteLLM does not know the provider") as caught:
        await asked.check()
    assert (caught.value.kind, caught.value.reason) == ("give_up", "unknown_model")
    assert hint in caught.value.hint
    assert endpoint.requests == []


async def test_providers_that_only_litellm_knows_pass() -> None:
    for name in ("xinference/any", "lambda_ai/any", "llamafile/any"):
        await LiteLLMModel(name, environment={}).check()


async def test_a_good_endpoint_passes_the_check_without_a_call(endpoint: OpenAIEndpoint) -> None:
    await model(endpoint).check()
    await LiteLLMModel("any-name", environment={"OPENAI_BASE_URL": endpoint.url}).check()
    assert endpoint.requests == []
