"""The proof engine: takes base and patch, and returns what was really run, each time in a fresh sandbox."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from app.agent.base import Submission
from app.config.repository import GateConfig
from app.core.errors import AgentFixError
from app.core.job import Budget, Journal, Progress, waiting_for
from app.core.patch import Patch, Tree
from app.core.task import AllowedPath
from app.core.verification import (
    BaselineResult,
    Cap,
    Facts,
    GateResult,
    Reproduction,
    RestOfSuite,
    RestOrder,
    Specification,
    SpecificationResult,
    SuiteComparison,
    SuiteResult,
    UnchangedSubmission,
    Verification,
    VerifiedPatch,
)
from app.sandbox.base import Sandbox
from app.verify.base_rules import JudgedPatch
from app.verify.detect import find_suite
from app.verify.execution import gather_pair
from app.verify.feedback import baseline_brief, feedback
from app.verify.frameworks import SuiteCommand
from app.verify.gates import CandidatePatch, static_gates
from app.verify.gates.programs import ConfiguredGates, lint, security_scan
from app.verify.gates.shadowing import installed_modules
from app.verify.overlay import Overlay
from app.verify.paths_of_tests import is_test_path
from app.verify.proof import Prover, without_test_ids
from app.verify.reproduction import (
    FixUnderTest,
    ReproductionSubject,
    changed_tests,
    check_tests_for_fix,
    named_tests,
    reproduce,
    with_tests_of,
)
from app.verify.suite_runner import Guards, RestRunner, SuiteRunner, left_out, no_guards, rest_of
from app.verify.verdict import changes_beyond, specification_supports_change, with_verdict, without_outdated


class FreshSandboxes(Protocol):
    """Where fresh sandboxes come from (`app.sandbox.workspaces`)."""

    @property
    def provider(self) -> str: ...

    async def fresh(self, name: str, patch: Patch | None = None) -> Sandbox:
        """Base plus patch in an unused sandbox; an earlier one of that name is deleted."""
        ...


_ONE_AT_A_TIME = frozenset({"none"})
"""Providers whose sandboxes share the host's files and ports."""


class ChosenSuite(NamedTuple):
    """The suite that goes with the set-up that was chosen, and its result on the base if that was just measured."""

    command: SuiteCommand | None
    base: SuiteResult | None = None


MAX_GUARDS = 5
"""Tests that are named if no suite could be run."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that each kind of run may take; a run that was stopped at its limit is reported as such."""

    suite: float = 300.0
    reproduction: float = 300.0
    lint: float = 300.0

    @classmethod
    def within(cls, budget: Budget) -> "TimeLimits":
        """Of a job: a reproduction and the linter may take a quarter of its minutes."""
        quarter = budget.minutes * 60 / 4
        shorter = min(cls().reproduction, quarter), min(cls().lint, quarter)
        return cls(budget.suite_seconds, *shorter)


class Verifier:
    """Verifies patches of one base. Every method can be repeated after a crash, with the same result.

    `conflicts` are the paths in which conflicts of a merge are to be resolved. `before` then gives the changes that
    make the base, on which nothing can be run, into the branch as it was: that is what the head is compared with.
    `guarded` is set if only tests are to be written, with the fix that they are for. `chosen` tells which suite
    goes with the set-up, if that was found by trying.
    """

    def __init__(
        self,
        workspaces: FreshSandboxes,
        *,
        tree: Tree,
        progress: Progress,
        test: str | None = None,
        lint: str | None = None,
        gates: tuple[GateConfig, ...] = (),
        protected_paths: tuple[str, ...] = (),
        allowed_paths: tuple[AllowedPath, ...] = (),
        conflicts: tuple[str, ...] = (),
        before: Callable[[], Patch] | None = None,
        guarded: FixUnderTest | None = None,
        expects_red: bool = True,
        limits: TimeLimits | None = None,
        guards: Guards = no_guards,
        text: str = "",
        chosen: Callable[[], Awaitable[ChosenSuite]] | None = None,
    ) -> None:
        """`text` is the issue's: the names in it are those of interfaces that may be new."""
        self._workspaces = workspaces
        self._tree = tree
        self._progress = progress
        self._test = test
        self._lint = lint
        self._protected = protected_paths
        self._allowed = allowed_paths
        self._conflicts = conflicts
        self._find_before = before
        self._guarded = guarded
        self._wants_red = expects_red
        self._limits = limits or TimeLimits()
        self._guards = guards
        self._choose = chosen
        self._chosen: ChosenSuite | None = None
        self._isolated = True
        self._slots = asyncio.Semaphore(1 if workspaces.provider in _ONE_AT_A_TIME else max(2, os.cpu_count() or 2))
        self._configured = ConfiguredGates(gates, self.borrow, timeout=self._limits.suite)
        self.prover = Prover(
            tree=tree,
            suite=lambda: self.suite,
            borrow=self.borrow,
            progress=progress,
            timeout=self._limits.reproduction,
            text=text,
            isolated=lambda: self._isolated,
            before=lambda: self._before,
            guarded=guarded,
            protected=protected_paths,
        )

    @cached_property
    def _before(self) -> Patch | None:
        return self._find_before() if self._find_before else None

    @cached_property
    def _expects_red(self) -> bool:
        """True if something must fail on the base; for tests of a fix only if that can be reverted. Blocking."""
        if self._guarded is not None:
            return self._guarded.taken is not None and self._guarded.taken.patch is not None
        return self._wants_red

    @cached_property
    def _reference(self) -> Tree:
        """The base of the comparison."""
        return Overlay(self._tree, self._before) if self._before else self._tree

    @cached_property
    def suite(self) -> SuiteCommand | None:
        """The repository's own suite, as its base commit has it: a patch does not choose its judge."""
        return self._chosen.command if self._chosen else find_suite(self._reference, self._test)

    async def find_suite(self) -> SuiteCommand | None:
        """Before `suite` is read for the first time."""
        if self._choose is not None and self._chosen is None:
            self._chosen = await self._choose()
        return await asyncio.to_thread(lambda: self.suite)

    async def baseline(self) -> BaselineResult:
        """The suite on the base, before the first step."""
        suite = await self.find_suite()
        if suite is None:
            return BaselineResult(brief=baseline_brief("", None))
        measured = self._chosen.base if self._chosen else None
        result = measured or await self._runner(suite).base()
        return BaselineResult(suite=result, brief=baseline_brief(suite.command, result))

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch:
        """All facts about a patch and the verdict. The gates come first; if one blocks, nothing is executed.

        `earlier` are the agent's own reproductions that failed on base and head before.
        """
        self._isolated = True
        await self.find_suite()
        await asyncio.to_thread(lambda: self._expects_red)
        gates = await self._static(patch)
        if any(gate.outcome == "blocked" for gate in gates):
            facts = self._not_executed(gates, submission, known)
        else:
            gates = (*gates, await lint(self._lint, patch, self.borrow, timeout=self._limits.lint))
            gates = (*gates, *await self._configured.check(patch))
            facts = (await self._executed(patch, submission, known, earlier)).model_copy(update={"gates": gates})
        update = {"isolated": self._isolated, "sandbox": self._workspaces.provider, "expects_red": self._expects_red}
        verification = with_verdict(facts.model_copy(update=update))
        text = feedback(verification)
        return VerifiedPatch(
            patch=patch, reproduction=submission.reproduction, verification=verification, feedback=text
        )

    async def rest_of(self, found: SuiteComparison, patch: Patch, minutes: float) -> RestOfSuite | None:
        """What the verdict leaves out of a long suite; None if nothing is left to run."""
        suite = await self.find_suite()
        if suite is None:
            return None
        return await asyncio.to_thread(rest_of, suite, self._reference, found, patch, minutes)

    async def rest(
        self, facts: Facts, order: RestOrder, journal: Journal, begin: Callable[[Verification], None]
    ) -> Verification:
        """The facts with the rest of the suite, and the verdict that follows.

        `begin` is told the verdict so far before each part, and may raise. Raises AgentFixError if the suite that is
        found here is another one than that which was verified, as may be on another machine.
        """
        suite = await self.find_suite()
        if facts.suite is None or facts.rest is None:
            raise ValueError("no rest of a suite was found when this was verified")
        if suite is None or suite.command != facts.suite.command:
            found = f"`{suite.command}`" if suite else "none"
            raise AgentFixError(f"The verdict rests on `{facts.suite.command}`, but the test command here is {found}.")
        judging = await asyncio.to_thread(JudgedPatch.of, self._reference, order.patch)
        left = await asyncio.to_thread(left_out, suite, self._reference, facts.suite)

        def with_rest(rest: RestOfSuite) -> Verification:
            return with_verdict(facts.model_copy(update={"rest": rest}))

        outdated = facts.specification.outdated if facts.specification else ()
        runner = RestRunner(self._runner(suite), judging, order.known, lambda rest: begin(with_rest(rest)), outdated)
        return with_rest(await runner.run(left, facts.rest, journal))

    def same_sources(self, patch: Patch, other: Patch) -> bool:
        """True if two patches have the same sources, ignoring comments. Blocking."""
        return self.prover.same_sources(patch, other)

    def _not_executed(self, gates: tuple[GateResult, ...], submission: Submission, known: BaselineResult) -> Facts:
        why = "Not run: a gate blocks the patch."
        reproduction = Reproduction(command=submission.reproduction, note=why) if submission.reproduction else None
        specification = SpecificationResult(absent="a gate blocks the patch.") if self._expects_red else None
        suite = SuiteComparison(command=self.suite.command if self.suite else "", not_run=why)
        return Facts(gates=gates, reproduction=reproduction, suite=suite, specification=specification)

    async def _executed(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission]
    ) -> Facts:
        """The specification, the fixer's own tests and the suite, in parallel as far as there are cores."""
        ((specification, second), reproduction), suite = await gather_pair(
            gather_pair(
                gather_pair(self._specified(patch, known), self._second_tests(patch, known)),
                self._reproduction(patch, submission, known, earlier),
            ),
            self._suite(patch, known.suite),
        )
        caps = await self.prover.caps(patch, known.specification)
        outdated = known.specification.outdated if known.specification else ()
        suite = without_outdated(suite, outdated)
        if changed := changes_beyond(suite, outdated):
            caps = (*caps, Cap(rule="existing_tests_changed", findings=changed))
        if self.suite is not None and self.suite.proposed:
            caps = (*caps, Cap(rule="proposed_suite", findings=(self.suite.command,)))
        if reproduction is not None:
            counts = self._expects_red and not specification_supports_change(specification)
            reproduction = await self.prover.own(patch, reproduction) if counts else without_test_ids(reproduction)
        return Facts(
            specification=specification, second_tests=second, reproduction=reproduction, suite=suite, caps=caps
        )

    async def _specified(self, patch: Patch, known: BaselineResult) -> SpecificationResult | None:
        if not self._expects_red or known.specification is None:
            return None
        return await self.prover.specification(patch, known.specification, known.suite)

    async def _second_tests(self, patch: Patch, known: BaselineResult) -> SpecificationResult | None:
        return await self.second_tests(patch, known.second_tests) if known.second_tests is not None else None

    async def second_tests(self, patch: Patch, frozen: Specification) -> SpecificationResult:
        """The tests that a second author wrote against a submitted change, executed on this one."""
        return await self.prover.second_tests(patch, frozen)

    async def _static(self, patch: Patch) -> tuple[GateResult, ...]:
        candidate = CandidatePatch(self._tree, patch)
        only_tests = self._guarded is not None
        check = partial(
            static_gates, candidate, self._protected, self._conflicts, only_tests=only_tests, allowed=self._allowed
        )
        gates = await asyncio.to_thread(check)
        if any(gate.outcome == "blocked" for gate in gates):
            return gates
        if installed := await self._installed(candidate):
            gates = await asyncio.to_thread(check, installed=installed)
        return (*gates, await security_scan(candidate))

    async def _installed(self, candidate: CandidatePatch) -> frozenset[str]:
        """The modules of the sandbox, which matter for new modules at the top only."""
        entries = self._tree.entries()
        new = (change.path for change in candidate.patch.changes if change.path not in entries and not change.deleted)
        if not any(
            path.endswith(".py") and path.removesuffix("/__init__.py").count("/") < 2 and not is_test_path(path)
            for path in new
        ):
            return frozenset()
        async with self.borrow("installed", None) as sandbox:
            return await installed_modules(sandbox)

    async def _reproduction(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission]
    ) -> Reproduction | None:
        """The agent's reproduction; if it shows nothing, its earlier ones or the changed tests may show more."""
        own = None
        if submission.reproduction.strip():
            command = submission.reproduction.strip()
            suite = await asyncio.to_thread(self.prover.narrowable, patch)
            named = await asyncio.to_thread(named_tests, command, Overlay(self._tree, patch), suite)
            subject = ReproductionSubject(
                command, "asked" if submission.reproduction_was_requested else "agent", suite if named else None, named
            )
            own = await self._reproduce(subject, patch, known)
            if own.on_base == "not_run" or own.on_head != "green" or (own.on_base == "red" and own.ids):
                return own
        if own is None or own.on_base == "green":
            for one in earlier:
                held = await self._reproduce(ReproductionSubject(one.command), with_tests_of(patch, one.patch), known)
                if held.on_base == "red":
                    return _earlier_result(held, own)
        tests = changed_tests(patch, await asyncio.to_thread(self.prover.narrowable, patch))
        if tests is None or (own is not None and (own.ids or tests.command == own.command)):
            return own
        derived = await self._reproduce(tests, patch, known)
        if own is None:
            return derived
        if not derived.ids or derived.on_head != "green":
            return own
        return _replacing(derived, own)

    async def _reproduce(self, subject: ReproductionSubject, patch: Patch, known: BaselineResult) -> Reproduction:
        self._progress.report("verification", f"reproduction on head and base: {subject.command}")
        with waiting_for(self._progress, "the reproduction on head and base"):
            return await self._on_both(subject, patch, known)

    async def _on_both(self, subject: ReproductionSubject, patch: Patch, known: BaselineResult) -> Reproduction:
        failing = frozenset((known.suite.failing or ()) if known.suite else ())
        timeout, borrow = self._limits.reproduction, self.borrow
        if self._guarded is not None:
            guarded = self._guarded
            return await check_tests_for_fix(
                subject, patch, self._tree, borrow, guarded, timeout=timeout, failing_before=failing
            )
        base, before = self._reference, self._before
        return await reproduce(
            subject, patch, base, borrow, timeout=timeout, failing_before=failing, reference_patch=before
        )

    async def _suite(self, patch: Patch, base: SuiteResult | None) -> SuiteComparison:
        if self.suite is None:
            found = SuiteComparison(command="", not_run="No test command was found in the repository.")
        else:
            found = await self._runner(self.suite).compare(patch, self._reference, base)
        return await asyncio.to_thread(self._with_guards, found, patch) if found.not_run else found

    def _with_guards(self, found: SuiteComparison, patch: Patch) -> SuiteComparison:
        """Adds the tests that the agent can still run, if the harness could not run the suite."""
        guards = self._guards(change.path for change in patch.changes)[:MAX_GUARDS]
        note = f"Existing tests of the changed files that were not run: {', '.join(guards)}."
        return found.model_copy(update={"notes": (*found.notes, note)}) if guards else found

    def _runner(self, suite: SuiteCommand) -> SuiteRunner:
        tree = self._tree if self._before is None else None
        return SuiteRunner(suite, self.borrow, self._progress, self._limits.suite, self._guards, tree)

    @asynccontextmanager
    async def borrow(self, name: str, patch: Patch | None) -> AsyncIterator[Sandbox]:
        """A fresh sandbox, destroyed afterwards, also if the job is stopped. No patch: the base."""
        async with self._slots:
            sandbox = await self._workspaces.fresh(name, self._before if patch is None else patch)
            self._isolated = self._isolated and sandbox.isolated
            try:
                yield sandbox
            finally:
                await asyncio.shield(sandbox.destroy())


def _replacing(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """A reproduction that replaces the agent's last one, which shows nothing."""
    if own is None:
        return shown
    why = "it passes on the base." if own.on_base == "green" else "it names no test that can be run by its id."
    about = f"The agent's own reproduction `{own.command}` shows nothing: {own.note or why}"
    return shown.model_copy(update={"note": f"{shown.note} {about}".strip()})


def _earlier_result(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """The result of an earlier reproduction of the agent, with its tests."""
    found = _replacing(shown, own)
    if found.on_head == "green":
        return found
    sentence = f"The agent's earlier reproduction `{found.command}` still fails on the head."
    return found.model_copy(update={"unanswered": sentence})
