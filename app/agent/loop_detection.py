"""Detects loops: equal turns, turns that differ only in numbers, or changes that undo each other."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.agent.step import FileState, Step

WARNED, STUCK = 3, 4
"""Repetitions of the same actions with the same results."""
SIMILAR_WARNED, SIMILAR_STUCK = 4, 6
"""Repetitions with results that differ only in numbers, times and addresses."""
SAME_WARNED, SAME_STUCK = 8, 10
"""Repetitions with any results: nothing happens between turns, so looking again shows nothing new."""
REVERTED_WARNED, REVERTED = 3, 5
"""Times that the tree went from one state to the same other state."""
_MAX_CYCLE_LENGTH = 3
_MAX_STEPS_BACK = 60
"""Steps to search for a change; more would make each turn slower than the one before."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,}\b|\d+(?:[.,:]\d+)*")

_Signature = tuple[str, ...]


class _RepetitionRule(NamedTuple):
    """How to compare turns, after how many repetitions to warn and to end, and the words for it."""

    mark: Callable[[Step], tuple[_Signature, ...]]
    warned: int
    stuck: int
    what: str


def loop_outcome(steps: Sequence[Step]) -> str:
    """Why the work ends here; empty if it does not."""
    for rule in _RULES:
        if _repetitions(steps, rule) >= rule.stuck:
            return f"The model was stuck in a loop: {rule.what} {rule.stuck} times."
    if _count_reverts(steps) >= REVERTED:
        return f"The model undoes its own changes: the files went back and forth between two states {REVERTED} times."
    return ""


def loop_warning(steps: Sequence[Step]) -> str:
    """The warning to the model before that, once for each count."""
    for rule in _RULES:
        repeated = _repetitions(steps, rule)
        if repeated == rule.warned:
            left = rule.stuck - repeated
            more = "Once more ends the job" if left == 1 else f"{left} more times end the job"
            return (
                f"That was {rule.what} {repeated} times. {more}: look at it differently, do something else, or submit "
                "what you have."
            )
    if _count_reverts(steps) == REVERTED_WARNED:
        return (
            f"Your changes undo each other: the files went from the state before to this one {REVERTED_WARNED} times. "
            "Decide for one of the two, or find out what is missing in both."
        )
    return ""


def _repetitions(steps: Sequence[Step], rule: _RepetitionRule) -> int:
    """How often the last one to three turns are repeated at the end."""
    return max(_count_repeats(steps, rule, period) for period in range(1, _MAX_CYCLE_LENGTH + 1))


def _count_repeats(steps: Sequence[Step], rule: _RepetitionRule, period: int) -> int:
    """Compares actions first, and results only for equal actions."""
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


def _actions(step: Step) -> tuple[_Signature, ...]:
    """The actions of a turn; empty if nothing was carried out."""
    pairs = zip(step.turn.calls, step.turn.observations, strict=False)
    return tuple((call.name, call.arguments) for call, seen in pairs if seen.fingerprint)


def _results(step: Step) -> tuple[_Signature, ...]:
    return tuple((seen.fingerprint,) for seen in step.turn.observations)


def _results_without_numbers(step: Step) -> tuple[_Signature, ...]:
    """Results without parts that differ from run to run."""
    return tuple((seen.outcome, _NUMBERS.sub("", seen.text)) for seen in step.turn.observations)


_RULES = (
    _RepetitionRule(_results, WARNED, STUCK, "the same actions with the same results"),
    _RepetitionRule(
        _results_without_numbers,
        SIMILAR_WARNED,
        SIMILAR_STUCK,
        "the same actions with results that differ in numbers only",
    ),
    _RepetitionRule(lambda _step: (), SAME_WARNED, SAME_STUCK, "the same actions, whatever they brought,"),
)


def _count_reverts(steps: Sequence[Step]) -> int:
    """How often the change of the last turn was made; 0 if it made none."""
    states: list[tuple[FileState, ...]] = [()] if len(steps) <= _MAX_STEPS_BACK else []
    moves: list[tuple[tuple[FileState, ...], tuple[FileState, ...]]] = []
    last = None
    for step in steps[-_MAX_STEPS_BACK:]:
        last = None
        if step.turn.checkpoint is None:
            continue
        state = step.turn.checkpoint.files
        if states and states[-1] != state:
            last = (states[-1], state)
            moves.append(last)
        states.append(state)
    return moves.count(last) if last else 0
