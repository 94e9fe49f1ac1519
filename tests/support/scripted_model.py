"""A model that plays a script: answers, errors and functions of the request, one per call, in order."""

from collections.abc import Callable, Iterable

from app.llm.base import ModelAnswer, ModelInfo, ModelRequest, OnText, ToolCall, Usage
from app.llm.errors import ModelError

Turn = ModelAnswer | ModelError | Callable[[ModelRequest], ModelAnswer]

USAGE = Usage(prompt_tokens=100, cached_tokens=40, completion_tokens=10, cost=1_000)


def text(content: str, *, usage: Usage = USAGE) -> ModelAnswer:
    """An answer without tool calls."""
    return ModelAnswer(content=content, usage=usage)


def call(name: str, arguments: str, *, id: str = "call-1", content: str = "", usage: Usage = USAGE) -> ModelAnswer:  # noqa: A002
    """An answer with one tool call; `arguments` is the raw JSON text."""
    calls = (ToolCall(id=id, name=name, arguments=arguments),)
    return ModelAnswer(content=content, tool_calls=calls, finish_reason="tool_calls", usage=usage)


class ScriptedModel:
    """Plays `turns` once, in order; one call too many fails the test. `requests` and `keys` say what was asked."""

    def __init__(
        self, turns: Iterable[Turn], *, info: ModelInfo | None = None, refuse: ModelError | None = None
    ) -> None:
        self._turns = list(turns)
        self._info = info or ModelInfo(name="scripted", context_window=128_000, max_output=8_192)
        self._refuse = refuse
        self.requests: list[ModelRequest] = []
        self.keys: list[str] = []

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def calls(self) -> int:
        return len(self.requests)

    @property
    def left(self) -> int:
        """Turns that were not played yet."""
        return len(self._turns) - self.calls

    def warm(self) -> None:
        """There is nothing to load."""

    async def check(self) -> None:
        if self._refuse is not None:
            raise self._refuse

    def count(self, request: ModelRequest) -> int:
        """Characters / 4, so that tests can steer it by the length of a text."""
        return (
            sum(
                len(message.content) + sum(len(c.arguments) for c in message.tool_calls) for message in request.messages
            )
            // 4
        )

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        self.requests.append(request)
        self.keys.append(key)
        assert self.calls <= len(self._turns), f"the script has {len(self._turns)} turns, and another was asked: {key}"
        turn = self._turns[self.calls - 1]
        if isinstance(turn, ModelError):
            raise turn
        answer = turn if isinstance(turn, ModelAnswer) else turn(request)
        if on_text is not None and answer.content:
            on_text(answer.content)
        return answer.model_copy(update={"model": answer.model or self._info.name})
