"""Summarises old turns after a compaction, by rules: one line for each call."""

import json
import re
from collections.abc import Iterable, Sequence

from app.agent.step import Checkpoint, Observation, Step, remembered_messages
from app.llm.base import ToolCall

_WIDTHS = (160, 100, 60)
"""Characters for text and for actions; the more turns, the narrower."""
_MAX_OUTCOME_LENGTH = 160
_MAX_VERDICT_LENGTH = 120
_MAX_MENTIONS = 30
_MAX_FAILING = 20
_MAX_ERRORS = 8
_MAX_ERROR_LENGTH = 160
_MAX_REJECTION_LENGTH = 1_500
_MIN_PART = 80
_MENTION = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.[a-zA-Z]\w{0,4}):(\d+)")
_FAILING = re.compile(
    r"""
    ^(?:FAILED|ERROR)\s(\S+::[^\s\[]+(?:\[[^]\n]*])?)         # pytest's summary
    | ^(\S+::[^\s\[]+(?:\[[^]\n]*])?)\s(?:FAILED|ERROR)\b    # pytest -v
    | ^(?:FAIL|ERROR):\s(\S+\s\(\S+\))     # unittest
    | ^\s*---\sFAIL:\s(\S+)                # go test
    | ^test\s(\S+)\s\.\.\.\sFAILED         # cargo test
    | ^\s*not\sok\s\d+\s-\s(.{1,120})      # TAP
    | ^\s*✖\s(.{1,120})                    # node --test
    """,
    re.VERBOSE | re.MULTILINE,
)
_ERROR = re.compile(
    r"^(?:E\s+\S.*|.*\b(?:\w*(?:Error|Exception)\b|panicked\sat\b|error(?:\[\w+\])?:|fatal:|undefined\sreference\b).*)$",
    re.MULTILINE,
)
_VERDICT = re.compile(
    r"\b\d+ (passed|failed|passing|failing|tests?|errors?|failures?)\b|^(OK|FAILED|FAIL|PASS)\b|Error\b"
)
"""A last line of output that shows how a command went; pipes hide its exit code."""
_TARGETS = ("command", "path", "query", "summary")


def digest(steps: Sequence[Step], space: int) -> str:
    """The old turns in at most `space` characters; the oldest lines are dropped and counted."""
    messages = remembered_messages(steps, space // 3)
    facts = _facts(steps, space // 2)
    space_left = space - len(facts) - len(messages) - 200
    lines = _lines_that_fit(steps, space_left)
    kept: list[str] = []
    for line in reversed(lines):
        space_left -= len(line) + 1
        if space_left < 0:
            break
        kept.append(line)
    dropped = len(lines) - len(kept)
    head = [f"(… the first {dropped:,} lines are left out)"] if dropped else []
    turns = "Turns until now, one line for each call:\n" + "\n".join([*head, *reversed(kept)])
    return "\n\n".join(filter(None, (messages, turns, facts)))[: max(space, 0)]


def _facts(steps: Sequence[Step], space: int) -> str:
    """Facts that later turns need, most important first, as far as there is space."""
    kept: list[str] = []
    base_suite = next((step.turn.base_suite for step in steps if step.turn.base_suite), "")
    parts = (_changed(steps), _rejected(steps), base_suite, _failing(steps), _errors(steps), _mentions(steps))
    for part in (*parts, _edits(steps, space // 2)):
        if part and space > _MIN_PART:
            kept.append(_bounded(part, space))
            space -= len(kept[-1]) + 2
    return "\n\n".join(kept)


def _bounded(text: str, space: int) -> str:
    """Whole lines that fit, and the number of those that do not."""
    if len(text) <= space:
        return text
    lines, space_left = text.split("\n"), space - len("(… 1,000,000 more lines)")
    count = 0
    while count < len(lines) and len(lines[count]) < space_left:
        space_left -= len(lines[count]) + 1
        count += 1
    return "\n".join([*lines[:count], f"(… {len(lines) - count:,} more lines)"])


def _lines_that_fit(steps: Sequence[Step], space: int) -> list[str]:
    """The lines of all turns, at the largest width at which all fit, or the smallest width."""
    for width in _WIDTHS:
        lines = [line for step in steps for line in _lines(step, width)]
        if sum(map(len, lines)) + len(lines) <= space:
            break
    return lines


def _lines(step: Step, width: int) -> Iterable[str]:
    number = step.turn.number
    if statement := step.answer.content.strip():
        yield f"{number}. said: {_shortened(statement, width)}"
    for call, observation in zip(step.turn.calls, step.turn.observations, strict=False):
        yield f"{number}. {call.name} {_shortened(_target(call), width)} → {_outcome(observation)}"


def _shortened(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[:width]}…"


def _target(call: ToolCall) -> str:
    arguments = json.loads(call.arguments)
    return next((str(arguments[key]) for key in _TARGETS if key in arguments), "")


def _outcome(observation: Observation) -> str:
    summary = observation.summary[:_MAX_OUTCOME_LENGTH]
    if observation.tool == "bash" and (verdict := _verdict(observation.text)):
        summary += f": {verdict}"
    return summary if observation.outcome == "ok" else f"{observation.outcome}: {summary}"


def _verdict(output: str) -> str:
    """The last line that the command itself wrote, if it shows how the command went."""
    lines = (line.strip(" =") for line in reversed(output.split("\n")))
    last = next((line for line in lines if line and not line.startswith("(")), "")
    return last[:_MAX_VERDICT_LENGTH] if _VERDICT.search(last) else ""


def _changed(steps: Sequence[Step]) -> str:
    """The files that the last checkpoint changed."""
    checkpoint = last_checkpoint(steps)
    if checkpoint is None or checkpoint.clean:
        return "Files changed so far: none."
    names = [f"{state.path}{' (deleted)' if state.digest is None else ''}" for state in checkpoint.files]
    return "Files changed so far:\n" + "\n".join(names[:100])


def _edits(steps: Sequence[Step], space: int) -> str:
    """The newest edit results that fit; they show the current code."""
    kept: list[str] = []
    for observation in (seen for step in reversed(steps) for seen in reversed(step.turn.observations)):
        if observation.tool == "edit" and observation.outcome == "ok":
            space -= len(observation.text) + 1
            if space < 0:
                break
            kept.append(observation.text)
    return "\n".join(["The last edits, as they were answered:", *reversed(kept)]) if kept else ""


def last_checkpoint(steps: Sequence[Step]) -> Checkpoint | None:
    return next((step.turn.checkpoint for step in reversed(steps) if step.turn.checkpoint is not None), None)


def _failing(steps: Sequence[Step]) -> str:
    """The failing tests in the newest output that names any, and the results of later commands."""
    later = ""
    for step in reversed(steps):
        found: dict[str, None] = {}
        for observation in step.turn.observations:
            if observation.tool in {"bash", "submit"}:
                found.update((next(filter(None, groups)), None) for groups in _FAILING.findall(observation.text))
        number = step.turn.number
        if found:
            return f"Failing tests last seen (turn {number}{later}):\n" + "\n".join(list(found)[:_MAX_FAILING])
        verdicts = [_verdict(seen.text) for seen in step.turn.observations if seen.tool == "bash"]
        if not later and any(verdicts):
            later = f"; since then, in turn {number}: {next(filter(None, reversed(verdicts)))}"
    return ""


def _rejected(steps: Sequence[Step]) -> str:
    """The verification result of the last rejected submission."""
    for step in reversed(steps):
        if step.turn.fate in {"rejected", "returned"} and step.turn.observations:
            text = _bounded(step.turn.observations[0].text, _MAX_REJECTION_LENGTH)
            return f"Of the submission in turn {step.turn.number} verification said:\n{text}"
    return ""


def _errors(steps: Sequence[Step]) -> str:
    """The last lines that name an error, from the newest output that has any."""
    for step in reversed(steps):
        outputs = [seen.text for seen in step.turn.observations if seen.tool == "bash"]
        found = dict.fromkeys(
            match[0].strip()[:_MAX_ERROR_LENGTH] for text in outputs for match in _ERROR.finditer(text)
        )
        if found:
            return f"Errors last seen (turn {step.turn.number}):\n" + "\n".join(list(found)[-_MAX_ERRORS:])
    return ""


def _mentions(steps: Sequence[Step]) -> str:
    """The newest places named as file:line."""
    found: dict[tuple[str, str], None] = {}
    for step in reversed(steps):
        for observation in step.turn.observations:
            found.update((place, None) for place in _MENTION.findall(observation.text))
        if len(found) >= _MAX_MENTIONS:
            break
    files: dict[str, list[str]] = {}
    for path, line in list(found)[:_MAX_MENTIONS]:
        files.setdefault(path, []).append(line)
    return (
        "Places mentioned last: " + "; ".join(f"{path}:{', '.join(at)}" for path, at in files.items()) if found else ""
    )
