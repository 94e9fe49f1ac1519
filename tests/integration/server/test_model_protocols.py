"""Other protocols than OpenAI's chat, each spoken by a loopback server: tools, usage, cut streams, faults, caching."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.core.model_usage import Reasoning
from app.llm.base import Body, Message, ModelAnswer, ModelRequest, ToolCall, ToolSpec, WireProtocol
from app.llm.budgeted_model import BudgetedModel
from app.llm.errors import ModelError
from app.llm.litellm import THINKING, LiteLLMModel, LiteLLMRawCall
from app.llm.prices import OLLAMA_WINDOW, Price
from tests.support.memory_ledger import MemoryLedger
from tests.support.openai_endpoint import OpenAIEndpoint, Reply, answer, cut, error
from tests.support.protocol_streams import anthropic, anthropic_error, ollama, responses
from tests.support.recorded_progress import ListProgress

CLAUDE, RESPONDING, OLLAMA = "anthropic/claude-sonnet-4-5", "openai/responses/gpt-5.1-codex", "ollama_chat/qwen3"
SAYS: dict[str, Callable[..., Reply]] = {CLAUDE: anthropic, RESPONDING: responses, OLLAMA: ollama}
BASH = ToolSpec(
    name="bash", description="run", parameters={"type": "object", "properties": {"command": {"type": "string"}}}
)
LIST = ToolCall(id="t1", name="bash", arguments='{"command": "ls"}')
HEAD = (Message(role="system", content="be brief"), Message(role="user", content="go"))
STEP = (
    Message(role="assistant", content="so", tool_calls=(LIST,)),
    Message(role="tool", tool_call_id="t1", content="a.py"),
)
ASK = ModelRequest(messages=(*HEAD, *STEP), tools=(BASH,), max_tokens=2_000)
TURN = [{"role": "user", "content": "go"}]
TOOLS = [("t2", "bash", '{"command": "pwd"}')]


@pytest.fixture
def endpoint() -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint() as endpoint:
        yield endpoint


def environment(endpoint: OpenAIEndpoint) -> dict[str, str]:
    root = endpoint.url.removesuffix("/v1")
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "OPENROUTER_API_KEY": "k"}
    own = {"OPENAI_API_BASE": endpoint.url, "OPENROUTER_API_BASE": endpoint.url, "HOSTED_VLLM_API_BASE": endpoint.url}
    return {**keys, **own, "ANTHROPIC_API_BASE": root, "OLLAMA_API_BASE": root}


def model(endpoint: OpenAIEndpoint, name: str, **more: Any) -> LiteLLMModel:
    return LiteLLMModel(name, environment=environment(endpoint), **more)


async def failure(endpoint: OpenAIEndpoint, name: str, reply: Reply) -> ModelError:
    endpoint.script(reply)
    with pytest.raises(ModelError) as caught:
        await model(endpoint, name).complete(ASK)
    assert len(endpoint.requests) == 1
    return caught.value


@pytest.mark.parametrize("name", SAYS)
async def test_words_and_calls_arrive_with_what_they_cost(endpoint: OpenAIEndpoint, name: str) -> None:
    endpoint.script(SAYS[name]("hello there", tools=TOOLS, piece=3))
    heard: list[str] = []
    got = await model(endpoint, name).complete(ASK, on_text=heard.append)
    (call,) = got.tool_calls
    assert ("".join(heard), got.content, got.finish_reason) == ("hello there", "hello there", "tool_calls")
    assert (call.name, call.arguments, bool(call.id)) == ("bash", '{"command": "pwd"}', True)
    assert (got.usage.completion_tokens, got.usage.estimated, got.model) == (30, False, name)


@pytest.mark.parametrize(("name", "team"), [(CLAUDE, "a"), (RESPONDING, "o"), (OLLAMA, None)])
async def test_headers_for_a_gateway_are_sent_in_every_protocol(
    endpoint: OpenAIEndpoint, name: str, team: str | None
) -> None:
    headers = {"ANTHROPIC_CUSTOM_HEADERS": "X-Team: a", "OPENAI_CUSTOM_HEADERS": "X-Team: o"}
    endpoint.script(SAYS[name]("hello"))
    await LiteLLMModel(name, environment=environment(endpoint) | headers).complete(ASK)
    assert endpoint.requests[0].headers.get("x-team") == team


@pytest.mark.parametrize("name", SAYS)
async def test_calls_without_text_and_text_without_calls(endpoint: OpenAIEndpoint, name: str) -> None:
    endpoint.script(SAYS[name](tools=TOOLS), SAYS[name]("done"))
    first, second = [await model(endpoint, name).complete(ASK) for _ in range(2)]
    assert (first.content, len(first.tool_calls), first.finish_reason) == ("", 1, "tool_calls")
    assert (second.content, second.tool_calls, second.finish_reason) == ("done", (), "stop")


def _cuts() -> list[tuple[str, int, bool]]:
    """After each event but those from the one on that says how the answer ended; rudely, and with good manners."""
    ends = {CLAUDE: 2, RESPONDING: 1, OLLAMA: 1}
    whole = {name: len(SAYS[name]("hello there", tools=TOOLS).events) - end for name, end in ends.items()}
    return [
        (name, after, polite)
        for name, most in whole.items()
        for after in range(1, most + 1)
        for polite in (False, True)
    ]


@pytest.mark.parametrize(("name", "after", "polite"), _cuts())
async def test_an_interrupted_answer_is_not_an_answer(
    endpoint: OpenAIEndpoint, name: str, after: int, polite: bool
) -> None:
    whole = SAYS[name]("hello there", tools=TOOLS)
    found = await failure(endpoint, name, replace(whole, events=whole.events[:after]) if polite else cut(whole, after))
    assert (found.kind, found.reason in {"stream_cut", "bad_response"}) == ("retry", True)
    if found.reason == "stream_cut":
        assert found.usage is not None
        assert found.usage.estimated


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        (CLAUDE, anthropic("so", stop="max_tokens")),
        (RESPONDING, responses("so", status="incomplete")),
        (OLLAMA, ollama("so", done="length")),
    ],
)
async def test_an_answer_at_its_limit_is_not_cut(endpoint: OpenAIEndpoint, name: str, reply: Reply) -> None:
    endpoint.script(reply)
    assert (await model(endpoint, name).complete(ASK)).finish_reason == "length"


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
FAULTS = [
    (CLAUDE, anthropic_error(429, "rate_limit_error", "slow down", {"retry-after": "7"}), "wait", "rate_limited"),
    (CLAUDE, anthropic_error(529, "overloaded_error", "Overloaded"), "retry", "server_error"),
    (CLAUDE, anthropic_error(529, "overloaded_error", "Overloaded", {"retry-after": "7"}), "wait", "overloaded"),
    (CLAUDE, anthropic_error(400, "invalid_request_error", TOO_LONG), "shrink", "context_window"),
    (CLAUDE, anthropic_error(401, "authentication_error", "invalid x-api-key"), "give_up", "bad_key"),
    (CLAUDE, anthropic_error(400, "invalid_request_error", "Your credit balance is too low"), "give_up", "quota"),
    (CLAUDE, anthropic_error(404, "not_found_error", "model: claude-x"), "give_up", "unknown_model"),
    (CLAUDE, anthropic_error(400, "invalid_request_error", "tools.0: bad"), "give_up", "bad_request"),
    (RESPONDING, error(429, "slow", headers={"retry-after": "9"}), "wait", "rate_limited"),
    (RESPONDING, error(429, "You exceeded your current quota", code="insufficient_quota"), "give_up", "quota"),
    (RESPONDING, error(400, "exceeds the context window", code="context_length_exceeded"), "shrink", "context_window"),
    (RESPONDING, error(500, "oops"), "retry", "server_error"),
    (RESPONDING, error(401, "no"), "give_up", "bad_key"),
    (OLLAMA, error(404, "model 'qwen3' not found"), "give_up", "unknown_model"),
    (OLLAMA, Reply(status=400, body=b'{"error": "library/qwen3 does not support tools"}'), "give_up", "no_tools"),
    (OLLAMA, Reply(status=500, body=b'{"error": "llama runner process has terminated"}'), "retry", "server_error"),
]


@pytest.mark.parametrize(("name", "reply", "kind", "reason"), FAULTS)
async def test_faults_have_the_same_kinds_everywhere(
    endpoint: OpenAIEndpoint, name: str, reply: Reply, kind: str, reason: str
) -> None:
    found = await failure(endpoint, name, reply)
    assert (found.kind, found.reason) == (kind, reason)
    assert "{" not in found.message, "in words, not as a body"
    assert found.retry_after == (float(reply.headers["retry-after"]) if "retry-after" in reply.headers else None)


async def test_a_fault_in_the_stream_is_an_interruption(endpoint: OpenAIEndpoint) -> None:
    whole, late = anthropic("hello there"), {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    found = await failure(endpoint, CLAUDE, replace(whole, events=(*whole.events[:4], late)))
    assert (found.kind, found.reason) == ("retry", "stream_cut")
    said = {"id": "resp_1", "object": "response", "status": "failed", "output": []}
    failed = {"type": "response.failed", "response": {**said, "error": {"code": "server_error", "message": "x"}}}
    begun = responses("hello there").events[:3]
    assert (await failure(endpoint, RESPONDING, Reply(events=(*begun, failed)))).kind == "retry"


async def test_a_refusal_by_claude_is_reported(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("no", stop="refusal"))
    assert (await model(endpoint, CLAUDE).complete(ASK)).finish_reason == "content_filter"


async def test_cached_tokens_are_priced_as_by_the_provider(endpoint: OpenAIEndpoint) -> None:
    price = Price(input=3, output=15, cached=0.3, cache_write=3.75)
    usage = {"input_tokens": 20, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 40}
    endpoint.script(anthropic("hi", usage=usage), anthropic("hi", usage=usage), responses("hi"))
    got = await model(endpoint, CLAUDE).complete(ASK)
    assert (got.usage.prompt_tokens, got.usage.cached_tokens, got.usage.completion_tokens) == (160, 100, 30)
    assert got.usage.cost == 20 * 3 + 30 + 150 + 30 * 15, "40 tokens written to the cache cost 3.75 each"
    asked = model(endpoint, CLAUDE, price=price)
    assert asked.info.cache_write_price == 3_750_000
    assert (await asked.complete(ASK)).usage.cached_tokens == 100
    other = await model(endpoint, RESPONDING).complete(ASK)
    assert (other.usage.prompt_tokens, other.usage.cached_tokens) == (120, 64)
    assert other.usage.cost > 0, "the list knows it without the word for its protocol"


CACHED = {"cache_control": {"type": "ephemeral"}}


async def test_cache_points_are_at_the_stable_head_and_at_the_newest_message(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("a"), anthropic("b"))
    asked = model(endpoint, CLAUDE)
    await asked.complete(ModelRequest(messages=HEAD, tools=(BASH,)))
    await asked.complete(ASK)
    first, second = (request.body for request in endpoint.requests)
    assert first["system"] == second["system"] == [{"type": "text", "text": "be brief", **CACHED}]
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": "go", **CACHED}]}]
    (result,) = second["messages"][-1]["content"]
    assert result == {"type": "tool_result", "tool_use_id": "t1", "content": "a.py", **CACHED}
    assert str(second).count("cache_control") == 3
    assert second["tools"] == first["tools"]
    assert second["messages"][0] == first["messages"][0], "what the request before ended with is looked up there"


async def test_turn_of_many_calls_finds_what_is_cached(endpoint: OpenAIEndpoint) -> None:
    """The provider looks back over twenty blocks from each point, and sixteen calls have more."""
    calls = tuple(ToolCall(id=f"t{number}", name="bash", arguments='{"command": "ls"}') for number in range(16))
    results = (Message(role="tool", content="a.py", tool_call_id=call.id) for call in calls)
    turn = (Message(role="assistant", content="", tool_calls=calls), *results)
    endpoint.script(anthropic("a"), anthropic("b"))
    asked = model(endpoint, CLAUDE)
    for messages in (HEAD + ASK.messages[2:], HEAD + ASK.messages[2:] + turn):
        await asked.complete(ModelRequest(messages=messages, tools=(BASH,)))
    first, second = (request.body["messages"] for request in endpoint.requests)
    assert second[: len(first)][-1] == first[-1]
    assert str(first[-1]).count("cache_control") == 1
    assert str(second[-1]["content"][-1]).count("cache_control") == 1


async def test_claude_elsewhere_gets_its_cache_points_too(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(answer("ok"), answer("ok"))
    await model(endpoint, "openrouter/anthropic/claude-sonnet-4.5").complete(ASK)
    messages = endpoint.requests[0].body["messages"]
    assert messages[0]["content"] == [{"type": "text", "text": "be brief", **CACHED}]
    assert messages[-1]["content"] == [{"type": "text", "text": "a.py", **CACHED}]
    await model(endpoint, "openai/local").complete(ASK)
    assert "cache_control" not in str(endpoint.requests[1].body)


async def test_bedrock_s_claude_gets_its_own_kind(endpoint: OpenAIEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_BEDROCK_RUNTIME_ENDPOINT": endpoint.url.removesuffix("/v1")}
    for name, value in {**own, "AWS_REGION_NAME": "us-east-1"}.items():
        monkeypatch.setenv(name, value)  # LiteLLM looks for them itself
    endpoint.script(error(400, "tools.0: bad"))
    asked = LiteLLMModel("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", environment=own)
    with pytest.raises(ModelError) as caught:
        await asked.complete(ASK)
    assert caught.value.reason == "bad_request"
    body = endpoint.requests[0].body
    assert endpoint.requests[0].headers["authorization"] == "Bearer k"
    assert body["system"][-1] == {"cachePoint": {"type": "default"}}
    assert body["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default"}}


async def test_ollama_is_asked_for_a_window_and_by_the_protocol_that_knows_tools(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(ollama("ok"), ollama("ok"))
    got = await model(endpoint, "ollama/qwen3-of-mine").complete(ASK)
    assert (got.model, endpoint.requests[0].path) == ("ollama/qwen3-of-mine", "/api/chat")
    assert endpoint.requests[0].body["options"]["num_ctx"] == OLLAMA_WINDOW
    assert endpoint.requests[0].body["tools"][0]["function"]["name"] == "bash"
    price = Price(input=0, output=0, context_window=65_536)
    await model(endpoint, "ollama_chat/qwen3-of-mine", price=price).complete(ASK)
    assert endpoint.requests[1].body["options"]["num_ctx"] == 65_536


@pytest.mark.parametrize(
    ("protocol", "body"),
    [("chat", {"messages": TURN}), ("responses", {"input": TURN}), ("messages", {"messages": TURN})],
)
async def test_another_agents_calls_reach_ollama_in_the_same_way(
    endpoint: OpenAIEndpoint, protocol: WireProtocol, body: Body
) -> None:
    endpoint.script(ollama("ok"))
    asked = LiteLLMRawCall("ollama/qwen3-of-mine", environment(endpoint))
    async for _ in asked.stream(protocol, body, 100):
        pass
    assert endpoint.requests[0].path == "/api/chat"
    assert endpoint.requests[0].body["options"]["num_ctx"] == OLLAMA_WINDOW


@pytest.mark.parametrize("name", ["hosted_vllm/qwen3-coder", "openai/qwen3-coder", "qwen3-coder"])
async def test_endpoints_of_one_s_own_need_a_base_and_no_key(endpoint: OpenAIEndpoint, name: str) -> None:
    own = {"OPENAI_API_BASE": endpoint.url, "HOSTED_VLLM_API_BASE": endpoint.url}
    endpoint.script(answer("hi", tools=TOOLS))
    asked = LiteLLMModel(name, environment=own)
    await asked.check()
    got = await asked.complete(ASK)
    assert (got.content, [call.arguments for call in got.tool_calls]) == ("hi", ['{"command": "pwd"}'])
    assert (endpoint.requests[0].body["model"], asked.info.priced) == ("qwen3-coder", False)


def metered(endpoint: OpenAIEndpoint, name: str, reasoning: Reasoning) -> BudgetedModel:
    return BudgetedModel(model(endpoint, name, reasoning=reasoning), MemoryLedger(9_000_000), ListProgress())


async def test_reasoning_effort_is_sent_in_each_protocols_words(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("ok"), responses("ok", reasoning="hm"), answer("ok"))
    asked = ModelRequest(messages=HEAD, tools=(BASH,), max_tokens=2_000)
    await metered(endpoint, CLAUDE, "high").ask("a", asked)
    await metered(endpoint, RESPONDING, "low").ask("b", asked)
    await metered(endpoint, "openai/of-mine", "medium").ask("c", asked)
    claude, responding, unknown = (request.body for request in endpoint.requests)
    assert claude["thinking"]["type"] == "enabled"
    assert claude["thinking"]["budget_tokens"] < THINKING["high"]
    assert claude["max_tokens"] == 2_000 + THINKING["high"], "thinking is paid for besides the answer"
    assert "reasoning_effort" not in claude
    assert responding["reasoning"]["effort"] == "low"
    assert unknown["reasoning_effort"] == "medium"


async def test_an_unknown_claude_model_gets_no_openai_parameters(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("ok"))
    await metered(endpoint, "anthropic/claude-opus-4-1", "low").ask("a", ModelRequest(messages=HEAD))
    assert ("thinking" in endpoint.requests[0].body, "reasoning_effort" in endpoint.requests[0].body) == (True, False)


async def test_claudes_thinking_is_sent_back_unchanged(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("so", tools=TOOLS, thinking="let me think"), anthropic("ok"), answer("ok"))
    asked = metered(endpoint, CLAUDE, "low")
    first = await asked.ask("turn.1", ModelRequest(messages=HEAD, tools=(BASH,)))
    assert first.content == "so", "thinking is no part of what is said"
    assert ModelAnswer.model_validate_json(first.model_dump_json()) == first
    said = Message(role="assistant", content="so", tool_calls=first.tool_calls, thinking=first.thinking)
    done = Message(role="tool", tool_call_id="t2", content="/work")
    history = ModelRequest(messages=(*HEAD, said, done), tools=(BASH,))
    await asked.ask("turn.2", history)
    block = {"type": "thinking", "thinking": "let me think", "signature": "signed"}
    assert endpoint.requests[1].body["messages"][1]["content"][0] == block
    assert "thinking" in endpoint.requests[1].body
    await model(endpoint, "openai/other").complete(history)
    assert "let me think" not in str(endpoint.requests[2].body), "to a model that stands in it means nothing"


async def test_claude_does_not_think_over_calls_of_a_model_that_stood_in(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(anthropic("ok"))
    await metered(endpoint, CLAUDE, "low").ask("turn.2", ASK.model_copy(update={"max_tokens": 8_000}))
    assert "thinking" not in endpoint.requests[0].body


async def test_a_model_without_reasoning_refuses_the_option(endpoint: OpenAIEndpoint) -> None:
    with pytest.raises(ModelError) as caught:
        await model(endpoint, "openai/gpt-4o", reasoning="high").check()
    assert (caught.value.kind, caught.value.reason) == ("give_up", "no_reasoning")
    assert "does not support reasoning" in caught.value.message
    await model(endpoint, CLAUDE, reasoning="high").check()
    assert endpoint.requests == []
