"""Recorded answers that a test writes: `RecordedAnswers().plan("…").turn("Look.",
view("money.py")).submit("Done.")`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from app.llm.base import FinishReason, ModelAnswer, ToolCall, Usage
from app.llm.replay import RecordingHeader, RecordingLine

COST = 1_000
"""Micro-dollars of each answer."""
WINDOW = 10_000_000


class Call(NamedTuple):
    """A tool call before it has an id; `arguments` is raw where a model writes nonsense."""

    name: str
    arguments: str


def call(name: str, arguments: Mapping[str, object]) -> Call:
    return Call(name, json.dumps(arguments))


def bash(command: str, *, timeout: float = 60) -> Call:
    return call("bash", {"command": command, "timeout": timeout})


def view(path: str) -> Call:
    return call("view", {"path": path})


def edit(path: str, old_text: str, new_text: str) -> Call:
    return call("edit", {"path": path, "old_text": old_text, "new_text": new_text})


def write(path: str, content: str) -> Call:
    return call("write", {"path": path, "content": content})


class RecordedAnswers:
    """The answers of one job, in the order in which its steps ask for them."""

    def __init__(self) -> None:
        self._lines: list[RecordingLine] = []
        self._turns = 0
        self._plans = 0
        self._prefix = ""
        self._vision = False
        self._reviewed = False

    @property
    def answers(self) -> int:
        return len(self._lines)

    def plan(
        self, summary: str = "Mend it.", *, examples: Sequence[Mapping[str, object]] = (), **fields: list[str]
    ) -> Self:
        """The plan; without examples it is written as text, which is taken at once."""
        self._plans += 1
        given = {"summary": summary, **fields}
        if not examples:
            return self._add(f"plan.{self._plans}", ModelAnswer(content=json.dumps(given)))
        handed_in = ToolCall(id="call-1", name="plan", arguments=json.dumps({"examples": examples, **given}))
        return self._add(f"plan.{self._plans}", ModelAnswer(tool_calls=(handed_in,), finish_reason="tool_calls"))

    def counter(self, *examples: Mapping[str, object], reason: str = "") -> Self:
        """The reviewer's only answer; a recording in which nothing is said has one without examples."""
        self._reviewed = True
        given = json.dumps({"examples": examples, "reason": reason})
        call_made = ToolCall(id="call-1", name="counter", arguments=given)
        answer = ModelAnswer(tool_calls=(call_made,), finish_reason="tool_calls")
        return self._add(f"{self._prefix}review.1", answer)

    def opinion(self, whose: str, *outputs: str | None) -> Self:
        """What another conversation derives for failing examples of the `author` or `reviewer`, in their order: an
        output, "" if it cannot tell, None for what was printed before."""
        answers = [
            {"number": number, "output": output or "", "as_before": output is None}
            for number, output in enumerate(outputs, 1)
        ]
        return self._add(f"opinion.{whose}", ModelAnswer(content=json.dumps({"answers": answers})))

    def propose_setup(self, *setup: str, test: str) -> Self:
        return self._add("setup", ModelAnswer(content=json.dumps({"setup": setup, "test": test})))

    def sees(self, description: str) -> Self:
        """The recorded model takes images, and says this of those of the issue."""
        self._vision = True
        return self._add("images", ModelAnswer(content=description))

    def attempt(self, number: int) -> Self:
        """What follows are the answers of that attempt."""
        self._turns, self._prefix = 0, f"attempt.{number}."
        return self

    def turn(self, text: str, *calls: Call, finish: FinishReason | None = None) -> Self:
        self._turns += 1
        numbered = tuple(
            ToolCall(id=f"call-{self._turns}-{index}", name=made.name, arguments=made.arguments)
            for index, made in enumerate(calls)
        )
        ending = finish or ("tool_calls" if calls else "stop")
        return self._add(
            f"{self._prefix}turn.{self._turns}", ModelAnswer(content=text, tool_calls=numbered, finish_reason=ending)
        )

    def submit(
        self, summary: str, reproduction: str = "", *lessons: str, objections: Mapping[str, str] | None = None
    ) -> Self:
        disputed = [{"example": name, "reason": reason} for name, reason in (objections or {}).items()]
        more = {**({"lessons": list(lessons)} if lessons else {}), **({"objections": disputed} if disputed else {})}
        return self.turn("Submit.", call("submit", {"summary": summary, "reproduction": reproduction, **more}))

    def save(self, path: Path) -> Path:
        """A file for `--model recorded/FILE`."""
        if not self._reviewed:
            self.counter(reason="The recording has no counter-examples.")
        header = RecordingHeader(model="hand-written", context_window=WINDOW, vision=self._vision)
        lines = [header.model_dump_json(), *(line.model_dump_json() for line in self._lines)]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    def _add(self, key: str, answer: ModelAnswer) -> Self:
        usage = Usage(prompt_tokens=1_000, completion_tokens=50, cost=COST)
        self._lines.append(RecordingLine(key=key, answer=answer.model_copy(update={"usage": usage})))
        return self
