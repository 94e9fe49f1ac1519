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
from bench.script import AuthorScript, Files, Move, Part, Search, View
from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply, declines, error

PLAN = {"summary": "Let both end the clause.", "hypotheses": ["a fixed list"], "steps": ["test", "fix", "test"]}
_BEGIN = "make no plan"
_PLAN = re.compile("Answer (?:again )?with one JSON object")
SUMMARY = "Work so far: the lists of keywords were extended, tests were added beside the old ones and pass. " * 12
"""What a harness gets that asks for a summary of its own conversation: about as long as models make them."""
_CHANGE = "Test this change."
"""How the brief of the author begins who sees the change."""
_FINISHES = 3
"""How often the end is said again to a harness that does not take it at once."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request: sizes in tokens and characters, and how much of it stood at the head of an earlier one.

    `step` is the move it was answered with; None where it got none: a plan, a summary, an author of tests. `gap` is
    seconds from the answer before until it came, `cpu` those of processors that the harness itself used in them. `kept`
    is how much of the last request of its part it repeats, of `before` tokens. `answer` is the size of its own answer.
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
    part: Part = "work"
    answer: int = 0


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
    authors: Mapping[Part, AuthorScript] = field(default_factory=dict)
    """Those who write tests; without any, nobody does."""
    files: Files | None = None
    """The original files: what a request already shows of them, an author does not look at."""
    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _asked: int = 0
    _looked: dict[Part, int] = field(default_factory=dict)
    _last: dict[Part, Prompt] = field(default_factory=dict)
    _answered: float | None = None
    _used: float = 0.0
    _again: tuple[Mapping[str, Any], Turn] | None = None

    def answer(self, body: Mapping[str, Any], wire: int) -> Turn:
        """The next move for a request with tools, a text for one without. Raises IndexError behind the script's end."""
        arrived, used = self.clock(), self.cpu()
        if self._again is not None and self._again[0] == body:
            return self._again[1]
        part: Part = "work" if body.get("tools") else "summary"
        if asks_for_plan(body) and not (self.begins and _BEGIN in _text(body["messages"][-1])):
            part = "plan"
        turn = self._move(body) if part == "work" else Turn(json.dumps(PLAN) if part == "plan" else SUMMARY)
        gap = None if self._answered is None else arrived - self._answered
        self._record(part, body, wire, turn, gap=gap, cpu=used - self._used)
        self._again = (body, turn)
        self._answered, self._used = self.clock(), self.cpu()
        return turn

    def answer_author(self, body: Mapping[str, Any], wire: int) -> Turn:
        """The next look or the tests. Raises IndexError behind the tests."""
        part: Part = "second tests" if _CHANGE in "".join(map(_text, body["messages"])) else "specification"
        script, calls = self.authors[part], list[tuple[str, dict[str, Any]]]()
        shown = "".join(map(_text, body["messages"]))
        while not calls:
            number = self._looked[part] = self._looked.get(part, 0) + 1
            if number > len(script.looks) + 1:
                raise IndexError(f"the author of the {part} is at the end")
            if number == len(script.looks) + 1:
                files = [{"path": path, "content": text} for path, text in script.files.items()]
                calls = [("specify", {"files": files, "tests": script.tests})]
            else:
                calls = [_look(look) for look in script.looks[number - 1] if not self._shows(shown, look)]
        turn = Turn("", [(f"call-{number}-{at}", name, json.dumps(given)) for at, (name, given) in enumerate(calls)])
        self._record(part, body, wire, turn)
        return turn

    def _shows(self, text: str, look: View | Search) -> bool:
        """Whether all lines of a look stand in the text already."""
        if self.files is None or isinstance(look, Search):
            return False
        lines = self.files.lines(look.path)[(look.start or 1) - 1 : look.end]
        return all(line.strip() in text for line in lines)

    def _record(
        self, part: Part, body: Mapping[str, Any], wire: int, turn: Turn, *, gap: float | None = None, cpu: float = 0.0
    ) -> None:
        prompt = Prompt.of(body)
        before = self._last.get(part)
        self.records.append(
            Record(
                step=self._asked if part == "work" else None,
                wire=wire,
                characters=prompt.characters,
                tokens=prompt.tokens,
                cached=max((prompt.shared(other) for other in self._last.values()), default=0),
                kept=prompt.shared(before) if before else 0,
                before=before.tokens if before else 0,
                gap=gap,
                cpu=cpu,
                part=part,
                answer=tokens(turn.text) + sum(tokens(name + given) for _, name, given in turn.tools),
            )
        )
        self._last[part] = prompt

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


def _look(look: View | Search) -> tuple[str, dict[str, Any]]:
    if isinstance(look, Search):
        return "search", {"query": look.query}
    lines = {"start": look.start, "end": look.end} if look.start else {}
    return "view", {"path": look.path, **lines}


def asks_for_plan(body: Mapping[str, Any]) -> bool:
    """Ours asks for one JSON object in its last message."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages") or ()
    return bool(messages) and _PLAN.search(_text(messages[-1])) is not None


class CountingEndpoint(OpenAIEndpoint):
    """Many plays at one address, told apart by the first part of the path."""

    def __init__(self) -> None:
        super().__init__()
        self.author = self._author
        self._plays: dict[str, CountedScript] = {}

    def begin(self, name: str, play: CountedScript) -> str:
        """The base address for whoever performs it."""
        self._plays[name] = play
        return self.url.removesuffix("/v1") + f"/{name}/v1"

    def take(self, received: ReceivedRequest) -> Reply:
        return self._reply(received, CountedScript.answer)

    def _author(self, received: ReceivedRequest) -> Reply:
        play = self._plays.get(_name(received))
        return self._reply(received, CountedScript.answer_author) if play and play.authors else declines(received)

    def _reply(
        self, received: ReceivedRequest, answer: Callable[[CountedScript, Mapping[str, Any], int], Turn]
    ) -> Reply:
        play = self._plays.get(_name(received))
        if play is None:
            return error(404, f"nothing is played at {received.path}")
        try:
            turn = answer(play, received.body, int(received.headers.get("content-length", "0")))
        except (IndexError, ValueError) as problem:
            play.problems.append(str(problem))
            return error(400, str(problem))
        last = play.records[-1]
        usage = {"prompt_tokens": last.tokens, "completion_tokens": 100, "total_tokens": last.tokens + 100}
        details = {"prompt_tokens_details": {"cached_tokens": last.cached}}
        return turn.reply(streamed=bool(received.body.get("stream")), usage=usage | details)


def _name(received: ReceivedRequest) -> str:
    return received.path.strip("/").partition("/v1")[0]
