"""Repeats chosen tests until their results can be trusted."""

import secrets
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from app.core.patch import Patch
from app.core.verification import Outcome, TestRun, TestSelection
from app.verify.execution import gather_all
from app.verify.frameworks import SuiteCommand
from app.verify.replay import Replayed, ReplaysTests, replay_tests
from app.verify.reproduction import BorrowSandbox

REPETITIONS = ((1.0, 5), (5.0, 3), (30.0, 2))
"""(seconds, runs): a run up to that long is made that often in all; a longer one is not repeated."""


class RunsSelected(Protocol):
    """`app.verify.selected_tests.run_selected`."""

    async def __call__(
        self,
        suite: SuiteCommand,
        selection: TestSelection,
        borrow: BorrowSandbox,
        patch: Patch | None,
        *,
        name: str,
        timeout: float,
        watch: Mapping[str, Set[int]] | None = None,
        seed: int,
        negative_controls: bool = True,
    ) -> TestRun: ...


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
    """Runs selections of one suite's tests, each time in a fresh sandbox and in another order."""

    suite: SuiteCommand
    borrow: BorrowSandbox
    timeout: float
    run: RunsSelected
    replay: ReplaysTests = replay_tests

    async def replayed(self, name: str, selection: TestSelection, patch: Patch | None) -> Replayed:
        """What the tests call, without their framework."""
        return await self.replay(self.suite, selection, self.borrow, patch, name=name)

    async def once(
        self,
        name: str,
        selection: TestSelection,
        patch: Patch | None,
        *,
        watch: Mapping[str, Set[int]] | None = None,
        repeated: bool = False,
        timeout: float | None = None,
    ) -> TestRun:
        """Raises ValueError if the suite's framework cannot run chosen tests. `repeated` runs have no copies."""
        return await self.run(
            self.suite,
            selection,
            self.borrow,
            patch,
            name=name,
            timeout=timeout or self.timeout,
            watch=watch,
            seed=secrets.randbits(32),
            negative_controls=not repeated,
        )

    async def repeated(self, name: str, selection: TestSelection, patch: Patch | None) -> Repeats:
        """Run the tests as often as is cheap."""
        return await self.again(name, selection, patch, await self.once(name, selection, patch))

    async def again(
        self, name: str, selection: TestSelection, patch: Patch | None, first: TestRun, *, besides: int = 0
    ) -> Repeats:
        """The runs that follow a first one, less those that are made `besides`."""
        more = repetition_count(first.execution.seconds) - 1 - besides if not first.untrusted else 0
        others = [self.once(name, selection, patch, repeated=True) for _ in range(more)]
        return Repeats((first, *await gather_all(*others)))
