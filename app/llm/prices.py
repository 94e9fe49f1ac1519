"""The price of tokens, exact for actual usage and never too low for a planned call.

Prices come from LiteLLM's list, and from the operator's own file (YAML or JSON, dollars per million tokens):

    openai/qwen3-coder: {input: 0.20, output: 0.80, cached: 0.02, context_window: 262144, max_output: 65536}
"""

import importlib.util
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.config.value_rules import unknown_key, wrong_value
from app.core.errors import AgentFixError, ExitCode
from app.core.model_usage import MicroUSD
from app.core.record import StrictRecord
from app.core.text import one_line
from app.core.yaml_and_toml import WHOLE_FILE, YamlDocument, YamlProblem, dotted, read_yaml
from app.llm.base import ModelInfo, Usage

MILLION = 1_000_000
DEFAULT_WINDOW = 128_000
DEFAULT_OUTPUT = 8_192
OLLAMA_WINDOW = 32_768
"""Ollama cuts what is longer than the window it was asked for, silently; so it is asked for one."""


class Price(StrictRecord):
    """An operator's price for a model: dollars per million tokens, and window sizes in tokens.

    `cached` is for prompt tokens read from the provider's cache, `cache_write` for those written to it. `vision` says
    whether the model accepts images, if its list does not say.
    """

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    context_window: int | None = Field(default=None, gt=0)
    max_output: int | None = Field(default=None, gt=0)
    vision: bool | None = None


def model_info(name: str, listed: ModelInfo | None, price: Price | None, *, window: int = DEFAULT_WINDOW) -> ModelInfo:
    """A model's properties: from the user's setting, else the list, else cautious sizes without a price."""
    base = listed or ModelInfo(name, window, DEFAULT_OUTPUT, priced=False)
    base = replace(base, name=name)
    if price is None:
        return base
    window = price.context_window or base.context_window
    return ModelInfo(
        name=name,
        context_window=window,
        max_output=min(price.max_output or base.max_output, window),
        input_price=round(price.input * MILLION),
        cached_price=round((price.input if price.cached is None else price.cached) * MILLION),
        output_price=round(price.output * MILLION),
        cache_write_price=round((price.cache_write or 0) * MILLION),
        vision=base.vision if price.vision is None else price.vision,
    )


def dollars(amount: float) -> MicroUSD:
    """Convert a floating-point amount of dollars to micro-dollars, rounded up; never negative."""
    return max(0, math.ceil(round(amount * MILLION, 3)))


def cost_of(info: ModelInfo, usage: Usage, written: int = 0) -> MicroUSD:
    """The list price of tokens, rounded up to a micro-dollar; `written` of them were written to the cache."""
    uncached = max(0, usage.prompt_tokens - usage.cached_tokens)
    long = _is_long(info, usage.prompt_tokens)
    input_price = info.long_input_price if long else info.input_price
    output_price = info.long_output_price if long else info.output_price
    cached_price = info.cached_price
    if long:
        cached_price = info.long_cached_price or -(-cached_price * input_price // max(1, info.input_price))
    total = uncached * input_price + usage.cached_tokens * cached_price + usage.completion_tokens * output_price
    total += min(written, uncached) * (_worst_prices(info, usage.prompt_tokens)[0] - input_price)
    return -(-total // MILLION)


def worst_case(info: ModelInfo, prompt_tokens: int, max_tokens: int) -> MicroUSD:
    """The highest cost of a call: nothing cached, the whole prompt written to the cache, all output tokens used."""
    input_price, output_price = _worst_prices(info, prompt_tokens)
    return -(-(prompt_tokens * input_price + max_tokens * output_price) // MILLION)


def affordable(info: ModelInfo, prompt_tokens: int, money: MicroUSD, wanted: int) -> int:
    """The number of output tokens, up to `wanted`, that the worst case allows; negative if not even the prompt fits."""
    input_price, output_price = _worst_prices(info, prompt_tokens)
    left = money * MILLION - prompt_tokens * input_price
    if left < 0:
        return -1
    return min(wanted, left // output_price) if output_price else wanted


def _worst_prices(info: ModelInfo, prompt_tokens: int) -> tuple[MicroUSD, MicroUSD]:
    if not _is_long(info, prompt_tokens):
        return max(info.input_price, info.cache_write_price), info.output_price
    write = info.cache_write_price * max(1, -(-info.long_input_price // max(1, info.input_price)))
    return max(info.long_input_price, write), info.long_output_price


def _is_long(info: ModelInfo, prompt_tokens: int) -> bool:
    return 0 < info.long_prompt < prompt_tokens


FILE = "model_prices_and_context_window_backup.json"
MODES = ("chat", "responses", "completion")
_STEP = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model of the list: its properties, whether it accepts a JSON schema, and its reasoning setting."""

    provider: str
    info: ModelInfo
    structured: bool
    reasoning: bool = False


class PriceList:
    """Models by their LiteLLM names, with and without the provider's prefix.

    Read from LiteLLM's file: names and prices are checked in processes that never import LiteLLM.
    """

    def __init__(self, models: Mapping[str, ListedModel]) -> None:
        self._models = models
        self.providers = frozenset(listed.provider for listed in models.values())

    @property
    def models(self) -> Iterable[ListedModel]:
        return self._models.values()

    def find(self, name: str) -> ListedModel | None:
        """Look up `provider/model`, then `model` if that provider has it; names without a prefix unchanged."""
        if name in self._models:
            return self._models[name]
        prefix, _, rest = name.partition("/")
        listed = self._models.get(rest)
        return listed if listed is not None and listed.provider == prefix else None

    def providers_of(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        """Who has a model of that name without a prefix, and who has others of its family (`claude-…`)."""
        family = re.split(r"[-.:\d]", name, maxsplit=1)[0]
        exact, related = set(), set()
        for listed_name, listed in self._models.items():
            own = listed_name.removeprefix(f"{listed.provider}/")
            if own == name:
                exact.add(listed.provider)
            elif family and own.startswith(family) and not own[len(family) :][:1].isalpha():
                related.add(listed.provider)
        return frozenset(exact), frozenset(related)

    def similar_names(self, name: str) -> tuple[str, ...]:
        """The three most similar names as a user would write them, those of the same provider first."""
        prefix, _, rest = name.rpartition("/")
        own = {
            (n if n.startswith(f"{prefix}/") else f"{prefix}/{n}"): None
            for n, listed in self._models.items()
            if listed.provider == prefix
        }
        found = get_close_matches(f"{prefix}/{rest}", own, 3, 0.6) if own else []
        return tuple(found or get_close_matches(rest, self._models, 3, 0.6))


@cache
def price_list() -> PriceList:
    """The installed LiteLLM's list; empty if LiteLLM is not installed."""
    spec = importlib.util.find_spec("litellm")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    files = [Path(folder) / FILE for folder in folders if (Path(folder) / FILE).is_file()]
    entries: dict[str, dict[str, Any]] = json.loads(files[0].read_bytes()) if files else {}
    return PriceList({name: listed_model(name, entry) for name, entry in entries.items() if entry.get("mode") in MODES})


def listed_model(name: str, entry: Mapping[str, Any]) -> ListedModel:
    """Convert one entry of the list; its prices are dollars per token."""
    window = _tokens(entry, "max_input_tokens") or _tokens(entry, "max_tokens") or DEFAULT_WINDOW
    output = _tokens(entry, "max_output_tokens") or _tokens(entry, "max_tokens") or DEFAULT_OUTPUT
    input_price = _price(entry, "input_cost_per_token")
    long_prompt, long_input, long_cached, long_output = _long_prices(entry)
    info = ModelInfo(
        name=name,
        context_window=window,
        max_output=min(output, window),
        input_price=input_price,
        cached_price=_price(entry, "cache_read_input_token_cost") or input_price,
        output_price=_price(entry, "output_cost_per_token"),
        priced="input_cost_per_token" in entry and "output_cost_per_token" in entry,
        cache_write_price=_price(entry, "cache_creation_input_token_cost"),
        long_prompt=long_prompt,
        long_input_price=long_input,
        long_cached_price=long_cached,
        long_output_price=long_output,
        vision=bool(entry.get("supports_vision")),
    )
    # `vertex_ai-anthropic_models` → `vertex_ai`, `bedrock_converse` → `bedrock`
    provider = str(entry.get("litellm_provider", "")).removeprefix("text-completion-")
    provider = provider.removesuffix("_converse").removesuffix("_chat")
    if provider.startswith(("vertex_ai-", "fireworks_ai-")):
        provider = provider.partition("-")[0]
    structured, reasoning = entry.get("supports_response_schema"), entry.get("supports_reasoning")
    return ListedModel(provider, info, bool(structured), bool(reasoning))


def _long_prices(entry: Mapping[str, Any]) -> tuple[int, MicroUSD, MicroUSD, MicroUSD]:
    """The first prompt size from which prompts cost more, with the highest prices of all steps."""
    steps = sorted(int(match[1]) for match in map(_STEP.fullmatch, entry) if match)
    if not steps:
        return 0, 0, 0, 0
    inputs = [_price(entry, f"input_cost_per_token_above_{step}k_tokens") for step in steps]
    cached = [_price(entry, f"cache_read_input_token_cost_above_{step}k_tokens") for step in steps]
    outputs = [_price(entry, f"output_cost_per_token_above_{step}k_tokens") for step in steps]
    return steps[0] * 1_000, max(inputs), max(cached), max(*outputs, _price(entry, "output_cost_per_token"))


def _price(entry: Mapping[str, Any], key: str) -> MicroUSD:
    """Dollars per token → micro-dollars per million tokens, rounded because the list has floats."""
    value = entry.get(key)
    return round(float(value) * 1e12) if value else 0


def _tokens(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    return int(value) if isinstance(value, int | float) else 0


_PRICES = TypeAdapter(dict[str, Price])
HINT = "Write `openai/NAME: {input: 0.20, output: 0.80}`, in dollars per million tokens."


def read_prices(path: Path | None) -> Mapping[str, Price]:
    """The file's prices by model name. Raises AgentFixError, which names each wrong line and key."""
    if path is None:
        return {}
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise AgentFixError(f"The price file {path} cannot be read: {reason}.", code=ExitCode.CONFIG) from error
    return parse_prices(content, str(path))


def parse_prices(content: bytes, source: str) -> Mapping[str, Price]:
    document = read_yaml(content)
    problems = list(document.problems)
    prices: Mapping[str, Price] = {}
    if isinstance(document.value, dict):
        try:
            prices = _PRICES.validate_python(document.value, strict=True)
        except ValidationError as error:
            problems += [_problem(details, document) for details in error.errors(include_url=False)]
    elif not problems:
        problems.append(YamlProblem(1, WHOLE_FILE, "must be a mapping of models to prices"))
    if problems:
        shown = [
            f"{source}:{line}: {one_line(key)[:120]}: {one_line(message)}" for line, key, message in sorted(problems)
        ]
        raise AgentFixError("\n".join(shown[:20]), code=ExitCode.CONFIG, hint=HINT)
    return prices


def _problem(details: ErrorDetails, document: YamlDocument) -> YamlProblem:
    path = details["loc"]
    while path not in document.lines:
        path = path[:-1]
    if details["type"] == "extra_forbidden":
        return YamlProblem(document.lines[path], dotted(path), unknown_key(str(path[-1]), Price.model_fields))
    return YamlProblem(document.lines[path], dotted(path), wrong_value(details))
