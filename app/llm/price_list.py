"""Reads LiteLLM's price list from its package data, without the seconds that importing LiteLLM takes."""

import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from app.core.money import MicroUSD
from app.llm.base import ModelInfo
from app.llm.prices import DEFAULT_OUTPUT, DEFAULT_WINDOW

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
    """Models by their LiteLLM names, with and without the provider's prefix."""

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

    def similar_names(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """The most similar names as a user would write them, those of the same provider first."""
        prefix, _, rest = name.rpartition("/")
        own = {
            (n if n.startswith(f"{prefix}/") else f"{prefix}/{n}"): None
            for n, listed in self._models.items()
            if listed.provider == prefix
        }
        found = get_close_matches(f"{prefix}/{rest}", own, limit, 0.6) if own else []
        return tuple(found or get_close_matches(rest, self._models, limit, 0.6))


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
    long_prompt, long_input, long_output = _long_prices(entry)
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
        long_output_price=long_output,
        vision=bool(entry.get("supports_vision")),
    )
    provider = _provider(str(entry.get("litellm_provider", "")))
    structured, reasoning = entry.get("supports_response_schema"), entry.get("supports_reasoning")
    return ListedModel(provider, info, bool(structured), bool(reasoning))


def _long_prices(entry: Mapping[str, Any]) -> tuple[int, MicroUSD, MicroUSD]:
    """The first prompt size from which prompts cost more, with the highest prices of all steps."""
    steps = sorted(int(match[1]) for match in map(_STEP.fullmatch, entry) if match)
    if not steps:
        return 0, 0, 0
    inputs = [_price(entry, f"input_cost_per_token_above_{step}k_tokens") for step in steps]
    outputs = [_price(entry, f"output_cost_per_token_above_{step}k_tokens") for step in steps]
    return steps[0] * 1_000, max(inputs), max(*outputs, _price(entry, "output_cost_per_token"))


def _price(entry: Mapping[str, Any], key: str) -> MicroUSD:
    """Dollars per token → micro-dollars per million tokens, rounded because the list has floats."""
    value = entry.get(key)
    return round(float(value) * 1e12) if value else 0


def _tokens(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    return int(value) if isinstance(value, int | float) else 0


def _provider(name: str) -> str:
    """`vertex_ai-anthropic_models` → `vertex_ai`, `bedrock_converse` → `bedrock`."""
    name = name.removeprefix("text-completion-").removesuffix("_converse").removesuffix("_chat")
    return name.partition("-")[0] if name.startswith(("vertex_ai-", "fireworks_ai-")) else name
