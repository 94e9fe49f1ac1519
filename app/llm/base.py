"""The port to a language model: a request goes in, an answer with its usage comes out, errors have kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from app.core.model_names import WorkKind
from app.core.money import MicroUSD
from app.core.record import Record

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ToolCall(Record):
    """A call as the model wrote it: `arguments` is raw text that may not even be JSON."""

    id: str
    name: str
    arguments: str


class ImageContent(Record):
    """An image that goes with a message; `data` is its bytes in base64."""

    media_type: str
    data: str


class Message(Record):
    """One entry of the append-only history, in the shape every chat protocol shares."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    thinking: tuple[dict[str, Any], ...] = ()
    """Of an assistant: what it thought, in its provider's own signed blocks, which go back as they came."""
    images: tuple[ImageContent, ...] = ()
    """Of a user, for a model that sees (`ModelInfo.vision`)."""


class ToolSpec(Record):
    """A tool as the model is told of it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(Record):
    """Tokens and price of one call; `estimated` where the provider did not say (a cut stream, a lost answer)."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: MicroUSD = 0
    estimated: bool = False


class AnswerOrigin(Record):
    """For which kind of work a model answered, and why it was not the model that is there for it.

    `because` is the reason (`app.llm.errors`) why `instead_of` gave no answer; both are empty where it did.
    """

    kind: WorkKind = "code"
    instead_of: str = ""
    because: str = ""


class ModelAnswer(Record):
    """What one paid call brought; stored before any of its tool calls is carried out."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: tuple[dict[str, Any], ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    origin: AnswerOrigin = AnswerOrigin()


class ModelRequest(Record):
    """Everything sent to the model. `schema` asks for structured output of that JSON schema."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema_name: str = ""
    response_schema: dict[str, Any] | None = None
    max_tokens: int = 8_192

    @property
    def images(self) -> int:
        """How many go with it."""
        return sum(len(message.images) for message in self.messages)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model: window sizes in tokens, prices in micro-dollars per million tokens.

    `cache_write_price` is what a prompt token costs where writing the cache is dearer than reading past it. Prompts of
    more than `long_prompt` tokens cost the `long_` prices; 0 where the provider has no such step. `thinking` is how
    many tokens the model may think besides what it is to write; `endpoint` where it is, if that is no provider's own;
    `vision` whether it is known to take images.
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
        """Begin slow preparations (imports) in the background; returns at once, safe to say twice."""
        ...

    async def check(self) -> None:
        """Refuse early what cannot work (no key, unknown model), at no cost."""
        ...

    def count(self, request: ModelRequest) -> int:
        """Prompt tokens of a request, by the best tokenizer at hand; never too low by more than a few per cent."""
        ...

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        """One call, no retries; `on_text` receives the visible text as it streams.

        `key` is the durable step's name (`plan`, `turn.1`): the same call has the same key in a resumed job.
        """
        ...
