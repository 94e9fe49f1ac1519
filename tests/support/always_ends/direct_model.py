"""A model that says what is played without a wire: for cases in which it does not matter how an answer comes."""

from app.llm.base import ModelAnswer, ModelInfo, ModelRequest, OnText, ToolCall, Usage
from app.llm.chat_format import FINISH, ChatDialect, request_body
from app.llm.prices import cost_of
from app.llm.tokens import estimate_tokens
from tests.support.always_ends.endpoint import CaseEndpoint
from tests.support.openai_endpoint import ReceivedRequest, Reply

USAGE = Usage(prompt_tokens=120, completion_tokens=30)


class DirectModel:
    """Asks the player as an endpoint would; only whole streams can be said like this."""

    def __init__(self, info: ModelInfo, player: CaseEndpoint) -> None:
        self._info = info
        self._player = player

    @property
    def info(self) -> ModelInfo:
        return self._info

    def warm(self) -> None:
        """Nothing is slow here."""

    async def check(self) -> None:
        """Nothing can be missing."""

    def count(self, request: ModelRequest) -> int:
        return estimate_tokens(request)

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        answer = _answer(
            self._player.take(ReceivedRequest("/chat/completions", {}, request_body(request, ChatDialect())))
        )
        usage = USAGE.model_copy(update={"cost": cost_of(self._info, USAGE)})
        return answer.model_copy(update={"usage": usage, "model": self._info.name})


def _answer(reply: Reply) -> ModelAnswer:
    choices = [event["choices"][0] for event in reply.events if isinstance(event, dict) and event["choices"]]
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    said = next(filter(None, (choice["finish_reason"] for choice in choices)))
    finish = FINISH.get(said, "stop")
    return ModelAnswer(
        content="".join(choice["delta"].get("content") or "" for choice in choices),
        tool_calls=tuple(ToolCall(id=call["id"], **call["function"]) for call in calls),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
    )
