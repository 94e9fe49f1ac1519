"""A model behind a real endpoint that reads its requests, so that one script serves a whole conversation."""

import json
from collections.abc import Callable
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
        planned = [number for number, (_, text) in enumerate(self.texts) if text.startswith("Now do the work.")]
        return sum(role == "assistant" for role, _ in self.texts[planned[0] if planned else 0 :]) + 1

    @property
    def wants_a_plan(self) -> bool:
        return any(words in self.texts[-1][1] for words in ("with one JSON object", "Make the plan anew"))

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


def planned(summary: str, *steps: str, questions: tuple[str, ...] = ()) -> Reply:
    plan = {
        "summary": summary,
        "hypotheses": [],
        "candidate_files": [],
        "steps": list(steps),
        "reproduce": "",
        "verify": "",
        "questions": list(questions),
    }
    return answer(json.dumps(plan))


def called(*calls: tuple[str, dict[str, Any]]) -> Reply:
    """A turn of tool calls."""
    return answer(tools=[(f"call-{number}", name, json.dumps(given)) for number, (name, given) in enumerate(calls)])


def submitted(summary: str, reproduction: str = "") -> Reply:
    return called(("submit", {"summary": summary, "reproduction": reproduction}))


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
