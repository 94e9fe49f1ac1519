"""A model behind a real endpoint that reads its requests, so that one script serves a whole conversation."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply, answer


@dataclass(frozen=True)
class ModelQuestion:
    """One request to the model."""

    body: dict[str, Any]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Role and text of every message."""
        return [(message["role"], _text(message.get("content"))) for message in self.body["messages"]]

    @property
    def system(self) -> str:
        return self.texts[0][1]

    @property
    def brief(self) -> str:
        return next(text for role, text in self.texts if role == "user")

    @property
    def turn(self) -> int:
        """1 for the first answer of a conversation, and again for the first after its plan."""
        planned = [number for number, (_, text) in enumerate(self.texts) if _WORK in text]
        return sum(role == "assistant" for role, _ in self.texts[planned[0] if planned else 0 :]) + 1

    @property
    def wants_a_plan(self) -> bool:
        return "# How to plan" in self.brief and not self.says(_WORK)

    def says(self, words: str) -> bool:
        return any(words in text for _, text in self.texts)


class ConversationModel(OpenAIEndpoint):
    """Serves what `think` answers; may be asked by several jobs at once."""

    def __init__(self, think: Callable[[ModelQuestion], Reply]) -> None:
        super().__init__()
        self._think = think

    def take(self, received: ReceivedRequest) -> Reply:
        self.requests.append(received)
        return self._think(ModelQuestion(received.body))


_WORK = "Now do the work."


def planned(
    summary: str, *steps: str, questions: tuple[str, ...] = (), examples: Sequence[Mapping[str, Any]] = ()
) -> Reply:
    """A plan; without examples it is written as text, which is taken at once."""
    plan: dict[str, Any] = {"summary": summary, "files": [], "steps": list(steps), "questions": list(questions)}
    return called(("plan", {"examples": list(examples), **plan})) if examples else answer(json.dumps(plan))


def called(*calls: tuple[str, dict[str, Any]]) -> Reply:
    """A turn of tool calls."""
    return answer(tools=[(f"call-{number}", name, json.dumps(given)) for number, (name, given) in enumerate(calls)])


def submitted(summary: str, reproduction: str = "") -> Reply:
    return called(("submit", {"summary": summary, "reproduction": reproduction}))


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
