"""Candidates are tried one after the other and judged by what ran; the best is kept, with the reason."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from time import monotonic

from app.core.errors import SetupError
from app.core.job import BASE_SUITE, Progress, waiting_for
from app.core.text import one_line
from app.core.verification import SuiteResult, TestCount
from app.sandbox.base import Sandbox
from app.verify.candidates import Candidate
from app.verify.reports import cause_of
from app.verify.suite import could_not_start, launch, measure

COMPARABLE = 0.9
"""The passing share from which a suite says something about a change."""
CLEAR = 0.97
"""With this share no further candidate is tried."""
SKIPPED = 0.2
"""With a larger share of skipped tests one more candidate is tried: what an extra brings may be missing."""
PART = 0.5
"""How much longer a suite that was stopped is run by our launcher, which knows how the tests until then ended."""
MAX_TRIALS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate that was tried. `result` is None if its set-up failed; `reason` says what speaks against it."""

    candidate: Candidate
    seconds: float
    result: SuiteResult | None = None
    reason: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def count(self) -> TestCount:
        return (self.result.count if self.result else None) or TestCount()

    @property
    def share(self) -> float:
        """The passing share of what ran; 1 if only the exit code is known, and it is 0."""
        if self.result is None:
            return 0.0
        if self.result.count is None:
            return 1.0 if self.result.execution.exit_code == 0 else 0.0
        ran = self.count.passed + self.count.failed
        return self.count.passed / ran if ran else 0.0

    @property
    def comparable(self) -> bool:
        return self.share >= COMPARABLE

    @property
    def skips_many(self) -> bool:
        return self.count.skipped > SKIPPED * (self.count.passed + self.count.failed + self.count.skipped)

    @property
    def too_long(self) -> bool:
        """Whether it could be set up, and the suite was stopped before it said anything."""
        return self.result is not None and self.result.execution.timed_out and not self.count.passed + self.count.failed

    @property
    def rank(self) -> tuple[bool, bool, int, bool, float]:
        whole = self.comparable and not self.candidate.part
        return (self.result is not None, whole, self.count.passed, self.too_long, self.share)


Open = Callable[[Candidate], AbstractAsyncContextManager[Sandbox]]
"""A fresh tree of the base with the candidate's set-up; raises SetupError if that fails."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Seconds for all trials together, after which none is begun, and for one suite."""

    total: float = 900.0
    suite: float = 900.0


async def try_candidates(
    found: Sequence[Candidate], open_candidate: Open, limits: TrialLimits, progress: Progress, ready: Callable[[], None]
) -> list[Trial]:
    """Every trial, the best first. `ready` is called once a set-up is known to be possible.

    Raises SetupError, with why the most likely candidate failed, if none can be set up.
    """
    begun = monotonic()
    trials: list[Trial] = []
    failures: list[SetupError] = []
    for candidate in found[:MAX_TRIALS]:
        if trials and monotonic() - begun > limits.total:
            break
        progress.report("note", f"set-up: {candidate.reason}")
        started = monotonic()
        try:
            trial = await _try(candidate, open_candidate, limits, progress, ready)
        except SetupError as error:
            failures.append(error)
            trial = Trial(candidate, monotonic() - started, reason=_failure(error))
        trials.append(trial)
        if trial.reason:
            progress.report("note", f"set-up: {candidate.name}: {trial.reason}")
        clear = [one for one in trials if one.share >= CLEAR and not one.candidate.part]
        if len(clear) > 1 or (clear and not clear[0].skips_many):
            break
        if trial.comparable and monotonic() - begun > limits.total / 2:
            break
    if failures and len(failures) == len(trials):
        raise failures[0]
    return sorted(trials, key=lambda trial: trial.rank, reverse=True)


async def _try(
    candidate: Candidate, open_candidate: Open, limits: TrialLimits, progress: Progress, ready: Callable[[], None]
) -> Trial:
    started = monotonic()
    async with open_candidate(candidate) as sandbox:
        ready()
        if candidate.suite is None:
            return Trial(candidate, monotonic() - started, reason="No test command was found in the repository.")
        progress.report("verification", f"suite on the base: `{candidate.suite.command}`")
        with waiting_for(progress, BASE_SUITE):
            result = await measure(sandbox, candidate.suite, timeout=limits.suite)
            if result.execution.timed_out and result.count is None:
                part = await launch(sandbox, candidate.suite, timeout=limits.suite * PART)
                result = part if part is not None and part.count is not None else result
        return Trial(candidate, monotonic() - started, result, _against(result), sandbox.left_out)


def _failure(error: SetupError) -> str:
    """What was executed, and the line of its output that names the error."""
    first, _, output = error.message.partition("\n")
    return one_line(f"{first} {cause_of(output)}")


def _against(result: SuiteResult) -> str:
    """Why a result is not comparable, or that it is one of a part, in a sentence; empty if nothing is against it."""
    count = result.count
    if count is None:
        cause = cause_of(result.execution.excerpt)
        ended = f"The tests end with exit code {result.execution.exit_code}: {cause}"
        return "" if result.execution.exit_code == 0 else could_not_start(result.execution) or result.partial or ended
    if count.passed + count.failed == 0:
        cause = "" if result.execution.exit_code == 0 else f" {cause_of(result.execution.excerpt)}"
        return result.partial or f"No test was collected.{cause}"
    if count.passed / (count.passed + count.failed) >= COMPARABLE:
        return result.partial
    cause = result.shared_cause or cause_of(result.execution.excerpt)
    return f"{count.failed} of {count.passed + count.failed} tests fail: {cause}"
