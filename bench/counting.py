"""The endpoint that plays the model for every harness: it answers from the script, and records each request."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from time import monotonic
from typing import Any

from app.llm.tokens import count_text
from bench.dialect import OfferedTools, call
from bench.endpoint import Turn
from bench.script import Move
from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply, error

PLAN = {"summary": "Let both end the clause.", "hypotheses": ["a fixed list"], "steps": ["test", "fix", "test"]}
_BEGIN = "make no plan"
_PLAN = re.compile("Answer (?:again )?with one JSON object")
SUMMARY = "Work so far: the lists of keywords were extended, tests were added beside the old ones and pass. " * 12
"""What a harness gets that asks for a summary of its own conversation: about as long as models make them."""
_FINISHES = 3
"""How often the end is said again to a harness that does not take it at once."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request: sizes in tokens and characters, and how much of it stood at the head of an earlier one.

    `step` is the move it was answered with; None where it offered no tools, and so got no move. `gap` is seconds from
    the answer before until it came, `cpu` those of processors that the harness itself used in them. `kept` is how much
    of the last request with tools it repeats, of `before` tokens.
    """

    step: int | None
    wire: int
    characters: int
    tokens: int
    cached: int
    kept: int
    before: int
    gap: float | None
    cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as a provider reads it: tools first, then message after message."""

    parts: Sequence[str]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Prompt":
        tools = body.get("tools")
        head = [json.dumps(tools, ensure_ascii=False)] if tools else []
        return cls([*head, *map(_text, body.get("messages", ()))])

    @property
    def characters(self) -> int:
        return sum(map(len, self.parts))

    @property
    def tokens(self) -> int:
        return sum(map(tokens, self.parts))

    def shared(self, other: "Prompt") -> int:
        """Tokens of the common beginning."""
        total = 0
        for mine, theirs in zip(self.parts, other.parts, strict=False):
            if mine != theirs:
                return total + tokens(mine[: _common(mine, theirs)])
            total += tokens(mine)
        return total


def tokens(text: str) -> int:
    """By OpenAI's tokenizer, without the margin that our own counting adds for the sake of limits."""
    return count_text("gpt-4", text) * 100 // 105


def _common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return "\n".join([message["role"], content, *(f"{call['name']} {call['arguments']}" for call in calls)])


@dataclass(slots=True)
class CountedScript:
    """One harness at one script. A request that is sent again gets the same answer again.

    `begins`: the script begins where it may do so without a plan.
    """

    moves: Sequence[Move]
    root: PurePosixPath
    clock: Callable[[], float] = monotonic
    cpu: Callable[[], float] = float
    """Seconds of processors that whoever asks has used."""
    begins: bool = False
    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _asked: int = 0
    _last: dict[bool, Prompt] = field(default_factory=dict)
    _answered: float | None = None
    _used: float = 0.0
    _again: tuple[Mapping[str, Any], Turn] | None = None

    def answer(self, body: Mapping[str, Any], wire: int) -> Turn:
        """The next move for a request with tools, a text for one without. Raises IndexError behind the script's end."""
        arrived, used = self.clock(), self.cpu()
        if self._again is not None and self._again[0] == body:
            return self._again[1]
        planning = asks_for_plan(body) and not (self.begins and _BEGIN in _text(body["messages"][-1]))
        prompt, tooled = Prompt.of(body), bool(body.get("tools")) and not planning
        turn = self._move(body) if tooled else Turn(json.dumps(PLAN) if planning else SUMMARY)
        before = self._last.get(True) if tooled else None
        self.records.append(
            Record(
                step=self._asked if tooled else None,
                wire=wire,
                characters=prompt.characters,
                tokens=prompt.tokens,
                cached=max((prompt.shared(other) for other in self._last.values()), default=0),
                kept=prompt.shared(before) if before else 0,
                before=before.tokens if before else 0,
                gap=None if self._answered is None else arrived - self._answered,
                cpu=used - self._used,
            )
        )
        self._last[tooled] = prompt
        self._again = (body, turn)
        self._answered, self._used = self.clock(), self.cpu()
        return turn

    def _move(self, body: Mapping[str, Any]) -> Turn:
        if self._asked >= len(self.moves) + _FINISHES - 1:
            raise IndexError("the script is at its end")
        move = self.moves[min(self._asked, len(self.moves) - 1)]
        self._asked += 1
        name, arguments = call(move, OfferedTools.of(body), self.root)
        return Turn(move.report, [(f"call-{self._asked}", name, arguments)])

    @property
    def done(self) -> bool:
        return self._asked >= len(self.moves)


def asks_for_plan(body: Mapping[str, Any]) -> bool:
    """Ours asks for one JSON object in its last message."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages") or ()
    return bool(messages) and _PLAN.search(_text(messages[-1])) is not None


class CountingEndpoint(OpenAIEndpoint):
    """Many plays at one address, told apart by the first part of the path."""

    def __init__(self) -> None:
        super().__init__()
        self._plays: dict[str, CountedScript] = {}

    def begin(self, name: str, play: CountedScript) -> str:
        """The base address for whoever performs it."""
        self._plays[name] = play
        return self.url.removesuffix("/v1") + f"/{name}/v1"

    def take(self, received: ReceivedRequest) -> Reply:
        name = received.path.strip("/").partition("/v1")[0]
        play = self._plays.get(name)
        if play is None:
            return error(404, f"nothing is played at {received.path}")
        try:
            turn = play.answer(received.body, int(received.headers.get("content-length", "0")))
        except (IndexError, ValueError) as problem:
            play.problems.append(str(problem))
            return error(400, str(problem))
        last = play.records[-1]
        usage = {"prompt_tokens": last.tokens, "completion_tokens": 100, "total_tokens": last.tokens + 100}
        details = {"prompt_tokens_details": {"cached_tokens": last.cached}}
        return turn.reply(streamed=bool(received.body.get("stream")), usage=usage | details)
