"""The conversation as sent to the model: append-only with stable bytes, apart from rare compactions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.agent.digest import digest
from app.agent.step import Step, format_messages
from app.llm.base import Message, ModelInfo, ModelRequest, ToolSpec

_TARGET_SHARE = 0.4
"""A compaction reduces the prompt to this share of the window, so that the next one is far away."""
_KEPT = 6_000
"""Maximum tokens after a compaction, besides the head: a digest and the last turns."""
_LOOKUP_TOKENS = 2_000
"""Estimated tokens to look up again what a compaction dropped."""
_EARLIEST = 10_000
"""Tokens besides the head below which a compaction is never worth it."""
_LIGHTEST = 6.0
"""Characters per token: a provider that counts fewer tokens leaves some out (cached ones) and is not believed."""
_GROWN_LESS = 0.95
"""A share of a size that was refused; larger prompts are not tried again."""
_CLEARLY_SMALLER = 0.8
"""A share of its size to which a compaction must reduce the prompt at least."""
_MAX_ANSWER_SIZE = 8_192
_PER_MESSAGE = 24
_MAX_RECENT = 8
_MIN_DIGEST = 400
_DIGEST_HEAD = (
    "The earlier part of the conversation is replaced by this digest. Files are as you left them: view again what you "
    "need of them. Outputs under /tmp/output can still be viewed.\n\n"
)


@dataclass(slots=True)
class ConversationHistory:
    """Messages of the head, then of every step. The same steps always give the same bytes."""

    head: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    info: ModelInfo
    steps: list[Step] = field(default_factory=list)
    window: int = 0
    """Tokens of prompt and answer together: the model's known window, or less if the provider refused a smaller one."""
    _messages: list[Message] = field(default_factory=list)
    _head: int = 0
    """Characters of the head and the tools."""
    _size: int = 0
    """Characters of the whole prompt."""
    _known: tuple[int, int] = (0, 0)
    """Prompt tokens that the provider last counted, and the characters they stand for."""
    _density: float = 3.5
    """Characters per token, as counted by the provider."""
    _carried: int = 0
    """The cost so far of sending what a compaction would have dropped."""

    def __post_init__(self) -> None:
        self.window = self.info.context_window
        self._messages = list(self.head)
        self._head = self._size = _size(self.head) + _size_of_tools(self.tools)

    @property
    def reserve(self) -> int:
        """Output tokens to keep free for the next answer."""
        return min(_MAX_ANSWER_SIZE, self.info.max_output, max(self.window // 4, 1))

    def request(self) -> ModelRequest:
        return ModelRequest(messages=tuple(self._messages), tools=self.tools, max_tokens=self.reserve)

    def add(self, step: Step) -> None:
        usage = step.answer.usage
        if self._size / _LIGHTEST <= usage.prompt_tokens <= self.info.context_window and not usage.estimated:
            self._known = (usage.prompt_tokens, self._size)
            self._density = max(self._size / usage.prompt_tokens, 2.0)
        self._carried += max(0, self.tokens() - self._goal()) * _prices(self.info)[1]
        made = messages_of(step)
        self.steps.append(step)
        self._messages += made
        self._size += _size(made)

    def tokens(self) -> int:
        """The prompt's size: the provider's last count plus an estimate for what is new."""
        tokens, characters = self._known
        return tokens + int((self._size - characters) / self._density)

    def full(self) -> bool:
        """True if prompt and answer no longer fit into the window together."""
        return self.tokens() + self.reserve > self.window

    def should_compact_for_cost(self) -> bool:
        """True if sending the old turns has cost as much as dropping them, which makes the prompt new to every cache
        and requires looking things up again.

        Compacting at this point never costs more than twice the best choice, whenever the work ends.
        """
        head = self._head / self._density
        if self.tokens() < head + _EARLIEST:
            return False
        fresh, cached = _prices(self.info)
        return self._carried >= (self._goal() - head) * max(fresh - cached, 0) + _LOOKUP_TOKENS * fresh

    def refused(self) -> None:
        """The provider refused the prompt: assume that its window is smaller from now on."""
        self.window = min(self.window, max(int((self.tokens() + self.reserve) * _GROWN_LESS), 1))

    def compact(self) -> bool:
        """Replace old turns by a digest; False if that would not make the prompt clearly smaller."""
        self._carried = 0
        smallest = len(_DIGEST_HEAD) + _PER_MESSAGE + _MIN_DIGEST
        space = max(int(min(self._goal() * self._density, self._size * 0.6)) - self._head, smallest)
        if not self.steps or self._head + space > self._size * _CLEARLY_SMALLER:
            return False
        recent, tail = self._recent(min(space * 2 // 3, space - smallest))
        space -= _size(tail) + len(_DIGEST_HEAD) + _PER_MESSAGE
        text = _DIGEST_HEAD + digest(self.steps[: len(self.steps) - recent], space)
        self._messages = [*self.head, Message(role="user", content=text), *tail]
        self._size = self._head + _size(self._messages[len(self.head) :])
        self._known = (0, 0)
        return True

    def _goal(self) -> int:
        """Tokens of the prompt after a compaction."""
        return int(min(self.window * _TARGET_SHARE, self._head / self._density + _KEPT))

    def _recent(self, space: int) -> tuple[int, list[Message]]:
        """How many of the last steps stay unchanged, and their messages."""
        tail: list[Message] = []
        for recent in range(min(_MAX_RECENT, len(self.steps))):
            longer = messages_of(self.steps[-1 - recent]) + tail
            if _size(longer) > space:
                return recent, tail
            tail = longer
        return min(_MAX_RECENT, len(self.steps)), tail


def _prices(info: ModelInfo) -> tuple[int, int]:
    """The prices of an uncached and a cached prompt token; a usual ratio if unknown."""
    fresh = max(info.input_price, info.cache_write_price)
    return (fresh, info.cached_price) if fresh else (10, 1)


def messages_of(step: Step) -> list[Message]:
    """The answer, one message for each of its calls, and messages of the harness and of people."""
    calls = step.turn.calls
    content = step.answer.content.encode("utf-8", "replace").decode()
    if not calls and not content.strip():
        content = "(no answer)"  # providers refuse empty messages
    messages = [Message(role="assistant", content=content, tool_calls=calls, thinking=step.answer.thinking)]
    messages += [
        Message(role="tool", content=observation.text, tool_call_id=observation.call_id)
        for observation in step.turn.observations
    ]
    additions = [*step.turn.notes, *filter(None, [step.turn.base_suite, format_messages(step.turn.user_messages)])]
    if additions:
        messages.append(Message(role="user", content="\n\n".join(additions)))
    return messages


def _size(messages: Sequence[Message]) -> int:
    """Characters of messages, including what surrounds them in a request."""
    return sum(
        len(message.content)
        + _PER_MESSAGE
        + sum(len(call.name) + len(call.arguments) + _PER_MESSAGE for call in message.tool_calls)
        + sum(len(str(block.get("thinking", ""))) + _PER_MESSAGE for block in message.thinking)
        for message in messages
    )


def _size_of_tools(tools: Sequence[ToolSpec]) -> int:
    return sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in tools)
