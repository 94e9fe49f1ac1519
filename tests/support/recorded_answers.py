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
        self._specified = 0
        self._prefix = ""
        self._vision = False
        self._second_tests = False

    @property
    def answers(self) -> int:
        return len(self._lines)

    def plan(self, summary: str = "Mend it.", **fields: str | list[str]) -> Self:
        return self._add("plan", ModelAnswer(content=json.dumps({"summary": summary, **fields})))

    def specify(self, files: Mapping[str, str], *tests: str, reason: str = "", outdated: Sequence[str] = ()) -> Self:
        """The author's next answer. Without files, `reason` says why there can be no tests."""
        self._specified += 1
        return self._add(f"specification.{self._specified}", _handed_in(files, tests, reason, outdated))

    def test_change(self, files: Mapping[str, str], *tests: str, reason: str = "") -> Self:
        """The second author's only answer; a recording in which nothing is said has one without tests."""
        self._second_tests = True
        return self._add(f"{self._prefix}second_tests.1", _handed_in(files, tests, reason))

    def decide_objection(self, *withdrawn: str, reason: str = "The issue says so.") -> Self:
        """What the third call decides of an objection: which tests it withdraws."""
        decided = {"withdrawn": withdrawn, "reason": reason}
        return self._add(f"{self._prefix}objection", ModelAnswer(content=json.dumps(decided)))

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

    def submit(self, summary: str, reproduction: str = "", *lessons: str, objection: str = "") -> Self:
        more = {**({"lessons": list(lessons)} if lessons else {}), **({"objection": objection} if objection else {})}
        return self.turn("Submit.", call("submit", {"summary": summary, "reproduction": reproduction, **more}))

    def save(self, path: Path) -> Path:
        """A file for `--model recorded/FILE`."""
        if not self._second_tests:
            self.test_change({}, reason="The recording has no tests against the change.")
        header = RecordingHeader(model="hand-written", context_window=WINDOW, vision=self._vision)
        lines = [header.model_dump_json(), *(line.model_dump_json() for line in self._lines)]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    def _add(self, key: str, answer: ModelAnswer) -> Self:
        usage = Usage(prompt_tokens=1_000, completion_tokens=50, cost=COST)
        self._lines.append(RecordingLine(key=key, answer=answer.model_copy(update={"usage": usage})))
        return self


def _handed_in(
    files: Mapping[str, str], tests: Sequence[str], reason: str, outdated: Sequence[str] = ()
) -> ModelAnswer:
    """An author's tests, or the reason why there are none."""
    handed_in = [{"path": path, "content": text} for path, text in files.items()]
    given = {"files": handed_in, "tests": tests, "reason": reason, "outdated": outdated}
    call_made = ToolCall(id="call-1", name="specify", arguments=json.dumps(given))
    return ModelAnswer(tool_calls=(call_made,), finish_reason="tool_calls")
