"""What tokens cost: exact for usage that happened, never too low for a call that is about to."""

from app.model.base import MicroUSD, ModelInfo, Usage

MILLION = 1_000_000


def cost_of(info: ModelInfo, usage: Usage) -> MicroUSD:
    """The price of tokens by the plain price list, rounded up to a micro-dollar."""
    uncached = max(0, usage.prompt_tokens - usage.cached_tokens)
    long = _is_long(info, usage.prompt_tokens)
    input_price = info.long_input_price if long else info.input_price
    output_price = info.long_output_price if long else info.output_price
    total = uncached * input_price + usage.cached_tokens * info.cached_price + usage.completion_tokens * output_price
    return -(-total // MILLION)


def worst_case(info: ModelInfo, prompt_tokens: int, max_tokens: int) -> MicroUSD:
    """What a call may cost at most: nothing cached, the whole prompt written to the cache, every output token used."""
    long = _is_long(info, prompt_tokens)
    input_price = max(info.long_input_price if long else info.input_price, info.cache_write_price)
    output_price = info.long_output_price if long else info.output_price
    return -(-(prompt_tokens * input_price + max_tokens * output_price) // MILLION)


def _is_long(info: ModelInfo, prompt_tokens: int) -> bool:
    return 0 < info.long_prompt < prompt_tokens
