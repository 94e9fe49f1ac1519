"""What the played models say: good turns, and every bad one a case is made of."""

import json
from dataclasses import replace
from typing import Any

from tests.support.always_ends.endpoint import Play, first
from tests.support.openai_endpoint import USAGE, Reply, answer, error

PIECE = 300_000


def act(*calls: tuple[str, dict[str, Any] | str], content: str = "", ids: str = "c{}", finish: str = "") -> Reply:
    """An answer with tool calls, all of them in one event; arguments may be raw text."""
    deltas = [
        {
            "index": index,
            "id": ids.format(index),
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for index, (name, given) in enumerate(calls)
    ]
    shape = answer("", finish=finish or "tool_calls")
    begin = shape.events[0]
    assert isinstance(begin, dict)
    delta = {"role": "assistant", "content": content, "tool_calls": deltas}
    first_event = {**begin, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return replace(shape, events=(first_event, *shape.events[1:]))


def say(content: str, **more: Any) -> Reply:
    return answer(content, piece=PIECE, **more)


def bash(command: str, **more: Any) -> Reply:
    return act(("bash", {"command": command, **more}))


def write(path: str, content: str) -> Reply:
    return act(("write", {"path": path, "content": content}))


def edit(old: str, new: str) -> Reply:
    return act(("edit", {"path": "app.py", "old_text": old, "new_text": new}))


def submit(summary: str = "fixed", reproduction: str = "grep -q + app.py") -> Reply:
    return act(("submit", {"summary": summary, "reproduction": reproduction}))


LOOK = act(("view", {"path": "app.py"}))
FIX = edit("a - b", "a + b")
SUBMIT = submit()
MORE = write("test_app.py", "import app\n\nassert app.add(1, 2) == 3\n")
GOOD = (LOOK, FIX, SUBMIT, MORE, SUBMIT)
"""A job as it should go: the first submission is rejected, the second accepted."""
POSITIONS = {
    "at the first call": 0,
    "after a look": 1,
    "after the change": 2,
    "after a rejection": 3,
    "before the last submission": 4,
}


def once(position: int, *faults: Reply) -> Play:
    """A good job with these in the middle of it; after its end, nothing that would be understood."""
    played = (*GOOD[:position], *faults, *GOOD[position:])
    return first(played, lambda _number, _body: error(599, "the script is at its end"))


def ever(position: int, play: Play) -> Play:
    return first(GOOD[:position], play)


def with_usage(reply: Reply, **usage: object) -> Reply:
    """The same answer, with other figures at its end."""
    events = [
        {**event, "usage": {**USAGE, **usage}} if isinstance(event, dict) and "usage" in event else event
        for event in reply.events
    ]
    return replace(reply, events=tuple(events))


def without_usage(reply: Reply) -> Reply:
    kept = [event for event in reply.events if isinstance(event, str) or "usage" not in event]
    return replace(reply, events=tuple(kept))
