"""Reviews a submission: verifies its patch, and accepts it or sends it back with the facts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from app.agent.base import ReviewResult, Submission
from app.core.job import Journal, Progress
from app.core.patch import Patch
from app.core.verification import (
    BaselineResult,
    Control,
    Facts,
    Reproduction,
    Settlement,
    Specification,
    SpecificationResult,
    UnchangedSubmission,
    Verification,
    VerifiedPatch,
)
from app.verify.feedback import feedback
from app.verify.verdict import facts_of, specification_supports_change, with_verdict

MAX_REVIEWS = 6
"""Submissions that are verified; the last one's facts are the job's, whatever they are."""

MAX_UNSHOWN = 2
"""Earlier reproductions that are run again if the last one shows nothing."""

DecideObjection = Callable[[str, SpecificationResult, str], Awaitable[Settlement]]
"""(the call's key, the tests with their results, the objection) → which of the failing tests are withdrawn."""

TestChange = Callable[[str, Patch, Specification], Awaitable[Specification]]
"""(the calls' key, a submitted patch, the first author's tests) → a second author's tests against that patch."""


class VerifierPort(Protocol):
    """The proof engine (`app.verify.verifier`)."""

    async def baseline(self) -> BaselineResult: ...

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch: ...

    async def second_tests(self, patch: Patch, frozen: Specification) -> SpecificationResult:
        """The results of a second author's tests on a patch."""
        ...

    def same_sources(self, patch: Patch, other: Patch) -> bool:
        """True if two patches have the same sources, ignoring comments. Blocking."""
        ...


class SubmissionVerifier:
    """Verifies each submission once, and stores all facts.

    The first submission that the independent tests support is shown to a second author, whose tests every later
    submission must pass, too.
    """

    def __init__(
        self,
        verifier: VerifierPort,
        export: Callable[[], Awaitable[Patch]],
        journal: Journal,
        progress: Progress,
        known: Callable[[], Awaitable[BaselineResult]],
        *,
        no_reproduction_expected: bool,
        decide_objection: DecideObjection,
        test_change: TestChange | None,
        key_prefix: str,
        earlier_submissions: int,
    ) -> None:
        """With `no_reproduction_expected`, a submission is not sent back for a reproduction: nothing can be red.

        `known` returns the facts about the base once they are known. `earlier_submissions` is the number of this job's
        submissions that were verified before. `key_prefix` is this attempt's, for the keys of model calls.
        """
        self._verifier = verifier
        self._export = export
        self._journal = journal
        self._progress = progress
        self._known = known
        self._no_reproduction_expected = no_reproduction_expected
        self._decide_objection = decide_objection
        self._test_change = test_change
        self._key_prefix = key_prefix
        self._earlier_submissions = earlier_submissions
        self._settlements: dict[str, Settlement] = {}
        """By the name of the tests in `Facts`."""
        self._second_tests: Specification | None = None
        self.verified: list[VerifiedPatch] = []
        """Every submission's facts, in order."""

    async def review(self, submission: Submission) -> ReviewResult:
        self._progress.report("state", "verifying")
        name = f"verify.{len(self.verified) + 1}"
        before = tuple(self.verified)
        found = await self._journal.step(name, VerifiedPatch, partial(self._verify, submission, before))
        for tests in ("specification", "second_tests"):
            found = await self._with_objection(found, tests, submission.objection.strip())
        found = await self._with_second_tests(found)
        self.verified.append(found)
        verification = found.verification
        self._progress.report("verification", f"{verification.verdict}: {' '.join(verification.reasons)}")
        if is_acceptable(
            verification, before, was_requested=submission.reproduction_was_requested or self._no_reproduction_expected
        ):
            return ReviewResult(accepted=True, text=found.feedback)
        broken = verification.verdict == "broken"
        text = found.feedback if broken else f"{found.feedback}\n\n{_RETURNED}"
        return ReviewResult(accepted=False, broken=broken, text=text)

    async def _verify(self, submission: Submission, before: Sequence[VerifiedPatch]) -> VerifiedPatch:
        """The facts about a patch and reproduction; an identical earlier submission is not run again."""
        patch = await self._export()
        number = self._earlier_submissions + len(before) + 1
        for earlier in before:
            if earlier.patch == patch and earlier.reproduction == submission.reproduction:
                return _with_number(earlier, number)
        known = (await self._known()).model_copy(update={"second_tests": self._second_tests})
        found = await self._verifier.verify(patch, submission, known, _unshown_reproductions(before))
        return _with_number(await self._compared(found, before), number)

    async def _compared(self, found: VerifiedPatch, before: Sequence[VerifiedPatch]) -> VerifiedPatch:
        """The same, marked as doubtful if an earlier submission with the same sources gave different results."""
        now = found.verification
        for earlier in before:
            then = earlier.verification
            frozen = _results_differ(_specified_results(then.specification), _specified_results(now.specification))
            own = _results_differ(_reproduction_results(then.reproduction), _reproduction_results(now.reproduction))
            if not (frozen or own):
                continue
            if await asyncio.to_thread(self._verifier.same_sources, earlier.patch, found.patch):
                update: dict[str, object] = {}
                if frozen and now.specification is not None:
                    controls = _with_failed_repeats(now.specification.controls)
                    update["specification"] = now.specification.model_copy(update={"controls": controls})
                if own and now.reproduction is not None:
                    controls = _with_failed_repeats(now.reproduction.controls)
                    update["reproduction"] = now.reproduction.model_copy(update={"controls": controls})
                return _with_new_verdict(found, update)
        return found

    async def _with_objection(self, found: VerifiedPatch, name: str, objection: str) -> VerifiedPatch:
        """On the fixer's first objection to an author's tests a third call decides; that holds from then on."""
        tests: SpecificationResult | None = getattr(found.verification, name)
        if tests is None:
            return found
        if objection and tests.failing and name not in self._settlements:
            key = "objection" if name == "specification" else "second_tests.objection"
            work = partial(self._decide_objection, f"{self._key_prefix}{key}", tests, objection)
            decided = await self._journal.step(key, Settlement, work)
            self._settlements[name] = decided
            outcome = f"{len(decided.withdrawn)} tests withdrawn, {len(decided.kept)} upheld. {decided.reason}"
            self._progress.report("note", f"the fixer objected: {outcome}")
        settlement = self._settlements.get(name)
        if settlement is None:
            return found
        decided_tests = tuple(
            test.model_copy(update={"withdrawn": test.id in settlement.withdrawn}) for test in tests.tests
        )
        update = {"tests": decided_tests, "settlement": settlement}
        return _with_new_verdict(found, {name: tests.model_copy(update=update)})

    async def _with_second_tests(self, found: VerifiedPatch) -> VerifiedPatch:
        """The facts with a second author's tests, if the first author's support the change and nobody was asked yet."""
        first = found.verification.specification
        supported = found.verification.verdict in ("proved", "tested") and specification_supports_change(first)
        if self._test_change is None or self._second_tests is not None or first is None or not supported:
            return found
        work = partial(self._test_change, f"{self._key_prefix}second_tests", found.patch, first)
        frozen = await self._journal.step("second_tests", Specification, work)
        self._second_tests = frozen
        result = SpecificationResult(**dict(frozen))
        if frozen.tests:
            self._progress.report("note", f"{len(frozen.tests)} tests of a second author are frozen")
            run = partial(self._verifier.second_tests, found.patch, frozen)
            result = await self._journal.step("second_tests.head", SpecificationResult, run)
        return _with_new_verdict(found, {"second_tests": result})


def _with_number(found: VerifiedPatch, number: int) -> VerifiedPatch:
    verification = found.verification.model_copy(update={"submission": number})
    return found.model_copy(update={"verification": verification})


def _with_new_verdict(found: VerifiedPatch, update: Mapping[str, object]) -> VerifiedPatch:
    """The facts with an update, and the verdict that follows."""
    verification = with_verdict(Facts(**{**facts_of(found.verification), **update}))
    return found.model_copy(update={"verification": verification, "feedback": feedback(verification)})


def _specified_results(found: SpecificationResult | None) -> Mapping[str, str]:
    return {test.id: test.head for test in found.tests} if found is not None else {}


def _reproduction_results(found: Reproduction | None) -> Mapping[str, str]:
    """How the fixer's own command ended on base and head."""
    if found is None or found.unanswered or "not_run" in (found.on_base, found.on_head):
        return {}
    return {f"{found.command} on the base": found.on_base, f"{found.command} on the head": found.on_head}


def _results_differ(then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return then != now and bool(then) and then.keys() == now.keys()


def _with_failed_repeats(controls: Sequence[Control]) -> tuple[Control, ...]:
    detail = "an earlier submission with the same sources gave different results."
    failed = Control(name="repeats_agree", outcome="failed", detail=detail)
    return (*(control for control in controls if control.name != "repeats_agree"), failed)


def _unshown_reproductions(before: Sequence[VerifiedPatch]) -> tuple[UnchangedSubmission, ...]:
    """The agent's reproductions that failed on base and head, newest first, each with its newest tests."""
    found: dict[str, UnchangedSubmission] = {}
    for verified in reversed(before):
        shown = verified.verification.reproduction
        if shown is None or shown.unanswered or (shown.on_base, shown.on_head) != ("red", "red"):
            continue
        found.setdefault(shown.command, UnchangedSubmission(command=shown.command, patch=verified.patch))
    return tuple(found.values())[:MAX_UNSHOWN]


_RETURNED = (
    "Nothing is broken, but it is not proved either. If you can do better, with a test of your own that fails on the "
    "original code and passes now, submit again; if not, submit the same again: it is then taken as it is, and the "
    "pull request says what is not proved."
)


_NOT_THE_AGENTS = frozenset({"left_to_framework", "proposed_suite"})
"""Caps that no other patch would lift."""


def is_acceptable(now: Verification, before: Sequence[VerifiedPatch], *, was_requested: bool) -> bool:
    """True if a submission is accepted.

    Accepted at once: what is proved, and what the frozen tests or the fixer's own show if only the rest has no result,
    because the agent could not do better. Sent back once with the facts: other submissions that broke nothing, so that
    a better reproduction may be found (unless one was requested already, or none can be expected), tests that vanished,
    and a patch whose own text limits the verdict. What is broken is sent back while there are reviews left.
    """
    if now.verdict == "proved" or len(before) + 1 >= MAX_REVIEWS:
        return True
    if now.verdict == "broken":
        return False
    lost = now.suite is not None and bool(now.suite.missing)
    return (
        (now.verdict == "tested" and now.expects_red and all(cap.rule in _NOT_THE_AGENTS for cap in now.caps))
        or (was_requested and not lost)
        or any(earlier.verification.verdict != "broken" for earlier in before)
    )
