"""Counts a request's tokens offline; the same request always has the same count."""

import importlib.util
import os
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.llm.base import Message, ModelRequest

if TYPE_CHECKING:
    from tiktoken import Encoding

MESSAGE = 4
"""Tokens that each message, call and tool costs around its text."""
IMAGE = 6_000
"""Tokens that an image costs at most, whatever its size: providers scale down what is larger."""
IMAGE_COSTS = {"gpt-4o-mini": 50_000}
"""Who counts far more for the same image, as published, at a price that is lower in turn."""
_PIECE = re.compile(r" ?[A-Z]?[^\W\d_A-Z]{1,6}|[A-Z]{1,2}|\d{1,3}|\s+| ?[^\w\s]|_")
_PART = 20_000
"""Characters that are encoded at once."""
TOKENIZERS = ("litellm_core_utils", "tokenizers")


def count_tokens(name: str, request: ModelRequest, *, small: int = 0) -> int:
    """Prompt tokens of a request to the model `name`; may be too high by a quarter, hardly ever too low.

    A request of up to `small` word pieces is estimated at one token per piece, which is usually a third too many.
    Loading the tokenizer takes an eighth of a second and 40 MB, so it is used only near a limit.
    """
    percent, image_tokens = _percent(name), request.images * _image(name)
    pieces = -(-_counted(request, _pieces) * percent // 100) + image_tokens
    return pieces if pieces <= small else -(-_counted(request, _of_text) * percent // 100) + image_tokens


def estimate_tokens(request: ModelRequest) -> int:
    """Estimate at three bytes per token: fast, without a tokenizer, for models that are not really called."""
    texts = [message.content + "".join(call.arguments for call in message.tool_calls) for message in request.messages]
    texts += [tool.model_dump_json() for tool in request.tools]
    return sum(len(text.encode("utf-8", "replace")) // 3 + MESSAGE for text in texts) + request.images * IMAGE


def count_text(name: str, text: str) -> int:
    """Tokens of a piece of text, such as the part of an answer that arrived before its stream was cut. Not cached."""
    return -(-_encoded(text) * _percent(name) // 100)


def _counted(request: ModelRequest, of_text: Callable[[str], int]) -> int:
    tokens = sum(_of_message(message, of_text) for message in request.messages)
    tokens += sum(of_text(tool.model_dump_json()) + MESSAGE for tool in request.tools)
    return tokens + (of_text(str(request.response_schema)) if request.response_schema is not None else 0)


def _of_message(message: Message, of_text: Callable[[str], int]) -> int:
    calls = sum(of_text(call.name) + of_text(call.arguments) + 3 * MESSAGE for call in message.tool_calls)
    thought = sum(of_text(str(block.get("thinking", ""))) + MESSAGE for block in message.thinking)
    return of_text(message.content) + calls + thought + MESSAGE


@lru_cache(maxsize=4_096)
def _pieces(text: str) -> int:
    """The pieces that tokenizers start with, words cut after six letters; more for letters of several bytes."""
    return len(_PIECE.findall(text)) + (len(text.encode("utf-8", "replace")) - len(text)) // 2


@lru_cache(maxsize=4_096)
def _of_text(text: str) -> int:
    """Cached per message: the history is append-only, so all but the newest were counted before."""
    return _encoded(text)


def _encoded(text: str) -> int:
    """In parts, because the tokenizer takes far longer for a very long text without words: minutes for 32 MB."""
    encoding = _encoding()
    if encoding is None:
        return len(text.encode("utf-8", "replace")) // 3
    return sum(len(encoding.encode_ordinary(text[at : at + _PART])) for at in range(0, len(text), _PART))


def _image(name: str) -> int:
    return next((tokens for name_part, tokens in IMAGE_COSTS.items() if name_part in name), IMAGE)


def _percent(name: str) -> int:
    """How many per cent more tokens a model family needs than OpenAI's tokenizer for the same text, as published."""
    if "claude" in name:
        return 130
    openai = ("gpt-", "o1", "o3", "o4", "chatgpt", "codex")
    return 105 if name.rpartition("/")[2].startswith(openai) else 120


@cache
def _encoding() -> "Encoding | None":
    """OpenAI's tokenizer from LiteLLM's bundled files, because tiktoken itself would download them."""
    spec = importlib.util.find_spec("litellm")
    folders = [Path(folder, *TOKENIZERS) for folder in (spec.submodule_search_locations or [])] if spec else []
    if not any(folder.is_dir() for folder in folders):
        return None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folders[0])
    import tiktoken  # noqa: PLC0415 (only a worker that talks to a model needs it)

    return tiktoken.get_encoding("cl100k_base")
