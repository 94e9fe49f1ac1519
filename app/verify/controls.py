"""The controls around tests that turn from red to green, one of which alters each condition that a patch adds."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from random import Random
from secrets import randbits
from typing import Any

from app.core.patch import FileChange, Patch
from app.core.text import listed
from app.core.verification import (
    Control,
    ControlName,
    ControlOutcome,
    Execution,
    Outcome,
    TestRun,
    TestSelection,
)
from app.verify.base_rules import JudgedPatch, support_files
from app.verify.execution import gather_all, gather_pair
from app.verify.overlay import apply_patch
from app.verify.replay import (
    MAX_SECONDS,
    REPLAY_CONTROLS,
    Replayed,
    control,
    head_only_failures,
    joined,
    odd_results,
    other_types,
    replay_controls,
)
from app.verify.selected_tests import Repeats, Runs, passed
from app.verify.sources.analysis import REFUSED, AnalysisError, SourceAnalysis
from app.verify.sources.new_conditions import NewCondition

TIMES = ((3.0, 10), (10.0, 5), (30.0, 2))
"""(seconds, alterations): for runs up to that long, even on a busy machine, at most that many are tried."""
MAX_BOUNDARIES = 3
_DECISIVE = ("outcome", "removed")
"""Kinds of which some test has to fail."""
SECONDS, FACTOR = 10.0, 5.0
"""A run with an alteration may take SECONDS, plus FACTOR times as long as one without."""


@dataclass(frozen=True, slots=True)
class Altered:
    """One alteration of a source file of the head."""

    path: str
    condition: NewCondition

    def applied(self, patch: Patch) -> Patch:
        """The patch with this alteration."""
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


RunsAltered = Callable[[Sequence[str], Altered | None, float], Coroutine[Any, Any, TestRun]]
"""Runs some tests on the head, altered or not, with a time limit in seconds."""


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
            return too_slow("altered_conditions_fail", first.execution.seconds)
        chosen = self._sample(outcomes, limit)
        boundaries = [one for one in reached if one.condition.kind == "boundary"]
        also = self._sample(boundaries, min(limit - len(chosen), MAX_BOUNDARIES))
        unnoticed = await self._unnoticed(self.ids, [*chosen, *also], first)
        unexecuted = [one for one in self.found if one.condition.kind == "statement" and one not in reached]
        wrong = [one for one in unnoticed if one.condition.kind in _DECISIVE]
        if wrong or unexecuted:
            wrong, unexecuted = await self._not_covered_by_suite(wrong, unexecuted, limit)
        if wrong or unexecuted:
            sentences = [f"no independent or existing test executes {one}" for one in unexecuted]
            return _control(
                "failed", [*sentences, *(f"no independent or existing test fails when {one}" for one in wrong)]
            )
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


def too_slow(name: ControlName, seconds: float) -> Control:
    """Not run, for tests of which one run takes this long."""
    return Control(name=name, outcome="not_run", detail=f"one run takes {seconds:.0f} s.", too_slow=True)


def _control(outcome: ControlOutcome, sentences: Sequence[str]) -> Control:
    return Control(name="altered_conditions_fail", outcome=outcome, detail=joined(sentences, MAX_NAMED))


MAX_NAMED = 3


@dataclass(frozen=True)
class ComparisonTrees:
    """The two trees of a comparison: the base that `sources` analyses, and the head.

    If that base is not a commit, sandboxes start from another tree: `reference_patch` makes that into the base, and
    `head` makes it the head.
    """

    sources: SourceAnalysis
    head: Patch
    reference_patch: Patch | None = None

    @property
    def unchanged(self) -> str:
        """Why the patch changes nothing that is executed; empty if it does, or if data may decide that."""
        return "" if self.sources.changes_data else self.sources.unchanged

    def ruled(self, tests: Sequence[FileChange]) -> Patch | None:
        """The patch under the base's rules; None if that is the patch itself, or nothing of it.

        Sources that only base's fixtures or settings load are the base's, too, unless these tests load them.
        """
        base, patch = self.sources.base, self.sources.patch
        support = support_files(base, patch, [file.content for file in tests if file.content is not None])
        judged = JudgedPatch.of(base, patch, support)
        return judged.ruled if judged.overridden_changes and not judged.changes_only_tests else None

    def variant(self, make: Callable[[], Patch | None]) -> Patch | None:
        """A variant, as a patch of the tree that sandboxes start from."""
        made = make()
        return None if made is None else apply_patch(self.reference_patch, made)


@dataclass(frozen=True, slots=True)
class ControlResults:
    """The results of a selection on the head, and the controls of base and head together."""

    results: Mapping[str, Outcome]
    texts: Mapping[str, str]
    head: Execution
    controls: tuple[Control, ...]


@dataclass(frozen=True, slots=True)
class ControlRunner:
    """One selection of tests: `red` must fail on the base and pass on the head, all others pass on both.

    `new` are those of `red` that need an interface that the issue names and the base lacks.
    """

    runs: Runs
    trees: ComparisonTrees
    selection: TestSelection
    _: KW_ONLY
    red: frozenset[str]
    new: frozenset[str]
    name: str
    texts: Mapping[str, str]
    """The failures of `red` on the base."""
    base: Repeats | None = None
    """The runs on the base, if the caller just made them; their exit codes and repeats are checked too."""
    existing: Callable[[], TestSelection] | None = None
    """Tests of the suite that pass on the base, as they are there; the nearest first. None: conditions are not
    altered."""

    async def run(self) -> ControlResults:
        """Run them on the head and, if they pass, on the variants."""
        lines = await asyncio.to_thread(lambda: self.trees.sources.executable_lines)
        first = await self.runs.once(f"{self.name}-head", self.selection, self.trees.head, watch=lines)
        green = not first.untrusted and all(result == "passed" for _, result in first.results)
        # The head that is printed again, or under the base's rules, has to end like the others: they are repeated runs.
        ruled = green and await asyncio.to_thread(self._needs_base_rules)
        besides = int(ruled) + int(green and await asyncio.to_thread(self._can_be_reprinted))
        again = self.runs.again(f"{self.name}-head", self.selection, self.trees.head, first, besides=besides)
        head, variants = await gather_pair(again, self._variants(first, ruled=ruled) if green else gather_all())
        controls = [
            self._conditions(),
            self._sources(),
            *variants,
            self._executed(first),
            self._copies(first, head),
            self._codes(head),
            self._repeats(head, besides=besides),
        ]
        results = {name: head.outcome(name) for name in self.selection.ids}
        return ControlResults(results, dict(first.texts), first.execution, tuple(controls))

    def _needs_base_rules(self) -> bool:
        """True if the patch changes these, unless the tests are its own, which may need that."""
        return self.existing is not None and self.trees.ruled(self.selection.files) is not None

    def _can_be_reprinted(self) -> bool:
        with suppress(AnalysisError):
            return self.trees.sources.reprint_head(randbits(32)) is not None
        return False

    async def _variants(self, first: TestRun, *, ruled: bool) -> list[Control]:
        sources = self.trees.sources
        noise, reprint = (partial(make, randbits(32)) for make in (sources.base_with_comments, sources.reprint_head))
        replay, found = await gather_pair(
            self._replay(first),
            gather_all(
                self._variant("noise_stays_red", "noise", noise, red=True),
                self._variant("reprint_stays_green", "reprint", reprint, red=False),
                self._additions(),
                *([self._base_rules()] if ruled else []),
                *([self._altered(first, self.existing)] if self.existing else []),
            ),
        )
        return [*found, *replay]

    async def _altered(self, first: TestRun, existing: Callable[[], TestSelection]) -> Control:
        """The head with each new condition altered: some test has to fail."""
        sources = self.trees.sources
        found = await asyncio.to_thread(lambda: sources.new_conditions)
        if found is None:
            return _control("failed", [REFUSED])
        existing_tests = cache(existing)

        async def run(ids: Sequence[str], altered: Altered | None, timeout: float) -> TestRun:
            name, selection, patch = self.name, self.selection, self.trees.head
            if tuple(ids) != selection.ids:
                name, selection = f"{name}-existing", existing_tests().model_copy(update={"ids": tuple(ids)})
            if altered is not None:
                made = await asyncio.to_thread(self.trees.variant, partial(altered.applied, sources.patch))
                name, patch = f"{name}-altered", made or patch
            watch = None if altered else sources.executable_lines
            return await self.runs.once(name, selection, patch, copies=False, timeout=timeout, watch=watch)

        altered = [Altered(path, condition) for path, conditions in found.items() for condition in conditions]
        random = Random(randbits(64))  # noqa: S311 - nobody can see it before
        ids = self.selection.ids
        return await Alterations(altered, ids, run, lambda: existing_tests().ids, random).control(first)

    async def _base_rules(self) -> Control:
        """The head with the base's own tests, fixtures and test settings, and none of the patch's."""
        make = partial(self.trees.ruled, self.selection.files)
        return await self._variant("base_rules_suffice", "rules", make, red=False)

    async def _replay(self, first: TestRun) -> list[Control]:
        """What the tests call, without the framework; if that fails, on the base too, for the tests' own needs."""
        if first.execution.seconds > MAX_SECONDS:
            return [too_slow(name, first.execution.seconds) for name in REPLAY_CONTROLS]
        head = await self.runs.replayed(f"{self.name}-replay", self.selection, self.trees.head)
        failures, base = list(head.failures()), Replayed()
        if failures or other_types(head):
            base = await self.runs.replayed(f"{self.name}-replay-base", self.selection, self.trees.reference_patch)
            failures = head_only_failures(head, base, self.texts)
        odd = await asyncio.to_thread(odd_results, head, base, self.trees.sources)
        return replay_controls(head, failures, odd)

    async def _additions(self) -> Control:
        """Without the changed bodies the red ones have to fail, and of the new ones some with what is new but empty."""
        name: ControlName = "additions_stay_red"
        sources, old = self.trees.sources, self.red - self.new
        found = Control(name=name, outcome="not_applicable", detail="this is new behaviour.")
        if old:
            found = await self._variant(name, "additions", lambda: sources.additions, red=True, of=old)
        if not self.new or found.outcome == "failed":
            return found
        new = await self._variant(name, "hollow", lambda: sources.stubbed_additions, red=True, of=self.new, some=True)
        return found if new.outcome == "not_applicable" else new

    async def _variant(
        self,
        name: ControlName,
        label: str,
        make: Callable[[], Patch | None],
        *,
        red: bool,
        of: frozenset[str] = frozenset(),
        some: bool = False,
    ) -> Control:
        """Run the tests on a variant; `red` ones (those of `of`, all or `some`) must fail there, or all must pass.

        Runs that must pass are repeats of the head's, without copies.
        """
        try:
            patch = await asyncio.to_thread(self.trees.variant, make)
        except AnalysisError as error:
            return control(name, str(error))
        if patch is None:
            return Control(name=name, outcome="not_applicable", detail="no such variant of these sources can be made.")
        expected = of or (self.red if red else frozenset(self.selection.ids))
        selection = self.selection.model_copy(update={"ids": tuple(i for i in self.selection.ids if i in expected)})
        run = await self.runs.once(f"{self.name}-{label}", selection, patch, copies=red)
        if run.untrusted:
            return control(name, run.untrusted)
        wrong = [each for each in selection.ids if passed(run, each) == red]
        if not wrong or (some and len(wrong) < len(selection.ids)):
            return control(name)
        return control(name, f"{listed(wrong, MAX_NAMED)} {'passed' if red else 'did not pass'} there.")

    def _conditions(self) -> Control:
        if self.runs.project.isolated:
            return control("same_conditions")
        detail = "without a sandbox, base and head have different paths, and tests can reach the host."
        return Control(name="same_conditions", outcome="not_run", detail=detail)

    def _sources(self) -> Control:
        return control("sources_changed", self.trees.unchanged)

    def _executed(self, run: TestRun) -> Control:
        name: ControlName = "changed_line_executed"
        lines = self.trees.sources.executable_lines
        if lines is None:
            return control(name, f"{REFUSED}.")
        if not any(lines.values()):
            return Control(name=name, outcome="not_applicable", detail="the patch adds and changes no source line.")
        if not run.measured:
            return Control(name=name, outcome="not_run", detail="this framework's executed lines cannot be measured.")
        if any(lines.get(path, set()) & set(executed) for path, executed in run.executed):
            return control(name)
        return control(name, "the tests executed no line that the patch changes.")

    def _copies(self, first: TestRun, head: Repeats) -> Control:
        name: ControlName = "failing_copies_fail"
        if wrong := head.untrusted:
            return control(name, wrong)
        if first.execution.timed_out:
            return Control(name=name, outcome="not_run", detail="the run did not end within its time limit.")
        unchecked = [each for each in self.selection.ids if each in self.red and each in first.unchecked]
        detail = f"no altered copy could be made of {listed(unchecked, MAX_NAMED)}." if unchecked else ""
        return Control(
            name=name, outcome="not_run" if unchecked and self.red <= {*unchecked} else "held", detail=detail
        )

    def _codes(self, head: Repeats) -> Control:
        return control("exit_code_agrees", head.codes_agree or (self.base.codes_agree if self.base else ""))

    def _repeats(self, head: Repeats, *, besides: int) -> Control:
        name: ControlName = "repeats_agree"
        both = (head, *([self.base] if self.base else []))
        if wrong := sorted({test for side in both for test in side.disagreeing}):
            return control(name, f"{listed(wrong, MAX_NAMED)} gave different results.")
        if len(head.runs) + besides < 2:
            return too_slow(name, head.first.execution.seconds)
        return Control(name=name, outcome="held", detail=f"{len(head.runs) + besides} runs on the head.")
