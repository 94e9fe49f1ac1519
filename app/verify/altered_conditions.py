"""Alters each condition that a patch adds, to see whether the tests depend on it, and names what they leave open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from app.core.evidence import Control, TestRun
from app.core.patch import Patch
from app.verify.sources.new_conditions import NewCondition

TIMES = ((1.0, 10), (5.0, 5), (30.0, 2))
"""Where a run takes up to so many seconds, at most so many alterations are tried."""
MAX_BOUNDARIES = 3
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Altered:
    """One alteration of a source file of the head."""

    path: str
    condition: NewCondition

    def applied(self, patch: Patch) -> Patch:
        """The patch with it."""
        start, end, text = self.condition.start, self.condition.end, self.condition.altered
        text_bytes = text.encode("utf-8", "surrogateescape")
        changes = tuple(
            change.model_copy(update={"content": change.content[:start] + text_bytes + change.content[end:]})
            if change.path == self.path and change.content is not None
            else change
            for change in patch.changes
        )
        return patch.model_copy(update={"changes": changes})

    def __str__(self) -> str:
        return f"{self.condition.says} ({self.path}:{self.condition.first})"


@dataclass(frozen=True, slots=True)
class AlterationPlan:
    """What is tried, what no test executes, and how many alterations are left out for lack of time."""

    tried: tuple[Altered, ...] = ()
    unexecuted: tuple[Altered, ...] = ()
    left_out: int = 0
    why_not: str = ""


def plan(found: Mapping[str, Sequence[NewCondition]], first: TestRun, random: Random) -> AlterationPlan:
    """For tests of which `first` is a run on the head; which alterations are left out, nobody can foresee."""
    executed = {path: {*lines} for path, lines in first.executed} if first.measured else {}
    altered = [Altered(path, condition) for path, conditions in found.items() for condition in conditions]
    if not altered:
        return AlterationPlan(why_not="the patch adds no condition and no statement.")
    reached = [one for one in altered if _is_reached(one, executed)]
    unexecuted = tuple(one for one in altered if one.condition.kind == "statement" and one not in reached)
    outcomes = [one for one in reached if one.condition.kind == "outcome"]
    boundaries = [one for one in reached if one.condition.kind == "boundary"]
    limit = next((count for seconds, count in TIMES if first.execution.seconds < seconds), 0)
    chosen = random.sample(outcomes, min(limit, len(outcomes)))
    more = random.sample(boundaries, min(limit - len(chosen), MAX_BOUNDARIES, len(boundaries)))
    tried = tuple(one for one in altered if one in chosen or one in more)
    return AlterationPlan(tried, unexecuted, len(outcomes) - len(chosen))


def _is_reached(one: Altered, executed: Mapping[str, set[int]]) -> bool:
    """True unless it is known that none of its lines is executed."""
    lines = executed.get(one.path)
    return lines is None or not lines.isdisjoint(range(one.condition.first, one.condition.last + 1))


def control(plan: AlterationPlan, unnoticed: Sequence[Altered]) -> Control:
    """`unnoticed` are those with which all tests pass."""
    if plan.why_not:
        return Control(name="altered_conditions_fail", outcome="not_applicable", detail=plan.why_not)
    wrong = [f"no test executes {one}" for one in plan.unexecuted]
    wrong += [f"no test fails if {one}" for one in unnoticed if one.condition.kind == "outcome"]
    if wrong:
        return Control(name="altered_conditions_fail", outcome="failed", detail=_listed(wrong))
    if plan.left_out and not plan.tried:
        detail = f"a run takes too long to try {plan.left_out} alterations."
        return Control(name="altered_conditions_fail", outcome="not_run", detail=detail)
    open_ends = [f"no test notices {one}" for one in unnoticed]
    open_ends += [f"{plan.left_out} more alterations were not tried"] if plan.left_out else []
    return Control(name="altered_conditions_fail", outcome="held", detail=_listed(open_ends) if open_ends else "")


def _listed(sentences: Sequence[str]) -> str:
    more = f" (and {len(sentences) - MAX_NAMED} more)" if len(sentences) > MAX_NAMED else ""
    return f"{'; '.join(sentences[:MAX_NAMED])}{more}."
