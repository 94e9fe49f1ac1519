"""Decides what to tell a model that makes no progress, and when to end the work. Pure functions."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from app.agent.actions import ACTIONS, MAX_CALLS
from app.agent.step import FileState, Step, last_checkpoint
from app.core.job import Budget

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
    warn_at: int
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
        if repeated == rule.warn_at:
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


class AgentOutcome(Exception):  # noqa: N818  # an outcome, not an error
    """The loop is over; `reason` is one sentence for people, `claim` the model's unchecked statement.

    - `submitted`: the harness accepted a submission
    - `no_change`: the model insists that nothing needs to be changed
    - `limit_reached`: a limit on turns or minutes; with a higher one the work can continue
    - `error`: the model makes no progress, or the work does not fit its window
    """

    def __init__(
        self,
        reason: str,
        claim: str = "",
        *,
        exit_status: Literal["submitted", "no_change", "limit_reached", "error"] = "error",
    ) -> None:
        super().__init__(reason)
        self.exit_status = exit_status
        self.reason = reason
        self.claim = claim


EMPTY, SILENT, CUT_OFF, FILTERED, UNUSABLE, IDLE = 3, 3, 3, 2, 4, 6
"""Turns of one kind in a row that end the work: no answer, no call, cut off, filtered, no usable call, any of these."""
FAILED_EDITS_HINT, FAILED_EDITS = 3, 8
SUBMISSIONS = 8
"""Submissions that did not pass: broken, or unproved."""
_WARN_AT = 0.8


def notes(steps: Sequence[Step]) -> tuple[str, ...]:
    """Messages for the model after the last of these steps, except about budgets."""
    return tuple(filter(None, (rule(steps) for rule in (_about_the_answer, _about_calls, _about_edits, loop_warning))))


def budget_note(steps: Sequence[Step], budget: Budget) -> str:
    """Given once, when four fifths of the turns, the money or the time are used."""
    now, before = _used(steps, budget), _used(steps, budget, without=1)
    if max(now) < _WARN_AT or max(before) >= _WARN_AT:
        return ""
    used = max(zip(now, ("turns", "money", "time"), strict=True))
    return (
        f"Four fifths of the {used[1]} for this job are used ({len(steps)} of {budget.steps} turns). "
        "Bring the work to a state that can be submitted, and submit it."
    )


def raise_if_over(steps: Sequence[Step]) -> None:
    """Raise the outcome if the steps so far end the work."""
    last = steps[-1].turn
    if last.fate == "accepted" and last.submission:
        raise AgentOutcome(last.submission.summary, exit_status="submitted")
    _raise_if_answers_useless(steps)
    if loop := loop_outcome(steps):
        raise AgentOutcome(loop)
    if _failed_edits(steps) >= FAILED_EDITS:
        raise AgentOutcome(f"{FAILED_EDITS} edits in a row did not apply.")
    fates = [step.turn.fate for step in steps if step.turn.fate is not None]
    if fates.count("nothing_changed") >= 2 and fates[-1] == "nothing_changed" and steps[-1].turn.submission:
        reason, claim = "The agent says that nothing needs to be changed.", steps[-1].turn.submission.summary
        raise AgentOutcome(reason, claim, exit_status="no_change")
    if fates.count("rejected") + fates.count("returned") >= SUBMISSIONS:
        raise AgentOutcome(f"{SUBMISSIONS} submissions did not pass verification.")


def _raise_if_answers_useless(steps: Sequence[Step]) -> None:
    if _in_a_row(steps, _empty) >= EMPTY:
        raise AgentOutcome(f"The model gave no answer {EMPTY} times in a row.")
    if _in_a_row(steps, _filtered) >= FILTERED:
        raise AgentOutcome("The provider's content filter stopped the answer twice in a row.")
    if _in_a_row(steps, _cut_off) >= CUT_OFF:
        raise AgentOutcome(f"The answer was cut off at the output limit {CUT_OFF} times in a row.")
    if _in_a_row(steps, _silent) >= SILENT:
        _end_without_submission(steps)
    if _in_a_row(steps, _unusable) >= UNUSABLE:
        raise AgentOutcome(f"{UNUSABLE} turns in a row had no valid tool call.")
    if _in_a_row(steps, lambda step: not step.executed and step.turn.fate is None) >= IDLE:
        raise AgentOutcome(f"{IDLE} turns in a row carried out nothing.")


def _end_without_submission(steps: Sequence[Step]) -> None:
    checkpoint = last_checkpoint(steps)
    last_message = " ".join(steps[-1].answer.content.split())[:300]
    if checkpoint is None or checkpoint.clean:
        reason = "The agent stopped without a change and without submitting anything."
        raise AgentOutcome(reason, last_message, exit_status="no_change")
    raise AgentOutcome(f"The model stopped calling tools and did not submit. Its last message: {last_message}")


def check_budget(steps: Sequence[Step], budget: Budget) -> None:
    """Raise the outcome if no further turn is allowed. Money is checked by the budgeted model."""
    turns, _, time = _used(steps, budget)
    if turns >= 1:
        reason = "The one turn is used." if budget.steps == 1 else f"All {budget.steps} turns are used."
        raise AgentOutcome(reason, exit_status="limit_reached")
    if time >= 1:
        raise AgentOutcome(f"The {budget.minutes:g} minutes are used.", exit_status="limit_reached")


def seconds_left(steps: Sequence[Step], budget: Budget) -> float:
    return budget.minutes * 60 - _seconds(steps)


def _used(steps: Sequence[Step], budget: Budget, without: int = 0) -> tuple[float, float, float]:
    """Used shares of the turns, the money and the time; `without` that many of the last steps."""
    used = steps[: len(steps) - without]
    spent = sum(step.answer.usage.cost for step in used)
    shares = ((len(used), float(budget.steps)), (spent, float(budget.usd)), (_seconds(used), budget.minutes * 60))
    turns, money, time = (amount / cap if cap > 0 else 1.0 for amount, cap in shares)
    return turns, money, time


def _seconds(steps: Sequence[Step]) -> float:
    return sum([answer.seconds + turn.seconds for answer, turn in steps])


def _in_a_row(steps: Sequence[Step], holds: Callable[[Step], bool]) -> int:
    """The number of last steps in a row that satisfy `holds`."""
    count = 0
    for step in reversed(steps):
        if not holds(step):
            break
        count += 1
    return count


def _empty(step: Step) -> bool:
    answer = step.answer
    return answer.finish_reason in {"stop", "tool_calls"} and not answer.tool_calls and not answer.content.strip()


def _silent(step: Step) -> bool:
    return step.answer.finish_reason in {"stop", "tool_calls"} and not step.answer.tool_calls


def _cut_off(step: Step) -> bool:
    return step.answer.finish_reason == "length"


def _filtered(step: Step) -> bool:
    return step.answer.finish_reason == "content_filter"


def _unusable(step: Step) -> bool:
    return bool(step.turn.calls) and not step.executed and step.turn.fate is None


def _about_the_answer(steps: Sequence[Step]) -> str:
    step = steps[-1]
    if _cut_off(step):
        return (
            "Your answer was cut off at the output limit, and nothing of it was carried out. Take smaller steps: "
            "shorter edits, one call at a time, a large file in several parts."
        )
    if _filtered(step):
        return (
            "The provider's content filter stopped your answer, and nothing of it was carried out. Say it differently."
        )
    if _empty(step):
        return "Your answer was empty. Call a tool to go on, or submit."
    if _silent(step):
        return (
            f"Nothing happens without a tool call ({', '.join(ACTIONS)}). Go on with the next action. If the work is "
            "done, call submit; if nothing is to be changed, call submit and say why."
        )
    return ""


def _about_calls(steps: Sequence[Step]) -> str:
    more = len(steps[-1].answer.tool_calls) - MAX_CALLS
    if not steps[-1].turn.calls or more <= 0:
        return ""
    return f"{more:,} more calls of this turn were not executed: at most {MAX_CALLS} are."


def _about_edits(steps: Sequence[Step]) -> str:
    failed = _failed_edits(steps)
    if not failed or failed % FAILED_EDITS_HINT or all(seen.tool != "edit" for seen in steps[-1].turn.observations):
        return ""
    return (
        f"{failed} edits in a row did not apply. View the lines again and copy old_text from there without the line "
        "numbers, take fewer lines, or replace the whole file with write."
    )


def _failed_edits(steps: Sequence[Step]) -> int:
    """Edits since the last one that applied."""
    failed = 0
    for observation in (seen for step in reversed(steps) for seen in reversed(step.turn.observations)):
        if observation.tool == "edit" and observation.outcome == "ok":
            break
        failed += observation.tool == "edit" and observation.executed
    return failed
