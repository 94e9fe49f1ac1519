"""The conversation as the model gets it: append-only and byte-stable, until one rare compaction in one jump."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.agent.digest import digest
from app.agent.turn import Step
from app.agent.words import told
from app.model.base import Message, ModelInfo, Request, ToolSpec

_TARGET_SHARE = 0.4
"""A compaction brings the prompt down to this share of the window, so that the next one is far away."""
_LARGEST_ANSWER = 8_192
_PER_MESSAGE = 24
_MOST_RECENT = 8
_SMALLEST_DIGEST = 400
_DIGEST_HEAD = (
    "The conversation had grown too long; its earlier part is replaced by this digest. Files keep their state, outputs "
    "under /tmp/output can still be viewed.\n\n"
)


@dataclass(slots=True)
class History:
    """Messages of the head, then of every step. The same steps always give the same bytes."""

    head: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    info: ModelInfo
    steps: list[Step] = field(default_factory=list)
    _messages: list[Message] = field(default_factory=list)
    _known: tuple[int, int] = (0, 0)
    """Prompt tokens the provider last counted, and the characters they were."""
    _density: float = 3.5
    """Characters per token, as the provider counts."""

    def __post_init__(self) -> None:
        self._messages = list(self.head)

    @property
    def reserve(self) -> int:
        """Output tokens kept free for the next answer."""
        return min(_LARGEST_ANSWER, self.info.max_output, max(self.info.context_window // 4, 1))

    def request(self) -> Request:
        return Request(messages=tuple(self._messages), tools=self.tools, max_tokens=self.reserve)

    def add(self, step: Step) -> None:
        usage = step.answer.usage
        if usage.prompt_tokens and not usage.estimated:
            self._known = (usage.prompt_tokens, self._characters())
            self._density = min(max(self._characters() / usage.prompt_tokens, 2.0), 5.0)
        self.steps.append(step)
        self._messages += messages_of(step)

    def tokens(self) -> int:
        """The prompt's size: what the provider counted of it, and an estimate for what came since."""
        tokens, characters = self._known
        return tokens + int((self._characters() - characters) / self._density)

    def full(self) -> bool:
        """Whether prompt and answer no longer fit the window together."""
        return self.tokens() + self.reserve > self.info.context_window

    def compact(self) -> bool:
        """Replace old turns by a digest; False where that would not make the prompt clearly smaller."""
        before = self._characters()
        goal = min(self.info.context_window * _TARGET_SHARE * self._density, before * 0.6)
        room = int(goal) - _size(self.head) - self._tools_size()
        recent, tail = self._recent(room * 2 // 3)
        room -= _size(tail) + len(_DIGEST_HEAD) + _PER_MESSAGE
        if not self.steps or room < _SMALLEST_DIGEST:
            return False
        text = _DIGEST_HEAD + digest(self.steps[: len(self.steps) - recent], room)
        self._messages = [*self.head, Message(role="user", content=text), *tail]
        self._known = (0, 0)
        return True

    def _recent(self, room: int) -> tuple[int, list[Message]]:
        """How many of the last steps stay as they were, and their messages."""
        tail: list[Message] = []
        for recent in range(min(_MOST_RECENT, len(self.steps))):
            longer = messages_of(self.steps[-1 - recent]) + tail
            if _size(longer) > room:
                return recent, tail
            tail = longer
        return min(_MOST_RECENT, len(self.steps)), tail

    def _characters(self) -> int:
        return _size(self._messages) + self._tools_size()

    def _tools_size(self) -> int:
        return sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in self.tools)


def messages_of(step: Step) -> list[Message]:
    """An answer, one message for each of its calls, and what the harness and people had to say."""
    calls = step.turn.calls
    content = step.answer.content.encode("utf-8", "replace").decode()
    if not calls and not content.strip():
        content = "(no answer)"  # providers refuse empty messages
    messages = [Message(role="assistant", content=content, tool_calls=calls)]
    messages += [
        Message(role="tool", content=observation.text, tool_call_id=observation.call_id)
        for observation in step.turn.observations
    ]
    said = [*step.turn.notes, *([told(step.turn.words)] if step.turn.words else [])]
    if said:
        messages.append(Message(role="user", content="\n\n".join(said)))
    return messages


def _size(messages: Sequence[Message]) -> int:
    """Characters of messages with what surrounds them in a request."""
    return sum(
        len(message.content)
        + _PER_MESSAGE
        + sum(len(call.name) + len(call.arguments) + _PER_MESSAGE for call in message.tool_calls)
        for message in messages
    )
