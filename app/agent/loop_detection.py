"""Going in circles: the same turns again, the same but for numbers, or changes of the tree that undo each other."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.agent.step import FileState, Step

WARNED, STUCK = 3, 4
"""Repetitions of the same actions with the same results."""
NEARLY_WARNED, NEARLY_STUCK = 4, 6
"""Of the same actions whose results differ in numbers, times and addresses only."""
SAME_WARNED, SAME_STUCK = 8, 10
"""Of the same actions, whatever they bring: nothing happens between turns, so looking again shows nothing new."""
UNDONE_WARNED, UNDONE = 3, 5
"""Times that the tree went from one state to the same other."""
_MAX_CYCLE_LENGTH = 3
_LOOKED_BACK = 60
"""Steps in which a change is looked for; more would make each turn dearer than the one before."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,}\b|\d+(?:[.,:]\d+)*")

_Pair = tuple[str, ...]


class _RepetitionRule(NamedTuple):
    """A way to compare turns, after how many repetitions it warns and ends, and what it says was the same."""

    mark: Callable[[Step], tuple[_Pair, ...]]
    warned: int
    stuck: int
    what: str


def loop_outcome(steps: Sequence[Step]) -> str:
    """Why the work ends here, or nothing."""
    for rule in _RULES:
        if _repetitions(steps, rule) >= rule.stuck:
            return f"The model went in a circle: {rule.what} {rule.stuck} times."
    if _undoings(steps) >= UNDONE:
        return f"The model undoes its own changes: the files went from one state to the same other {UNDONE} times."
    return ""


def loop_warning(steps: Sequence[Step]) -> str:
    """What the model is told before it comes to that, once for each count."""
    for rule in _RULES:
        repeated = _repetitions(steps, rule)
        if repeated == rule.warned:
            left = rule.stuck - repeated
            more = "Once more ends the job" if left == 1 else f"{left} more times end the job"
            return (
                f"That was {rule.what} {repeated} times. {more}: look at it differently, do something else, or submit "
                "what you have."
            )
    if _undoings(steps) == UNDONE_WARNED:
        return (
            f"Your changes undo each other: the files went from the state before to this one {UNDONE_WARNED} times. "
            "Decide for one of the two, or find out what is missing in both."
        )
    return ""


def _repetitions(steps: Sequence[Step], rule: _RepetitionRule) -> int:
    """How often the last one to three turns stand at the end without a difference."""
    return max(_of_period(steps, rule, period) for period in range(1, _MAX_CYCLE_LENGTH + 1))


def _of_period(steps: Sequence[Step], rule: _RepetitionRule, period: int) -> int:
    """Actions are compared first: what they brought is looked at only where they are the same."""
    last = steps[-period:]
    if len(last) < period or not all(map(_actions, last)):
        return 0
    count = 1
    while count < rule.stuck:
        begin = len(steps) - period * (count + 1)
        before = steps[max(begin, 0) : begin + period]
        if len(before) < period or not all(_alike(one, other, rule) for one, other in zip(before, last, strict=True)):
            break
        count += 1
    return count


def _alike(one: Step, other: Step, rule: _RepetitionRule) -> bool:
    return _actions(one) == _actions(other) and rule.mark(one) == rule.mark(other)


def _actions(step: Step) -> tuple[_Pair, ...]:
    """What a turn did; empty where nothing was carried out."""
    pairs = zip(step.turn.calls, step.turn.observations, strict=False)
    return tuple((call.name, call.arguments) for call, seen in pairs if seen.fingerprint)


def _results(step: Step) -> tuple[_Pair, ...]:
    return tuple((seen.fingerprint,) for seen in step.turn.observations)


def _call_signature(step: Step) -> tuple[_Pair, ...]:
    """Results without what differs from one time to the next although nothing has changed."""
    return tuple((seen.outcome, _NUMBERS.sub("", seen.text)) for seen in step.turn.observations)


_RULES = (
    _RepetitionRule(_results, WARNED, STUCK, "the same actions with the same results"),
    _RepetitionRule(
        _call_signature, NEARLY_WARNED, NEARLY_STUCK, "the same actions with results that differ in numbers only"
    ),
    _RepetitionRule(lambda _step: (), SAME_WARNED, SAME_STUCK, "the same actions, whatever they brought,"),
)


def _undoings(steps: Sequence[Step]) -> int:
    """How often the change that the last turn made to the tree was made; 0 where it made none."""
    states: list[tuple[FileState, ...]] = [()] if len(steps) <= _LOOKED_BACK else []
    moves: list[tuple[tuple[FileState, ...], tuple[FileState, ...]]] = []
    last = None
    for step in steps[-_LOOKED_BACK:]:
        last = None
        if step.turn.checkpoint is None:
            continue
        state = step.turn.checkpoint.files
        if states and states[-1] != state:
            last = (states[-1], state)
            moves.append(last)
        states.append(state)
    return moves.count(last) if last else 0
