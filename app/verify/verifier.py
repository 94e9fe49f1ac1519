"""The proof engine: takes base and patch, and returns what was really run, each time in a fresh sandbox."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from app.agent.base import Submission
from app.config.repository import GateConfig
from app.core.errors import AgentFixError
from app.core.examples import PlanExamples, Review
from app.core.job import Journal
from app.core.patch import Patch
from app.core.task import AllowedPath
from app.core.verification import (
    BaselineResult,
    EarlierProof,
    Facts,
    GateResult,
    Reproduction,
    RestOfSuite,
    RestOrder,
    SuiteComparison,
    SuiteResult,
    UnchangedSubmission,
    Verification,
    VerifiedPatch,
)
from app.verify.base_rules import JudgedPatch
from app.verify.detect import find_suite
from app.verify.examples.judge import ExampleJudge
from app.verify.execution import gather_pair
from app.verify.feedback import baseline_brief, feedback
from app.verify.frameworks import SuiteCommand
from app.verify.gates import CandidatePatch, static_gates
from app.verify.gates.programs import ConfiguredGates, lint, security_scan
from app.verify.gates.shadowing import installed_modules
from app.verify.overlay import Overlay
from app.verify.paths_of_tests import is_test_path, is_text_path
from app.verify.project import ProjectUnderTest
from app.verify.reproduction import (
    ReproductionSubject,
    changed_tests,
    named_tests,
    reproduce,
    with_tests_of,
)
from app.verify.rest_of_suite import RestRunner, left_out, rest_of
from app.verify.suite_runner import SuiteRunner
from app.verify.verdict import outdated_tests, with_rest, with_verdict, without_outdated


class ChosenSuite(NamedTuple):
    """The suite that goes with the set-up that was chosen, and its result on the base if that was just measured."""

    command: SuiteCommand | None
    base: SuiteResult | None = None


_FOR_AGENTS = frozenset({"size", "refused files", "protected paths", "file kinds", "lint"})
"""Gates that say what an agent may publish."""
MAX_GUARDS = 5
"""Tests that are named if no suite could be run."""


@dataclass
class Verifier:
    """Verifies patches of one base. Every method can be repeated after a crash, with the same result.

    `conflicts` are the paths in which conflicts of a merge are to be resolved. `text` is what people wrote.
    `earlier` is what was proved on the pull request that a follow-up changes. `choose` tells which suite goes with the
    set-up, if that was found by trying. Of a change `of_others`, the gates on what an agent may publish only warn.
    """

    project: ProjectUnderTest
    test: str | None = None
    lint: str | None = None
    gates: tuple[GateConfig, ...] = ()
    protected_paths: tuple[str, ...] = ()
    allowed_paths: tuple[AllowedPath, ...] = ()
    conflicts: tuple[str, ...] = ()
    wants_red: bool = True
    text: str = ""
    earlier: EarlierProof | None = None
    choose: Callable[[], Awaitable[ChosenSuite]] | None = None
    of_others: bool = False
    _chosen: ChosenSuite | None = field(default=None, init=False)

    @cached_property
    def judge(self) -> ExampleJudge:
        return ExampleJudge(self.project, self.text)

    @cached_property
    def _configured(self) -> ConfiguredGates:
        return ConfiguredGates(self.gates, self.project)

    @cached_property
    def _expects_red(self) -> bool:
        """True if something must fail on the base; for tests of a fix only if that can be reverted. Blocking."""
        return self.project.shows_red if self.project.guarded is not None else self.wants_red

    @cached_property
    def suite(self) -> SuiteCommand | None:
        """The repository's own suite, as its base commit has it: a patch does not choose its judge."""
        return self._chosen.command if self._chosen else find_suite(self.project.reference, self.test)

    async def find_suite(self) -> SuiteCommand | None:
        """Before `suite` is read for the first time."""
        if self.choose is not None and self._chosen is None:
            self._chosen = await self.choose()
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
        self.project.isolated = True
        await self.find_suite()
        await asyncio.to_thread(lambda: self._expects_red)
        gates = await self._static(patch)
        if any(gate.outcome == "blocked" for gate in gates):
            facts = self._not_executed(gates, submission, known)
        else:
            gates = (*gates, *self._ours_warn((await lint(self.lint, patch, self.project),)))
            gates = (*gates, *await self._configured.check(patch))
            facts = (await self._executed(patch, submission, known, earlier)).model_copy(update={"gates": gates})
        sandbox, isolated = self.project.sandboxes.provider, self.project.isolated
        update = {"isolated": isolated, "sandbox": sandbox, "expects_red": self._expects_red}
        update["of_others"] = self.of_others
        update["tests_or_text_only"] = all(is_test_path(path) or is_text_path(path) for path in patch.paths())
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
        return await asyncio.to_thread(rest_of, suite, self.project.reference, found, patch, minutes)

    async def rest(
        self, known: Verification, order: RestOrder, journal: Journal, begin: Callable[[Verification], None]
    ) -> Verification:
        """The facts with the rest of the suite, and the verdict that follows.

        `begin` is told the verdict so far before each part, and may raise. Raises AgentFixError if the suite that is
        found here is another one than that which was verified, as may be on another machine.
        """
        suite = await self.find_suite()
        if known.suite is None or known.rest is None:
            raise ValueError("no rest of a suite was found when this was verified")
        if suite is None or suite.command != known.suite.command:
            found = f"`{suite.command}`" if suite else "none"
            raise AgentFixError(f"The verdict rests on `{known.suite.command}`, but the test command here is {found}.")
        judging = await asyncio.to_thread(JudgedPatch.of, self.project.reference, order.patch)
        left = await asyncio.to_thread(left_out, suite, self.project.reference, known.suite)

        runner = RestRunner(
            self._runner(suite), judging, order.known, lambda rest: begin(with_rest(known, rest)), outdated_tests(known)
        )
        return with_rest(known, await runner.run(left, known.rest, journal))

    def _not_executed(self, gates: tuple[GateResult, ...], submission: Submission, known: BaselineResult) -> Facts:
        why = "Not run: a gate blocks the change."
        reproduction = Reproduction(command=submission.reproduction, note=why) if submission.reproduction else None
        suite = SuiteComparison(command=self.suite.command if self.suite else "", not_run=why)
        facts = Facts(gates=gates, reproduction=reproduction, suite=suite, earlier=self.earlier)
        return facts.model_copy(update={"examples": known.examples, "review": known.review})

    async def _executed(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission]
    ) -> Facts:
        """The examples, the fixer's own test and the suite, in parallel as far as there are cores."""
        (examples, again, review), (reproduction, suite) = await gather_pair(
            self._examples(patch, submission, known),
            gather_pair(self._reproduction(patch, submission, known, earlier), self._suite(patch, known.suite)),
        )
        facts = Facts(examples=examples, earlier=again, review=review, reproduction=reproduction, suite=suite)
        suite = without_outdated(suite, outdated_tests(facts))
        return facts.model_copy(update={"suite": suite})

    async def _examples(
        self, patch: Patch, submission: Submission, known: BaselineResult
    ) -> tuple[PlanExamples | None, EarlierProof | None, Review | None]:
        """The plan's examples, the earlier ones and the reviewer's, on the change, with what the fixer disputes."""
        before = self.earlier.examples if self.earlier is not None else ()
        if not self._expects_red and not before:
            return None, self.earlier, known.review
        plan = known.examples.examples if known.examples is not None else ()
        counter = known.review.examples if known.review is not None else ()
        reasons = {one.example: one.reason for one in submission.objections if one.reason.strip()}
        done = await self.judge.on_change((*plan, *before, *counter), patch)
        judged = tuple(
            one.model_copy(update={"disputed": "" if one.origin == "person" else reasons.get(one.name, "")})
            for one in done
        )
        examples = known.examples.model_copy(update={"examples": judged[: len(plan)]}) if known.examples else None
        earlier = self.earlier and self.earlier.model_copy(update={"examples": judged[len(plan) :][: len(before)]})
        counted = judged[len(plan) + len(before) :]
        review = known.review.model_copy(update={"examples": counted}) if known.review else None
        return examples, earlier, review

    async def _static(self, patch: Patch) -> tuple[GateResult, ...]:
        candidate = CandidatePatch(self.project.tree, patch)
        check = partial(
            static_gates,
            candidate,
            self.protected_paths,
            self.conflicts,
            only_tests=self.project.guarded is not None,
            allowed=self.allowed_paths,
        )
        gates = self._ours_warn(await asyncio.to_thread(check))
        if any(gate.outcome == "blocked" for gate in gates):
            return gates
        if installed := await self._installed(candidate):
            gates = self._ours_warn(await asyncio.to_thread(check, installed=installed))
        return (*gates, await security_scan(candidate))

    def _ours_warn(self, gates: tuple[GateResult, ...]) -> tuple[GateResult, ...]:
        """The gates; of somebody's change, those only warn that say nothing of whether it is right."""
        return tuple(
            gate.model_copy(update={"outcome": "warned"})
            if self.of_others and gate.outcome == "blocked" and gate.name in _FOR_AGENTS
            else gate
            for gate in gates
        )

    async def _installed(self, candidate: CandidatePatch) -> frozenset[str]:
        """The modules of the sandbox, which matter for new modules at the top only."""
        entries = self.project.tree.entries()
        new = (change.path for change in candidate.patch.changes if change.path not in entries and not change.deleted)
        if not any(
            path.endswith(".py") and path.removesuffix("/__init__.py").count("/") < 2 and not is_test_path(path)
            for path in new
        ):
            return frozenset()
        async with self.project.open("installed", None) as sandbox:
            return await installed_modules(sandbox)

    async def _reproduction(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission]
    ) -> Reproduction | None:
        """The agent's reproduction; if it shows nothing, its earlier ones or the changed tests may show more."""
        own, suite = None, await asyncio.to_thread(self._narrowable, patch)
        if submission.reproduction.strip():
            command = submission.reproduction.strip()
            named = await asyncio.to_thread(named_tests, command, Overlay(self.project.tree, patch), suite)
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
        tests = changed_tests(patch, suite)
        if tests is None or (own is not None and (own.ids or tests.command == own.command)):
            return own
        derived = await self._reproduce(tests, patch, known)
        if own is None:
            return derived
        if not derived.ids or derived.on_head != "green":
            return own
        return _replacing(derived, own)

    def _narrowable(self, patch: Patch) -> SuiteCommand | None:
        """A command that can run chosen tests: the suite's, or one that base or change suggest. Blocking."""
        if self.suite is not None and self.suite.narrowed:
            return self.suite
        return find_suite(self.project.tree) or find_suite(Overlay(self.project.tree, patch))

    async def _reproduce(self, subject: ReproductionSubject, patch: Patch, known: BaselineResult) -> Reproduction:
        failing = (known.suite.failing or ()) if known.suite else ()
        what = f"reproduction on head and base: {subject.command}"
        with self.project.reported(what, "the reproduction on head and base"):
            return await reproduce(subject, patch, self.project, failing)

    async def _suite(self, patch: Patch, base: SuiteResult | None) -> SuiteComparison:
        if self.suite is None:
            found = SuiteComparison(command="", not_run="No test command was found in the repository.")
        else:
            found = await self._runner(self.suite).compare(patch, base)
        return await asyncio.to_thread(self._with_guards, found, patch) if found.not_run else found

    def _with_guards(self, found: SuiteComparison, patch: Patch) -> SuiteComparison:
        """Adds the tests that the agent can still run, if the harness could not run the suite."""
        guards = self.project.guards(change.path for change in patch.changes)[:MAX_GUARDS]
        note = f"Existing tests of the changed files that were not run: {', '.join(guards)}."
        return found.model_copy(update={"notes": (*found.notes, note)}) if guards else found

    def _runner(self, suite: SuiteCommand) -> SuiteRunner:
        return SuiteRunner(suite, self.project, self.project.limits.suite)


def _replacing(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """A reproduction that replaces the agent's last one, which shows nothing."""
    if own is None:
        return shown
    why = "it passes on the base." if own.on_base == "green" else "it names no test that can be run by its id."
    about = f"This stands for the agent's own reproduction `{own.command}`: {own.note or why}"
    return shown.model_copy(update={"note": f"{shown.note} {about}".strip()})


def _earlier_result(shown: Reproduction, own: Reproduction | None) -> Reproduction:
    """The result of an earlier reproduction of the agent, with its tests."""
    found = _replacing(shown, own)
    if found.on_head == "green":
        return found
    sentence = f"The agent's earlier reproduction `{found.command}` still fails on the head."
    return found.model_copy(update={"unanswered": sentence})
