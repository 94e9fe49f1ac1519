"""Runs chosen tests so that the tested code cannot forge the result, and repeats them until it can be trusted.

They run with our launcher, and with copies that must fail.
"""

import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from app.core.patch import FileChange, Patch
from app.core.verification import Outcome, Status, TestRun, TestSelection
from app.verify.execution import gather_all
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.launcher import launcher_of
from app.verify.launcher.base import (
    CopiedTests,
    Launcher,
    LauncherReport,
    SupervisorAnswer,
    execution_of_steps,
    supervise,
)
from app.verify.overlay import apply_patch
from app.verify.project import ProjectUnderTest
from app.verify.replay import Replayed, replay_tests
from app.verify.reports import CaseResult, plain_id, shortened

FAILURE_UNSEEN = "A test that must fail was not reported as failed."
_RANK: Mapping[Status, int] = {"failed": 3, "error": 2, "skipped": 1, "passed": 0}


@dataclass
class _SelectionRuns:
    """The runs of one selection on one tree, each in its own sandbox."""

    project: ProjectUnderTest
    launcher: Launcher
    selection: TestSelection
    patch: Patch | None
    name: str
    timeout: float
    random: Random
    checked: set[str] = field(default_factory=set)
    """The tests of which an altered copy did not pass."""
    _plainly_failed: bool = False

    async def run(self, shown: str, watch: Sequence[str]) -> tuple[TestRun, tuple[str, ...], Mapping[str, bytes]]:
        """Run the tests themselves; returns also those that passed plainly, and the contents of their files."""
        ids = self._shuffled(self.selection.ids)
        answer, report, output = await self._execute(ids, watch=watch, read=self.launcher.sources(ids))
        results, texts = [], []
        for one in self.selection.ids:
            outcome = _worst(report.outcomes.get(one, ()))
            status: Status | Literal["not_run"] = outcome.status if outcome else "not_run"
            text = outcome.text if outcome else ""
            if one == report.hanging or (not outcome and report.hanging.startswith(one)):
                status, text = "failed", f"It did not finish within {self.timeout:g} s."
            results.append((one, status))
            if status in ("failed", "error"):
                texts.append((one, shortened(text)))
        passed = tuple(one for one, found in report.outcomes.items() if found and all(map(_passed, found)))
        run = TestRun(
            execution=execution_of_steps(shown, answer, output),
            results=tuple(results),
            texts=tuple(texts),
            untrusted=report.problem,
            executed=report.executed,
            measured=report.measured,
        )
        return run, passed, answer.files

    async def contradiction(self, passed: Sequence[str], contents: Mapping[str, bytes]) -> str:
        """Why copies of these tests show that their results are not true; empty if all end as they must."""
        copies = self.launcher.copier(contents, self.random).made(passed, in_place=False)
        if not copies.ids:
            return ""
        problem, odd = await self._wrong(copies, lost="odd")
        if problem or not odd.ids:
            return problem or await self._alone(copies)
        # A test may leave something behind that changes how the next one ends: once more, without the others.
        in_place = self.launcher.copier(contents, self.random).made(passed, in_place=True)
        unrenamable = CopiedTests(files=odd.files, same=odd.same)
        for again in (unrenamable, in_place if odd.altered else CopiedTests()):
            problem, odd = await self._wrong(again, lost="failed") if again.ids else ("", CopiedTests())
            if problem:
                return problem
            if odd.same:
                return f"{plain_id(next(iter(odd.same.values())))} passes under its own name but fails under another."
            if odd.altered:
                original = plain_id(next(iter(odd.altered.values())))
                return f"{original} also passes when its expectation is changed so that it must fail."
        return await self._alone(copies)

    async def _alone(self, copies: CopiedTests) -> str:
        """Run the always-failing test by itself, if so far it failed only together with others.

        Returns why the results are not trusted, or ''. Copies that cannot be compiled make all tests of their package
        fail.
        """
        if self._plainly_failed or not copies.failing:
            return ""
        problem, _ = await self._wrong(CopiedTests(files=copies.files[:1], failing=copies.failing), lost="failed")
        return problem if problem or self._plainly_failed else FAILURE_UNSEEN

    async def _wrong(self, copies: CopiedTests, *, lost: Literal["odd", "failed"]) -> tuple[str, CopiedTests]:
        """The copies that ended wrongly, and a reason to trust nothing at all.

        `lost` is what it means for an altered copy that its file could not be loaded.
        """
        _, report, _ = await self._execute(self._shuffled(copies.ids), copies.files)
        self.checked |= {
            original
            for one, original in copies.altered.items()
            if one == report.hanging or _failed(report.outcomes.get(one, ()))
        }
        if report.hanging:
            self._plainly_failed = True  # nothing more is asked of a run that takes so long
            return "", CopiedTests()
        if report.problem:
            return f"With copies of the tests added: {report.problem}", CopiedTests()
        if any(not _failed(report.outcomes.get(one, ())) for one in copies.failing):
            return FAILURE_UNSEEN, CopiedTests()
        failing = [outcome for one in copies.failing for _, outcome in report.outcomes.get(one, ())]
        self._plainly_failed |= bool(failing) and all(one.status == "failed" and one.plain for one in failing)
        outcomes = report.outcomes
        unloaded = {
            one for one, found in outcomes.items() if any(o.status == "error" and not o.plain for _, o in found)
        }
        same = {
            one: original
            for one, original in copies.same.items()
            if one not in unloaded and not all(map(_passed, outcomes.get(one, ())))
        }
        altered = {
            one: original
            for one, original in copies.altered.items()
            if (lost == "odd" and one in unloaded) or not _failed(outcomes.get(one, ()))
        }
        return "", CopiedTests(files=copies.files, same=same, altered=altered)

    async def _execute(
        self,
        ids: Sequence[str],
        files: Sequence[FileChange] = (),
        *,
        watch: Sequence[str] = (),
        read: Sequence[str] = (),
    ) -> tuple[SupervisorAnswer, LauncherReport, bytes]:
        """With these files on top of the selection's. What another test's crash kept from beginning runs once more."""
        answer, report, output = await self._execute_once(ids, files, watch, read)
        left, alone = report.unbegun, False
        while left and not report.problem:
            chosen = left[:1] if alone else left
            again, further, more = await self._execute_once(chosen, files)
            answer = answer.model_copy(update={"steps": (*answer.steps, *again.steps)})
            news = {"outcomes": {**report.outcomes, **further.outcomes}, "problem": further.problem}
            report, output = report.model_copy(update={**news, "hanging": further.hanging}), output + more
            # Tests that run at the same time may all be without a result because of one of them.
            alone, left = alone or further.unbegun == chosen, left[1:] if alone else further.unbegun
        return answer, report, output

    async def _execute_once(
        self, ids: Sequence[str], files: Sequence[FileChange], watch: Sequence[str] = (), read: Sequence[str] = ()
    ) -> tuple[SupervisorAnswer, LauncherReport, bytes]:
        """Run these tests once, in a fresh sandbox: the answer, the report, and the output."""
        base = self.patch.base if self.patch else ""
        mine = apply_patch(Patch(base=base, changes=self.selection.files), Patch(base=base, changes=tuple(files)))
        async with self.project.open(self.name, apply_patch(self.patch, mine)) as sandbox:
            steps = self.launcher.steps(ids, watch, self.timeout)
            answer = await supervise(sandbox, steps, read=read, files=self.launcher.files)
        output = b"".join(self.launcher.readable(step.output) for step in answer.steps)
        report = LauncherReport(problem=answer.problem) if answer.problem else self.launcher.read(ids, answer, watch)
        return answer, report, output

    def _shuffled(self, ids: Sequence[str]) -> list[str]:
        """In random order, except for tests of one class, which may build on each other."""
        groups: dict[str, list[str]] = {}
        for one in ids:
            groups.setdefault(self.launcher.group(one), []).append(one)
        return [one for group in self.random.sample(list(groups), len(groups)) for one in groups[group]]


def _worst(found: Sequence[tuple[str, CaseResult]]) -> CaseResult | None:
    return max((outcome for _, outcome in found), key=lambda outcome: _RANK[outcome.status], default=None)


def _passed(found: tuple[str, CaseResult]) -> bool:
    return found[1].status == "passed" and found[1].plain


def _failed(found: Sequence[tuple[str, CaseResult]]) -> bool:
    """All of it: none of several tests that a copy represents may pass."""
    return bool(found) and all(outcome.failed for _, outcome in found)


REPETITIONS = ((1.0, 5), (5.0, 3), (30.0, 2))
"""(seconds, runs): a run up to that long is made that often in all; a longer one is not repeated."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Several runs of one selection on one tree."""

    runs: tuple[TestRun, ...]

    @property
    def first(self) -> TestRun:
        return self.runs[0]

    @property
    def untrusted(self) -> str:
        """Why one of them must not be trusted; empty if all may."""
        return next((run.untrusted for run in self.runs if run.untrusted), "")

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The ids of tests that passed in some runs and not in others."""
        return tuple(name for name, _ in self.first.results if len({passed(run, name) for run in self.runs}) > 1)

    def outcome(self, name: str) -> Outcome:
        """How a test ended; the first run in which it did not pass counts."""
        ended = (dict(run.results).get(name, "not_run") for run in self.runs)
        return next((result for result in ended if result != "passed"), "passed")

    @property
    def codes_agree(self) -> str:
        """Empty if each exit code fits the results, otherwise what does not."""
        for run in self.runs:
            failed = [name for name, result in run.results if result in ("failed", "error")]
            code = run.execution.exit_code
            if bool(failed) != (code != 0) and not run.execution.timed_out:
                return f"the exit code was {code}, but {len(failed)} of {len(run.results)} tests failed."
        return ""


def passed(run: TestRun, name: str) -> bool:
    return dict(run.results).get(name) == "passed"


def repetition_count(seconds: float) -> int:
    """How often a selection is run in all, by the duration of one run."""
    return next((count for limit, count in REPETITIONS if seconds < limit), 1)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs selections of one suite's tests on base (patch None) or base plus patch, the selection's files on top.

    Each time in a fresh sandbox and in another order. Raises ValueError if the suite's framework cannot run chosen
    tests.
    """

    suite: SuiteCommand
    project: ProjectUnderTest

    async def replayed(self, name: str, selection: TestSelection, patch: Patch | None) -> Replayed:
        """What the tests call, without their framework."""
        return await replay_tests(self.suite, selection, self.project, patch, name=name)

    async def once(
        self,
        name: str,
        selection: TestSelection,
        patch: Patch | None,
        *,
        watch: Mapping[str, Set[int]] | None = None,
        copies: bool = True,
        timeout: float | None = None,
    ) -> TestRun:
        """`watch` requests the executed lines of these files. With `copies`, copies of the tests that passed are run
        too; a run in which one ends wrongly is `untrusted`. Repeats of a run need none.
        """
        seed, seconds = secrets.randbits(32), timeout or self.project.limits.reproduction
        return await self.run(
            name, selection, patch, timeout=seconds, seed=seed, watch=sorted(watch or ()), copies=copies
        )

    async def run(
        self,
        name: str,
        selection: TestSelection,
        patch: Patch | None,
        *,
        timeout: float,
        seed: int,
        watch: Sequence[str] = (),
        copies: bool = True,
    ) -> TestRun:
        """As `once`; `seed` decides the tests' order, and the copies' names."""
        runs = self._selection_runs(name, selection, patch, timeout, seed)
        run, passed, contents = await runs.run(narrow(self.suite, selection.ids), watch)
        if run.untrusted or run.execution.timed_out or not copies:
            return run
        problem = await runs.contradiction(passed, contents) if passed else ""
        unchecked = tuple(one for one, status in run.results if status == "passed" and one not in runs.checked)
        return run.model_copy(update={"untrusted": problem, "unchecked": unchecked})

    async def contradiction(
        self, name: str, passed: Sequence[str], contents: Mapping[str, bytes], patch: Patch | None, timeout: float
    ) -> str:
        """Why copies of these tests, which passed, show that their results are not true; empty if all end as they must.

        `contents` has the files with the tests.
        """
        selection = TestSelection(ids=tuple(passed))
        runs = self._selection_runs(name, selection, patch, timeout, secrets.randbits(32))
        return await runs.contradiction(passed, contents)

    def _selection_runs(
        self, name: str, selection: TestSelection, patch: Patch | None, timeout: float, seed: int
    ) -> _SelectionRuns:
        random = Random(seed)  # noqa: S311 - no secret
        return _SelectionRuns(self.project, launcher_of(self.suite), selection, patch, name, timeout, random)

    async def repeated(self, name: str, selection: TestSelection, patch: Patch | None) -> Repeats:
        """Run the tests as often as is cheap."""
        return await self.again(name, selection, patch, await self.once(name, selection, patch))

    async def again(
        self, name: str, selection: TestSelection, patch: Patch | None, first: TestRun, *, besides: int = 0
    ) -> Repeats:
        """Repeat a first run as often as its duration allows. `besides` of the repeats are made elsewhere."""
        more = repetition_count(first.execution.seconds) - 1 - besides if not first.untrusted else 0
        others = [self.once(name, selection, patch, copies=False) for _ in range(more)]
        return Repeats((first, *await gather_all(*others)))
