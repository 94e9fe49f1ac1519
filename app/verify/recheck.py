"""Runs newly failing tests again before they count: alone on the head and on the base, then all together."""

from dataclasses import dataclass

from app.core.patch import Patch
from app.core.verification import SuiteComparison, SuiteResult
from app.sandbox.base import Sandbox
from app.verify.frameworks import SuiteCommand, narrow
from app.verify.reproduction import BorrowSandbox
from app.verify.suite import launch, measure

MAX_ALONE = 200
"""With more newly failing tests than this, the patch is clearly the reason."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Runs what a recheck needs. `only` are the test files the suite was narrowed to, None for all of it."""

    command: SuiteCommand
    patch: Patch
    borrow: BorrowSandbox
    timeout: float
    only: tuple[str, ...] | None = None
    launched: bool = False
    """Whether the results to be checked are those of the harness's own launcher."""

    async def of(self, suite: SuiteComparison) -> SuiteComparison:
        """What stays newly failing. A test counts if it fails

        - alone on the head, and not alone on the base; or - on the head only together with others, in two runs of the
        suite.
        """
        names = suite.newly_failing
        if not 0 < len(names) <= MAX_ALONE:
            return suite
        alone = await self._alone("suite-head-alone", self.patch, names)
        failing = _not_passed(alone, names) if alone else ()
        unstable = tuple(name for name in names if name not in failing)
        excused = await self._failing_on_base(failing)
        flaky = await self._flaky(unstable)
        counted = tuple(name for name in names if name not in excused and name not in flaky)
        notes = (
            *(f"{name} also fails on the base when it runs alone; not counted." for name in excused),
            *(f"{name} failed in one of two runs on the head: flaky, not counted." for name in flaky),
        )
        execution = alone.execution if alone else None
        update = {"newly_failing": counted, "recheck": execution, "notes": (*suite.notes, *notes)}
        return suite.model_copy(update=update)

    async def _alone(self, sandbox: str, patch: Patch | None, names: tuple[str, ...]) -> SuiteResult | None:
        """Only these tests; None if the suite cannot be narrowed to them."""
        try:
            narrow(self.command, names)
        except ValueError:
            return None
        async with self.borrow(sandbox, patch) as opened:
            return await self._measured(opened, names)

    async def _failing_on_base(self, names: tuple[str, ...]) -> frozenset[str]:
        alone = await self._alone("suite-base-alone", None, names) if names else None
        return frozenset(alone.failing or ()).intersection(names) if alone else frozenset()

    async def _flaky(self, names: tuple[str, ...]) -> frozenset[str]:
        """Of these, the ones that pass when the suite is run on the head once more."""
        if not names:
            return frozenset()
        async with self.borrow("suite-head-again", self.patch) as opened:
            head = await self._measured(opened, self.only)
        return frozenset(head.passing or ()).intersection(names)

    async def _measured(self, sandbox: Sandbox, only: tuple[str, ...] | None) -> SuiteResult:
        found = await launch(sandbox, self.command, timeout=self.timeout, only=only) if self.launched else None
        return found or await measure(sandbox, self.command, timeout=self.timeout, only=only)


def _not_passed(alone: SuiteResult, names: tuple[str, ...]) -> tuple[str, ...]:
    """A test without a result in the second run counts as failed."""
    passed = set(alone.passing or ())
    return tuple(name for name in names if name not in passed)
