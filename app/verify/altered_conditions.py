"""Alters each condition that a patch adds, and puts back what it takes away, to see whether tests depend on that."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from app.core.patch import Patch
from app.core.verification import Control, ControlOutcome, TestRun
from app.verify.concurrency import gather_all
from app.verify.sources.new_conditions import NewCondition

TIMES = ((3.0, 10), (10.0, 5), (30.0, 2))
"""Where a run takes up to so many seconds, on a busy machine too, at most so many alterations are tried."""
MAX_BOUNDARIES = 3
_DECISIVE = ("outcome", "removed")
"""Kinds of which some test has to fail."""
MAX_NAMED = 3
SECONDS, FACTOR = 10.0, 5.0
"""A run with an alteration may take so many seconds, and so many times as long as one without."""


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

    @property
    def raising(self) -> "Altered":
        """The same place altered to raise an error whenever the removed outcome would occur."""
        return Altered(self.path, self.condition._replace(altered=self.condition.raising, raising=""))

    def __str__(self) -> str:
        return f"{self.condition.says} ({self.path}:{self.condition.first})"


class RunsAltered(Protocol):
    """Runs some tests on the head, altered or not."""

    async def __call__(self, ids: Sequence[str], altered: Altered | None, timeout: float) -> TestRun: ...


@dataclass(frozen=True, slots=True)
class Alterations:
    """The alterations of one patch. `existing` gives tests of the suite that pass on the head, the nearest first."""

    found: Sequence[Altered]
    ids: Sequence[str]
    run: RunsAltered
    existing: Callable[[], Sequence[str]]
    random: Random
    """Chosen at random, so that a patch cannot predict which alterations are skipped."""

    async def control(self, first: TestRun) -> Control:
        """`first` is a run of the tests on the head. What they leave open, tests of the suite may decide."""
        if not self.found:
            return _control("not_applicable", ["the patch adds and removes no condition and no statement"])
        reached = [one for one in self.found if _is_executed(one, first)]
        outcomes = [one for one in reached if one.condition.kind in _DECISIVE]
        limit = next((count for seconds, count in TIMES if first.execution.seconds < seconds), 0)
        if outcomes and not limit:
            return _control("not_run", [f"one run takes {first.execution.seconds:.0f} s"])
        chosen = self._sample(outcomes, limit)
        boundaries = [one for one in reached if one.condition.kind == "boundary"]
        also = self._sample(boundaries, min(limit - len(chosen), MAX_BOUNDARIES))
        unnoticed = await self._unnoticed(self.ids, [*chosen, *also], first)
        unexecuted = [one for one in self.found if one.condition.kind == "statement" and one not in reached]
        wrong = [one for one in unnoticed if one.condition.kind in _DECISIVE]
        if wrong or unexecuted:
            wrong, unexecuted = await self._not_covered_by_suite(wrong, unexecuted, limit)
        if wrong or unexecuted:
            sentences = [f"no test executes {one}" for one in unexecuted]
            return _control("failed", [*sentences, *(f"no test fails when {one}" for one in wrong)])
        left = len(outcomes) - len(chosen)
        sentences = [f"no independent test notices {one}" for one in unnoticed if one in also]
        return _control("held", [*sentences, *([f"{left} more alterations were skipped for time"] if left else [])])

    async def _unnoticed(self, ids: Sequence[str], altered: Sequence[Altered], first: TestRun) -> list[Altered]:
        """Alterations under which all tests still pass, except for branches that the tests take both ways."""
        passing = await self._passing(ids, altered, first)
        absent = await self._passing(ids, [one.raising for one in passing if one.condition.raising], first)
        return [one for one in passing if not one.condition.raising or one.raising in absent]

    async def _passing(self, ids: Sequence[str], altered: Sequence[Altered], first: TestRun) -> list[Altered]:
        timeout = SECONDS + FACTOR * first.execution.seconds
        runs = await gather_all(*(self.run(ids, one, timeout) for one in altered))
        return [one for one, run in zip(altered, runs, strict=True) if not run.untrusted and _passed(run) == [*ids]]

    async def _not_covered_by_suite(
        self, wrong: Sequence[Altered], unexecuted: Sequence[Altered], limit: int
    ) -> tuple[list[Altered], list[Altered]]:
        """What the suite's tests leave undecided as well.

        For a condition, one of them must fail: they pass on the base, so a branch that they take may do what the
        base does.
        """
        existing = await asyncio.to_thread(self.existing)
        if not existing or not limit:
            return [*wrong], [*unexecuted]
        first = await self.run(existing, None, SECONDS)
        ids = _passed(first)
        if first.untrusted or not ids:
            return [*wrong], [*unexecuted]
        gone = [one for one in unexecuted if not first.measured or not _is_executed(one, first)]
        return await self._passing(ids, wrong[:limit], first) + [*wrong[limit:]], gone

    def _sample(self, altered: Sequence[Altered], limit: int) -> list[Altered]:
        chosen = self.random.sample(altered, min(limit, len(altered)))
        return [one for one in altered if one in chosen]


def _is_executed(one: Altered, run: TestRun) -> bool:
    """True unless it is known that none of its lines is executed."""
    lines = dict(run.executed).get(one.path) if run.measured and one.condition.kind != "removed" else None
    return lines is None or any(one.condition.first <= line <= one.condition.last for line in lines)


def _passed(run: TestRun) -> list[str]:
    return [name for name, result in run.results if result == "passed"]


def _control(outcome: ControlOutcome, sentences: Sequence[str]) -> Control:
    more = f" (and {len(sentences) - MAX_NAMED} more)" if len(sentences) > MAX_NAMED else ""
    detail = f"{'; '.join(sentences[:MAX_NAMED])}{more}." if sentences else ""
    return Control(name="altered_conditions_fail", outcome=outcome, detail=detail)
