"""The price of tokens: exact for actual usage, never too low for a planned call."""

import math
from dataclasses import replace

from pydantic import Field

from app.core.money import MicroUSD
from app.core.record import Record
from app.llm.base import ModelInfo, Usage

MILLION = 1_000_000
DEFAULT_WINDOW = 128_000
DEFAULT_OUTPUT = 8_192
OLLAMA_WINDOW = 32_768
"""Ollama cuts what is longer than the window it was asked for, silently; so it is asked for one."""


class Price(Record):
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
    total = uncached * input_price + usage.cached_tokens * info.cached_price + usage.completion_tokens * output_price
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
