"""The interface for calls that another coding agent writes itself, in the agent's own protocol."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from app.llm.base import ModelInfo

WireProtocol = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions, OpenAI's responses, Anthropic's messages."""

Body = Mapping[str, Any]

_SAMPLING = ("temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls")
_CHAT = ("messages", "response_format", "stop", "n", "seed", "logit_bias", "logprobs", "top_logprobs")
_SAMPLING_FIELDS = ("presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity")
FIELDS: Mapping[WireProtocol, frozenset[str]] = {
    "chat": frozenset((*_SAMPLING, *_CHAT, *_SAMPLING_FIELDS)),
    "responses": frozenset((*_SAMPLING, "input", "instructions", "reasoning", "text", "include", "truncation")),
    "messages": frozenset((*_SAMPLING, "messages", "system", "top_k", "stop_sequences", "thinking")),
}
"""What each protocol's request consists of."""
OURS = frozenset(
    {"model", "stream", "stream_options", "store", "max_tokens", "max_completion_tokens", "max_output_tokens"}
)
"""What is said anew for each call."""
_LABELS = ("metadata", "client_metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
_REASONING_FIELDS = ("reasoning", "thinking", "enable_thinking", "chat_template_kwargs", "usage")
EXTRAS: Mapping[WireProtocol, frozenset[str]] = {
    "chat": frozenset(
        (*_LABELS, *_REASONING_FIELDS, "service_tier", "modalities", "top_k", "min_p", "repetition_penalty")
    ),
    "responses": frozenset((*_LABELS, "service_tier")),
    "messages": frozenset(("metadata", "service_tier", "context_management", "output_config")),
}
"""Known to some providers only, and no more than a label or a way to think. Those of `messages` stay here: they go
with headers of Anthropic's own, which are not passed on."""


class StreamEvent(NamedTuple):
    """One event of a streamed answer; events of chat completions have no names."""

    name: str
    data: dict[str, Any]


class RawProxyCall(Protocol):
    """One model behind one name, asked in any of the protocols. Raises only `app.llm.errors.ModelError`.

    `body` is what the agent sent, but for `OURS`. Of it FIELDS and EXTRAS are passed on, and nothing else: what a
    provider or our library takes for an address, a key, another model or a tool of its own is none of them.
    """

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, protocol: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        """The events of one answer of at most `limit` tokens, as they arrive; one call, no retries."""
        ...

    async def complete(self, protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        """The same answer as one document."""
        ...
