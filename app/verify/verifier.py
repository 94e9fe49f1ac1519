"""The proof engine: base and patch go in, what was really run comes out, each run in a fresh sandbox."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from app.agent.base import Submission
from app.core.job import Progress
from app.core.patch import Patch
from app.core.tree import Tree
from app.core.verification import (
    BaselineResult,
    GateResult,
    Reproduction,
    SuiteComparison,
    SuiteResult,
    UnchangedSubmission,
    Verification,
    VerifiedPatch,
)
from app.sandbox.base import Sandbox
from app.verify.detect import find_suite
from app.verify.feedback import baseline_brief, feedback
from app.verify.frameworks import SuiteCommand
from app.verify.gates import CandidatePatch, static_gates
from app.verify.gates.bandit import security_scan
from app.verify.gates.lint import lint
from app.verify.overlay import Overlay
from app.verify.reproduction import ReproductionSubject, changed_tests, reproduce, with_tests_of
from app.verify.suite_runner import Guards, SuiteRunner, no_guards
from app.verify.tests_for_fix import FixUnderTest, check_tests_for_fix
from app.verify.verdict import verdict


class FreshSandboxes(Protocol):
    """Where fresh sandboxes come from (`app.sandbox.workspaces`)."""

    @property
    def provider(self) -> str: ...

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        """Base plus patch in a sandbox nobody has touched; an earlier one of that name is gone."""
        ...


MAX_GUARDS = 5
"""Tests that are named where no suite could be run."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that each kind of run may take; what is stopped at its limit is said to have been."""

    suite: float = 900.0
    reproduction: float = 300.0
    lint: float = 300.0

    @classmethod
    def within(cls, minutes: float) -> "TimeLimits":
        """For a job that may work so many minutes: its suite takes a quarter of them at most."""
        quarter = minutes * 60 / 4
        return cls(suite=quarter, reproduction=min(cls().reproduction, quarter), lint=min(cls().lint, quarter))


class Verifier:
    """Verifies patches of one base. Every method can be executed again after a crash, with the same result.

    `conflicts` are the paths in which conflicts of a merge are to be resolved. `before` then gives the changes that
    make the base, on which nothing can be run, into the branch as it was: that is what the head is compared with.
    `guarded` is there where only tests are to be written, with the fix that they are for.
    """

    def __init__(
        self,
        workspaces: FreshSandboxes,
        *,
        tree: Tree,
        progress: Progress,
        test: str | None = None,
        lint: str | None = None,
        protected_paths: tuple[str, ...] = (),
        conflicts: tuple[str, ...] = (),
        before: Callable[[], Patch] | None = None,
        guarded: FixUnderTest | None = None,
        expects_red: bool = True,
        limits: TimeLimits | None = None,
        guards: Guards = no_guards,
    ) -> None:
        self._workspaces = workspaces
        self._tree = tree
        self._progress = progress
        self._test = test
        self._lint = lint
        self._protected = protected_paths
        self._conflicts = conflicts
        self._find_before = before
        self._guarded = guarded
        self._expects_red = expects_red or guarded is not None
        self._limits = limits or TimeLimits()
        self._guards = guards
        self._isolated = True

    @cached_property
    def _before(self) -> Patch | None:
        return self._find_before() if self._find_before else None

    @cached_property
    def _reference(self) -> Tree:
        """What is called the base: the head is compared with it."""
        return Overlay(self._tree, self._before) if self._before else self._tree

    @cached_property
    def suite(self) -> SuiteCommand | None:
        """The repository's own suite, as its base commit has it: a patch does not choose its judge."""
        return find_suite(self._reference, self._test)

    async def baseline(self) -> BaselineResult:
        """The suite on the base, before the first step."""
        suite = await asyncio.to_thread(lambda: self.suite)
        if suite is None:
            return BaselineResult(brief=baseline_brief("", None))
        result = await self._runner(suite).base()
        return BaselineResult(suite=result, brief=baseline_brief(suite.command, result))

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch:
        """All facts of a patch and the verdict. The gates come first; where one blocks, nothing is executed.

        `earlier` are the agent's own reproductions that failed on base and head before.
        """
        self._isolated = True
        await asyncio.to_thread(lambda: self.suite)
        gates = await self._static(patch)
        reproduction, suite = None, None
        if any(gate.outcome == "blocked" for gate in gates):
            suite = SuiteComparison(
                command=self.suite.command if self.suite else "", not_run="Not run: a gate blocks the patch."
            )
            if submission.reproduction:
                reproduction = Reproduction(command=submission.reproduction, note="Not run: a gate blocks the patch.")
        else:
            gates = (*gates, await lint(self._lint, patch, self.borrow, timeout=self._limits.lint))
            reproduction = await self._reproduction(patch, submission, known, earlier)
            suite = await self._suite(patch, known.suite)
        outcome, reasons = verdict(reproduction, suite, gates)
        verification = Verification(
            verdict=outcome,
            reasons=reasons,
            reproduction=reproduction,
            suite=suite,
            gates=gates,
            isolated=self._isolated,
            sandbox=self._workspaces.provider,
        )
        told = feedback(verification, expects_red=self._expects_red)
        return VerifiedPatch(patch=patch, verification=verification, feedback=told)

    async def _static(self, patch: Patch) -> tuple[GateResult, ...]:
        candidate = CandidatePatch(self._tree, patch)
        only_tests = self._guarded is not None
        gates = await asyncio.to_thread(
            static_gates, candidate, self._protected, self._conflicts, only_tests=only_tests
        )
        if any(gate.outcome == "blocked" for gate in gates):
            return gates
        return (*gates, await security_scan(candidate))

    async def _reproduction(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission]
    ) -> Reproduction | None:
        """The agent's reproduction; where it shows nothing, its earlier ones or the changed tests may show more."""
        own = None
        if submission.reproduction.strip():
            subject = ReproductionSubject(submission.reproduction.strip(), "asked" if submission.asked else "agent")
            own = await self._reproduce(subject, patch, known)
            if own.on_base in ("red", "not_run") or own.on_head != "green":
                return own
        if own is None or own.on_base == "green":
            for one in earlier:
                held = await self._reproduce(ReproductionSubject(one.command), with_tests_of(patch, one.patch), known)
                if held.on_base == "red":
                    return _held(held, own)
        tests = changed_tests(patch, await asyncio.to_thread(self._narrowable, patch))
        if tests is None or (own is not None and tests.command == own.command):
            return own
        derived = await self._reproduce(tests, patch, known)
        if own is None:
            return derived
        if derived.on_base != "red" or derived.on_head != "green":
            return own
        return _instead(derived, own)

    async def _reproduce(self, subject: ReproductionSubject, patch: Patch, known: BaselineResult) -> Reproduction:
        self._progress.report("verification", f"reproduction on head and base: {subject.command}")
        failing = frozenset((known.suite.failing or ()) if known.suite else ())
        timeout, borrow = self._limits.reproduction, self.borrow
        if self._guarded is not None:
            guarded = self._guarded
            return await check_tests_for_fix(
                subject, patch, self._tree, borrow, guarded, timeout=timeout, failing_before=failing
            )
        return await reproduce(
            subject,
            patch,
            self._reference,
            borrow,
            timeout=timeout,
            failing_before=failing,
            beneath=self._before,
        )

    def _narrowable(self, patch: Patch) -> SuiteCommand | None:
        """A command that can run chosen test files: the suite's, else what base or head speak for by themselves."""
        if self.suite is not None and self.suite.narrowed:
            return self.suite
        return find_suite(self._tree) or find_suite(Overlay(self._tree, patch))

    async def _suite(self, patch: Patch, base: SuiteResult | None) -> SuiteComparison:
        if self.suite is None:
            found = SuiteComparison(command="", not_run="No test command was found in the repository.")
        else:
            found = await self._runner(self.suite).both(patch, self._reference, base)
        return await asyncio.to_thread(self._with_guards, found, patch) if found.not_run else found

    def _with_guards(self, found: SuiteComparison, patch: Patch) -> SuiteComparison:
        """What the agent can still run by itself where the harness could not run the suite."""
        guards = self._guards(change.path for change in patch.changes)[:MAX_GUARDS]
        told = f"Existing tests that guard the changed files, which were not run: {', '.join(guards)}."
        return found.model_copy(update={"notes": (*found.notes, told)}) if guards else found

    def _runner(self, suite: SuiteCommand) -> SuiteRunner:
        return SuiteRunner(suite, self.borrow, self._progress, self._limits.suite, self._guards)

    @asynccontextmanager
    async def borrow(self, name: str, patch: Patch | None) -> AsyncIterator[Sandbox]:
        """A fresh sandbox, destroyed afterwards, also when the job is stopped in the middle. No patch: the base."""
        sandbox = await self._workspaces.fresh(name, self._before if patch is None else patch)
        self._isolated = self._isolated and sandbox.isolated
        try:
            yield sandbox
        finally:
            await asyncio.shield(sandbox.destroy())


def _instead(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """A reproduction in place of the agent's last one, which shows nothing."""
    reason = (own.note or "it passes on the base.") if own else ""
    about = f"The agent's own reproduction `{own.command}` shows nothing: {reason}" if own else ""
    return shown.model_copy(update={"note": f"{shown.note} {about}".strip()})


def _held(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """The same with one that the agent gave before, with the tests that belonged to it."""
    found = _instead(shown, own)
    if found.on_head == "green":
        return found
    sentence = f"A reproduction that the agent gave before, `{found.command}`, still fails on the head."
    return found.model_copy(update={"unanswered": sentence})
