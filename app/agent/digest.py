"""What remains of old turns after a compaction: a digest written by rule, one line for each call."""

import json
import re
from collections.abc import Iterable, Sequence

from app.agent.turn import Checkpoint, Observation, Step
from app.agent.words import remembered
from app.model.base import ToolCall

_LONGEST_TARGET = 160
_MOST_MENTIONS = 30
_MOST_FAILING = 20
_MENTION = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.[a-zA-Z]\w{0,4}):(\d+)")
_FAILING = re.compile(
    r"""
    ^(?:FAILED|ERROR)\s(\S+::\S+)          # pytest's summary
    | ^(\S+::\S+)\s(?:FAILED|ERROR)\b      # pytest -v
    | ^(?:FAIL|ERROR):\s(\S+\s\(\S+\))     # unittest
    | ^\s*---\sFAIL:\s(\S+)                # go test
    | ^test\s(\S+)\s\.\.\.\sFAILED         # cargo test
    | ^\s*not\sok\s\d+\s-\s(.{1,120})      # TAP
    | ^\s*✖\s(.{1,120})                    # node --test
    """,
    re.VERBOSE | re.MULTILINE,
)
_TARGETS = ("command", "path", "query", "summary")


def digest(steps: Sequence[Step], room: int) -> str:
    """The old turns in at most `room` characters; where they do not fit, the oldest lines are left out and counted."""
    facts = "\n\n".join(part for part in (_changed(steps), _failing(steps), _mentions(steps)) if part)
    lines = [line for step in steps for line in _lines(step)]
    said = remembered(steps, room // 2)
    left = room - len(facts) - len(said) - 200
    kept: list[str] = []
    for line in reversed(lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    dropped = len(lines) - len(kept)
    head = [f"(… the first {dropped:,} lines are left out)"] if dropped else []
    turns = "Turns until now, one line for each call:\n" + "\n".join([*head, *reversed(kept)])
    return "\n\n".join(filter(None, (said, turns, facts)))[: max(room, 0)]


def _lines(step: Step) -> Iterable[str]:
    number = step.turn.number
    if said := " ".join(step.answer.content.split()):
        yield f"{number}. said: {said[:_LONGEST_TARGET]}"
    for call, observation in zip(step.turn.calls, step.turn.observations, strict=False):
        yield f"{number}. {call.name} {_target(call)} → {_outcome(observation)}"


def _target(call: ToolCall) -> str:
    arguments = json.loads(call.arguments)
    target = next((str(arguments[key]) for key in _TARGETS if key in arguments), "")
    target = " ".join(target.split())
    return target if len(target) <= _LONGEST_TARGET else f"{target[:_LONGEST_TARGET]}…"


def _outcome(observation: Observation) -> str:
    summary = observation.summary[:_LONGEST_TARGET]
    return summary if observation.outcome == "ok" else f"{observation.outcome}: {summary}"


def _changed(steps: Sequence[Step]) -> str:
    """The tree as the last checkpoint has it."""
    checkpoint = last_checkpoint(steps)
    if checkpoint is None or checkpoint.clean:
        return "Files changed so far: none."
    names = [f"{state.path}{' (deleted)' if state.digest is None else ''}" for state in checkpoint.files]
    return "Files changed so far:\n" + "\n".join(names[:100])


def last_checkpoint(steps: Sequence[Step]) -> Checkpoint | None:
    return next((step.turn.checkpoint for step in reversed(steps) if step.turn.checkpoint is not None), None)


def _failing(steps: Sequence[Step]) -> str:
    """Tests that failed in the newest output that named any."""
    for step in reversed(steps):
        found: dict[str, None] = {}
        for observation in step.turn.observations:
            if observation.tool in {"bash", "submit"}:
                found.update((next(filter(None, groups)), None) for groups in _FAILING.findall(observation.text))
        if found:
            return f"Failing tests last seen (turn {step.turn.number}):\n" + "\n".join(list(found)[:_MOST_FAILING])
    return ""


def _mentions(steps: Sequence[Step]) -> str:
    """Places named as file:line, the newest."""
    found: dict[str, None] = {}
    for step in reversed(steps):
        for observation in step.turn.observations:
            found.update((f"{path}:{line}", None) for path, line in _MENTION.findall(observation.text))
        if len(found) >= _MOST_MENTIONS:
            break
    return "Places mentioned last: " + ", ".join(list(found)[:_MOST_MENTIONS]) if found else ""
