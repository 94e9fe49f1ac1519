"""The interface of a language model, for our own requests and for those that another coding agent writes itself."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from app.core.model_usage import MicroUSD, WorkKind
from app.core.record import Record
from app.core.text import words

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ToolCall(Record):
    """A tool call as the model wrote it: `arguments` is raw text that may not even be JSON."""

    id: str
    name: str
    arguments: str


class ImageContent(Record):
    """An image attached to a message; `data` is its bytes in base64."""

    media_type: str
    data: str


class Message(Record):
    """One entry of the append-only history, in the shape every chat protocol shares."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    thinking: tuple[dict[str, Any], ...] = ()
    """An assistant's thinking, in its provider's own signed blocks, which are sent back unchanged."""
    images: tuple[ImageContent, ...] = ()
    """A user's images, for a model that accepts them (`ModelInfo.vision`)."""


class ToolSpec(Record):
    """A tool as described to the model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(Record):
    """Tokens and price of one call; `estimated` if the provider did not report them (a cut stream, a lost answer)."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: MicroUSD = 0
    estimated: bool = False


class AnswerOrigin(Record):
    """The kind of work a model answered for, and why it was used instead of the intended model.

    `because` is the reason (`app.llm.errors`) why `instead_of` gave no answer; both are empty for the intended model.
    """

    kind: WorkKind = "code"
    instead_of: str = ""
    because: str = ""


class ModelAnswer(Record):
    """The result of one paid call; stored before any of its tool calls is executed."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[dict[str, Any], ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    origin: AnswerOrigin = AnswerOrigin()


class ModelRequest(Record):
    """Everything sent to the model.

    `response_schema` asks for an answer that matches this JSON schema; `schema_name` is its name in the request.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema_name: str = ""
    response_schema: dict[str, Any] | None = None
    max_tokens: int = 8_192

    @property
    def images(self) -> int:
        """The number of images in the request."""
        return sum(len(message.images) for message in self.messages)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model's properties: window sizes in tokens, prices in micro-dollars per million tokens.

    `cache_write_price` is the price of a prompt token if writing the cache costs extra. Prompts of more than
    `long_prompt` tokens cost the `long_` prices; 0 if the provider has no such step. Without a `long_cached_price`, the
    price of cached tokens rises as the input's does. `thinking` is how many tokens the model may think besides its
    output; `endpoint` its address if that is not the provider's own; `vision` whether it is known to accept images.
    """

    name: str
    context_window: int
    max_output: int
    input_price: MicroUSD = 0
    cached_price: MicroUSD = 0
    output_price: MicroUSD = 0
    priced: bool = True
    cache_write_price: MicroUSD = 0
    long_prompt: int = 0
    long_input_price: MicroUSD = 0
    long_cached_price: MicroUSD = 0
    long_output_price: MicroUSD = 0
    thinking: int = 0
    endpoint: str = ""
    vision: bool = False


OnText = Callable[[str], None]


class Model(Protocol):
    """One model behind one name. Implementations raise only `app.llm.errors.ModelError`."""

    @property
    def info(self) -> ModelInfo: ...

    def warm(self) -> None:
        """Start slow preparations (imports) in the background; returns at once. Idempotent."""
        ...

    async def check(self) -> None:
        """Refuse early, at no cost, what cannot work (no key, unknown model)."""
        ...

    def count(self, request: ModelRequest) -> int:
        """Prompt tokens of a request, by the best available tokenizer; never too low by more than a few per cent."""
        ...

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        """One call, no retries; `on_text` receives the visible text as it streams.

        `key` is the durable step's name (`plan`, `turn.1`): the same call has the same key in a resumed job.
        """
        ...


WireProtocol = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions, OpenAI's responses, Anthropic's messages."""

Body = Mapping[str, Any]


class ProtocolFields(NamedTuple):
    """The fields that a request of one protocol may have, and the name of its limit of output tokens.

    Those `passed_as_extra` are known to some providers only, and no more than a label or a way to think. Those that
    are `dropped` need headers of Anthropic's own, which are not passed on.
    """

    limit: str
    passed: frozenset[str]
    passed_as_extra: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()

    @property
    def known(self) -> frozenset[str]:
        return self.passed | self.passed_as_extra | self.dropped


_SAMPLING = words("temperature top_p tools tool_choice parallel_tool_calls")
_LABELS = words("metadata client_metadata user safety_identifier prompt_cache_key prompt_cache_retention service_tier")
FIELDS: Mapping[WireProtocol, ProtocolFields] = {
    "chat": ProtocolFields(
        "max_tokens",
        _SAMPLING
        | words("messages response_format stop n seed logit_bias logprobs top_logprobs")
        | words("presence_penalty frequency_penalty reasoning_effort verbosity"),
        _LABELS
        | words("reasoning thinking enable_thinking chat_template_kwargs usage")
        | words("modalities top_k min_p repetition_penalty"),
    ),
    "responses": ProtocolFields(
        "max_output_tokens", _SAMPLING | words("input instructions reasoning text include truncation"), _LABELS
    ),
    "messages": ProtocolFields(
        "max_tokens",
        _SAMPLING | words("messages system top_k stop_sequences thinking"),
        dropped=words("metadata service_tier context_management output_config"),
    ),
}
OURS = words("model stream stream_options store max_tokens max_completion_tokens max_output_tokens")
"""Fields that the gateway sets for each call."""


class StreamEvent(NamedTuple):
    """One event of a streamed answer; events of chat completions have no names."""

    name: str
    data: dict[str, Any]


class RawProxyCall(Protocol):
    """One model behind one name, asked in any of the protocols. Raises only `app.llm.errors.ModelError`.

    `body` is the agent's request without the fields in OURS. Only what FIELDS lists is passed on, so an agent cannot
    set an address, a key, another model or a tool that the provider runs.
    """

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, protocol: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        """The events of one answer of at most `limit` tokens, as they arrive; one call, no retries."""
        ...

    async def complete(self, protocol: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        """The same answer as one document."""
        ...
