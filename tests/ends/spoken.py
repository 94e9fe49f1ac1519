"""A model that says what is played without a wire: for cases in which it does not matter how an answer comes."""

from app.model.base import Answer, ModelInfo, OnText, Request, ToolCall, Usage
from app.model.prices import cost_of
from app.model.stream import FINISH
from app.model.tokens import estimate_tokens
from app.model.wire import Dialect, body
from tests.ends.endpoint import Player
from tests.fakes.openai_endpoint import Received, Reply

USAGE = Usage(prompt_tokens=120, completion_tokens=30)


class SpokenModel:
    """Asks the player as an endpoint would; only whole streams can be said like this."""

    def __init__(self, info: ModelInfo, player: Player) -> None:
        self._info = info
        self._player = player

    @property
    def info(self) -> ModelInfo:
        return self._info

    def warm(self) -> None:
        """Nothing is slow here."""

    async def check(self) -> None:
        """Nothing can be missing."""

    def count(self, request: Request) -> int:
        return estimate_tokens(request)

    async def complete(self, request: Request, *, key: str = "", on_text: OnText | None = None) -> Answer:
        answer = _answer(self._player.take(Received("/chat/completions", {}, body(request, Dialect()))))
        usage = USAGE.model_copy(update={"cost": cost_of(self._info, USAGE)})
        return answer.model_copy(update={"usage": usage, "model": self._info.name})


def _answer(reply: Reply) -> Answer:
    choices = [event["choices"][0] for event in reply.events if isinstance(event, dict) and event["choices"]]
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    said = next(filter(None, (choice["finish_reason"] for choice in choices)))
    finish = FINISH.get(said, "stop")
    return Answer(
        content="".join(choice["delta"].get("content") or "" for choice in choices),
        tool_calls=tuple(ToolCall(id=call["id"], **call["function"]) for call in calls),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
    )
