"""Names, prices and tokens of models: what is known without asking anybody and without importing LiteLLM."""

import base64
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from app.llm.base import Message, ModelRequest, ToolCall, ToolSpec, Usage
from app.llm.chat_format import strict
from app.llm.errors import FailureDetails, ModelError, classify, excerpt, retry_after
from app.llm.litellm import LiteLLMModel, LiteLLMRawCall, preflight
from app.llm.prices import Price, cost_of, dollars, listed_model, model_info, price_list
from app.llm.providers import PROVIDERS, check_environment, check_name, operator_price, route
from app.llm.tokens import count_text, count_tokens


@pytest.mark.parametrize(
    ("name", "environment", "provider", "model"),
    [
        ("gpt-4o", {}, "openai", "gpt-4o"),
        ("openai/gpt-4o", {}, "openai", "gpt-4o"),
        ("claude-sonnet-4-5", {}, "anthropic", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5", {"OPENAI_API_BASE": "http://gateway"}, "openai", "claude-sonnet-4-5"),
        ("openai/qwen/qwen3-coder", {"OPENAI_BASE_URL": "http://local"}, "openai", "qwen/qwen3-coder"),
        ("antropic/claude-sonnet-4-5", {"OPENAI_BASE_URL": "http://local"}, "antropic", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-x", {}, "openrouter", "anthropic/claude-x"),
        ("ollama/qwen3:8b", {}, "ollama", "qwen3:8b"),
        ("never-heard-of", {}, "openai", "never-heard-of"),
        ("deepseek-chat", {}, "deepseek", "deepseek-chat"),
        ("deepseek-chat-v9", {}, "deepseek", "deepseek-chat-v9"),
        ("deepseek-chat-v9", {"OPENAI_API_BASE": "http://gateway"}, "openai", "deepseek-chat-v9"),
        ("mistral-large-latest", {}, "mistral", "mistral-large-latest"),
        ("grok-4", {}, "xai", "grok-4"),
        ("llama-3.3-70b-versatile", {"GROQ_API_KEY": "x"}, "groq", "llama-3.3-70b-versatile"),
        ("llama-3.3-70b-versatile", {}, "openai", "llama-3.3-70b-versatile"),
    ],
)
def test_model_names_find_their_provider(name: str, environment: dict[str, str], provider: str, model: str) -> None:
    found = route(name, environment)
    assert (found.provider, found.model) == (provider, model)


@pytest.mark.parametrize("provider", [name for name, known in PROVIDERS.items() if known.keys or known.tokens])
def test_missing_key_is_reported_by_name(provider: str) -> None:
    known = PROVIDERS[provider]
    bases = dict.fromkeys(known.bases[:1], "http://127.0.0.1:1") if known.needs_base else {}
    with pytest.raises(ModelError) as caught:
        check_environment(route(f"{provider}/m", bases), bases)
    assert (caught.value.kind, caught.value.reason) == ("give_up", "no_key")
    assert (known.keys + known.tokens)[0] in caught.value.message
    for name in known.keys + known.tokens:
        full = bases | dict.fromkeys(known.also, "x") | {name: "k"}
        check_environment(route(f"{provider}/m", full), full)


def test_name_without_prefix_needs_the_key_of_its_provider() -> None:
    with pytest.raises(ModelError, match="deepseek/deepseek-chat-v9 needs DEEPSEEK_API_KEY"):
        check_environment(route("deepseek-chat-v9", {}), {})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        ({"ANTHROPIC_API_KEY": "k"}, {"api_key": "k"}),
        ({"ANTHROPIC_BASE_URL": "http://own"}, {"api_base": "http://own"}),
        ({"ANTHROPIC_BASE_URL": "http://own", "ANTHROPIC_AUTH_TOKEN": "t"}, {"api_base": "http://own"}),
        ({"ANTHROPIC_BASE_URL": "http://own", "ANTHROPIC_API_KEY": "k"}, {"api_base": "http://own", "api_key": "k"}),
    ],
)
def test_no_made_up_key_hides_a_token(environment: Mapping[str, str], expected: Mapping[str, str]) -> None:
    assert route("anthropic/claude-x", environment).connection == expected


def test_own_endpoint_needs_no_key() -> None:
    environment = {"OPENAI_API_BASE": "http://127.0.0.1:1/v1"}
    found = route("local", environment)
    check_environment(found, environment)
    check_name(found)
    assert (found.name, found.base, found.key) == ("openai/local", "http://127.0.0.1:1/v1", "")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("openai/gpt-4oo", "openai/gpt-4o"),
        ("gpt-4oo", "gpt-4o"),
        ("anthropic/claude-sonet-4-5", "anthropic/claude-sonnet-4-5"),
        ("gemini/gemini-2.5-pr", "gemini/gemini-2.5-pro"),
    ],
)
async def test_unknown_model_name_gets_suggestions(name: str, near: str) -> None:
    environment = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "k")
    with pytest.raises(ModelError) as caught:
        await preflight(route(name, environment), environment)
    assert (caught.value.kind, caught.value.reason) == ("give_up", "unknown_model")
    assert near in caught.value.hint


def test_known_model_names_pass() -> None:
    for name in ("gpt-4o", "openai/gpt-4o", "openai/responses/gpt-4o", "anthropic/claude-sonnet-4-5"):
        check_name(route(name, {}))


def test_raw_calls_have_the_same_properties_as_others() -> None:
    environment = {"OPENAI_API_BASE": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "k", "OLLAMA_API_BASE": "http://own"}
    for name in ("gpt-4o", "openai/responses/gpt-4o", "ollama/never-heard-of", "never-heard-of"):
        raw, plain = LiteLLMRawCall(name, environment), LiteLLMModel(name, environment=environment)
        assert raw.info == plain.info
    assert LiteLLMRawCall("openai/responses/gpt-4o", environment).info.priced


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o", "openai/responses/gpt-4o"])
def test_operators_price_counts_however_the_model_is_named(name: str) -> None:
    price = Price(input=1, output=2)
    assert operator_price(name, {}, {"openai/gpt-4o": price}) == price
    assert operator_price(name, {}, {"azure/gpt-4o": price}) is None


def test_price_list_has_windows_and_prices() -> None:
    found = price_list().find("openai/gpt-4o")
    assert found is not None
    info = found.info
    assert (info.context_window, info.max_output, info.priced) == (128_000, 16_384, True)
    assert (info.input_price, info.cached_price, info.output_price) == (2_500_000, 1_250_000, 10_000_000)
    assert price_list().find("anthropic/gpt-4o") is None
    assert all(model.info.context_window >= model.info.max_output > 0 for model in price_list().models)


def test_long_prompt_prices_are_read() -> None:
    entry = {
        "litellm_provider": "vertex_ai-language-models",
        "max_input_tokens": 1_000_000,
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 5e-6,
        "input_cost_per_token_above_200k_tokens": 2e-6,
        "input_cost_per_token_above_512k_tokens": 4e-6,
        "output_cost_per_token_above_200k_tokens": 7.5e-6,
        "input_cost_per_token_above_200k_tokens_batches": 9e-6,
    }
    found = listed_model("m", entry)
    assert found.provider == "vertex_ai"
    assert (found.info.long_prompt, found.info.long_input_price, found.info.long_output_price) == (
        200_000,
        4_000_000,
        7_500_000,
    )


def test_cached_tokens_of_a_long_prompt_have_the_long_price() -> None:
    entry = {
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 5e-6,
        "cache_read_input_token_cost": 0.1e-6,
        "input_cost_per_token_above_200k_tokens": 2e-6,
        "output_cost_per_token_above_200k_tokens": 5e-6,
    }
    listed = listed_model("m", entry | {"cache_read_input_token_cost_above_200k_tokens": 0.3e-6})
    usage = Usage(prompt_tokens=300_000, cached_tokens=300_000)
    assert cost_of(listed.info, usage) == 90_000
    assert cost_of(listed_model("m", entry).info, usage) == 60_000, "without one, it rises as the other tokens' does"
    assert cost_of(listed.info, Usage(prompt_tokens=200_000, cached_tokens=200_000)) == 20_000


def test_own_price_overrides_the_price_list() -> None:
    info = model_info("m", None, Price(input=0.1, output=0.4, context_window=1_000))
    assert (info.input_price, info.cached_price, info.output_price) == (100_000, 100_000, 400_000)
    assert (info.context_window, info.max_output, info.priced) == (1_000, 1_000, True)
    assert not model_info("m", None, None).priced


def test_prices_are_rounded_up_except_for_float_noise() -> None:
    assert (dollars(0.1 + 0.2), dollars(1e-9), dollars(0.0), dollars(-1.0)) == (300_000, 1, 0, 0)


def test_token_count_is_deterministic_and_covers_every_part() -> None:
    messages = (Message(role="user", content="def f(x):\n    return x + 1\n" * 50),)
    call = ToolCall(id="c", name="bash", arguments='{"command": "ls"}' * 20)
    tool = ToolSpec(name="bash", description="run " * 30, parameters={"type": "object"})
    small = ModelRequest(messages=messages)
    counts = [
        count_tokens("openai/gpt-4o", request)
        for request in (
            small,
            small.model_copy(update={"messages": (*messages, Message(role="assistant", tool_calls=(call,)))}),
            small.model_copy(update={"tools": (tool,)}),
            small.model_copy(update={"response_schema": {"type": "object", "description": "x " * 30}}),
        )
    ]
    assert all(count > counts[0] for count in counts[1:])
    assert count_tokens("openai/gpt-4o", small) == counts[0]
    assert 450 <= counts[0] <= 750
    assert count_tokens("anthropic/claude-x", small) > counts[0]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x + 1\n" * 50,
        "A misconfigured interpreter raises an exception. " * 40,
        "{'a': [1, 2.5]}\n" * 80,
        "sha256:3f9a0bc7d1e2\n" * 80,
        "\u51fd\u6570\u8fd4\u56de\u4e86\u9519\u8bef\u7684\u7ed3\u679c" * 60,
    ],
    ids=["code", "prose", "data", "digits", "chinese"],
)
def test_small_request_is_never_underestimated(text: str) -> None:
    request = ModelRequest(messages=(Message(role="user", content=text),))
    exact = count_tokens("openai/gpt-4o", request)
    assert 0.95 * exact <= count_tokens("openai/gpt-4o", request, small=10_000) <= 2 * exact
    assert count_tokens("openai/gpt-4o", request, small=exact // 2) == exact


def test_any_text_can_be_counted() -> None:
    assert count_text("m", "<|endoftext|>\udcff\x00" * 3) > 0
    assert count_text("m", "") == 0


def test_model_registry_does_not_import_litellm() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from app.llm.registry import make_model\n"
        "from app.llm.base import Message, ModelRequest\n"
        "m = make_model('openai/gpt-4o', environment={})\n"
        "m.count(ModelRequest(messages=(Message(role='user', content='x'),)))\n"
        "assert not {'litellm', 'openai', 'httpx', 'sqlalchemy', 'tiktoken'} & set(sys.modules), 'heavy'\n"
    )
    root = __file__.rpartition("/tests/")[0]
    subprocess.run([sys.executable, "-I", "-c", code, root], env={}, check=True, timeout=60)


NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "12"}, "", 12.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, "", 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, "", 0.0),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 -0000"}, "", 30.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "9" * 400}, "", None),
        ({}, "Please try again in 1m2.5s.", 62.5),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "no idea", None),
    ],
)
def test_retry_time_is_read_from_the_error(headers: dict[str, str], text: str, seconds: float | None) -> None:
    assert retry_after(FailureDetails(frozenset(), 429, text, headers), NOW) == seconds


def test_an_excerpt_is_one_line_without_keys() -> None:
    said = excerpt(
        "litellm.RateLimitError: OpenAIException - key my-own-secret and ghp_" + "Zk9a" * 9, ["my-own-secret"]
    )
    assert said == "key [redacted] and [redacted]"
    assert len(excerpt("x" * 5_000)) == 300


@pytest.mark.parametrize("status", [0, 400, 401, 402, 403, 404, 413, 429, 500, 503])
def test_the_words_of_a_provider_are_logged_and_not_in_the_error(status: int, caplog: pytest.LogCaptureFixture) -> None:
    key = "my-own-secret"
    for hidden in (key, base64.b64encode(f"x{key}".encode()).decode(), key.encode().hex(), key[::-1]):
        fault = FailureDetails(frozenset(), status, f"you sent {hidden}, billing, moderation", {"retry-after": "3"})
        error = classify(fault, name="fake/model", where="the address", secrets=[key])
        assert hidden not in error.message + error.hint
        assert "you sent" in caplog.text
    assert key not in caplog.text


def test_strict_schema_keeps_properties_named_like_keywords() -> None:
    schema = {
        "$defs": {"title": {"type": "object", "properties": {"default": {"type": "string", "default": "x"}}}},
        "type": "object",
        "properties": {"title": {"$ref": "#/$defs/title"}, "format": {"type": "array", "items": {"type": "string"}}},
    }
    made = strict(schema)
    assert made["required"] == ["title", "format"]
    assert made["$defs"]["title"]["properties"] == {"default": {"type": "string"}}
    assert made["$defs"]["title"]["additionalProperties"] is False
