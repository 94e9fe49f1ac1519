"""The port for calls that an outside agent words itself: they are passed on in the agent's own protocol."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from app.model.base import ModelInfo

Wire = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions, OpenAI's responses, Anthropic's messages."""

Body = Mapping[str, Any]


class Event(NamedTuple):
    """One event of a streamed answer; chat completions have no names for theirs."""

    name: str
    data: dict[str, Any]


class Passage(Protocol):
    """One model behind one name, asked in any of the protocols. Raises only `app.model.errors.ModelError`.

    `body` is what the agent sent, fields and all, but for those that say which model and how much; nothing in it is
    taken for an option of ours: an address or a key in there is one more field of the request.
    """

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, wire: Wire, body: Body, limit: int) -> AsyncGenerator[Event]:
        """The events of one answer of at most `limit` tokens, as they come; one call, no retries."""
        ...

    async def whole(self, wire: Wire, body: Body, limit: int) -> dict[str, Any]:
        """The same answer in one document."""
        ...
