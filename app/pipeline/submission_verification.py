"""Reviews a submission: verifies its patch, and accepts it or sends it back with the facts."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from app.agent.base import ReviewResult, Submission
from app.core.examples import Review
from app.core.job import Journal, Progress
from app.core.patch import Patch
from app.core.verification import (
    BaselineResult,
    Facts,
    UnchangedSubmission,
    Verification,
    VerifiedPatch,
)
from app.verify.feedback import feedback
from app.verify.verdict import asks_for_behaviour, facts_of, with_verdict

MAX_REVIEWS = 6
"""Submissions that are verified; the last one's facts are the job's, whatever they are."""

MAX_UNSHOWN = 2
"""Earlier reproductions that are run again if the last one shows nothing."""

AskReviewer = Callable[[str, Patch, Verification], Awaitable[Review]]
"""(the calls' key, a submitted change, what is known of it) → counter-examples, as they ran on base and change."""


class VerifierPort(Protocol):
    """The proof engine (`app.verify.verifier`)."""

    async def baseline(self) -> BaselineResult: ...

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch: ...


class SubmissionVerifier:
    """Verifies each submission once, and stores all facts.

    The first submission that would pass is shown to a reviewer, whose examples every later submission is run on, too.
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
        ask_reviewer: AskReviewer,
        key_prefix: str,
        earlier_submissions: int,
        verified: Callable[[VerifiedPatch], None] = lambda _: None,
    ) -> None:
        """With `no_reproduction_expected`, a submission is not sent back for a reproduction: nothing can be red.

        `known` returns the facts about the base once they are known. `earlier_submissions` is the number of this job's
        submissions that were verified before. `key_prefix` is this attempt's, for the keys of model calls.
        `verified` is called with each submission's facts.
        """
        self._verifier = verifier
        self._export = export
        self._journal = journal
        self._progress = progress
        self._known = known
        self._no_reproduction_expected = no_reproduction_expected
        self._ask_reviewer = ask_reviewer
        self._key_prefix = key_prefix
        self._earlier_submissions = earlier_submissions
        self._review: Review | None = None
        self._report = verified
        self.verified: list[VerifiedPatch] = []
        """Every submission's facts, in order."""

    async def review(self, submission: Submission) -> ReviewResult:
        self._progress.report("state", "verifying")
        name = f"verify.{len(self.verified) + 1}"
        before = tuple(self.verified)
        found = await self._journal.step(name, VerifiedPatch, partial(self._verify, submission, before))
        found = await self._reviewed(found)
        self.verified.append(found)
        self._report(found)
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
        """The facts about a submission; one that is the same as an earlier one is not run again."""
        patch = await self._export()
        number = self._earlier_submissions + len(before) + 1
        for earlier in before:
            same = earlier.patch == patch and earlier.reproduction == submission.reproduction
            if same and not submission.objections:
                return _with_number(earlier, number)
        known = (await self._known()).model_copy(update={"review": self._review})
        found = await self._verifier.verify(patch, submission, known, _unshown_reproductions(before))
        return _with_number(found, number)

    async def _reviewed(self, found: VerifiedPatch) -> VerifiedPatch:
        """The facts with a reviewer's examples, if nothing speaks against the change and nobody was asked yet."""
        now = found.verification
        wanted = asks_for_behaviour(now) and now.verdict != "broken" and "nothing_shown" not in now.rules
        is_settled = self._review is not None and not self._review.short_of_money
        if is_settled or (now.review is not None and not now.review.short_of_money) or not wanted:
            return found
        name = f"review.{len(self.verified) + 1}" if self._review is not None else "review"
        work = partial(self._ask_reviewer, f"{self._key_prefix}{name}", found.patch, now)
        self._review = await self._journal.step(name, Review, work)
        number = len(self._review.examples)
        if self._review.answered:
            self._progress.report("note", f"the reviewer wrote {number} counter-examples" if number else _NOTHING)
        else:
            self._progress.report("note", f"no reviewer: {self._review.absent}")
        verification = with_verdict(Facts(**{**facts_of(now), "review": self._review}))
        return found.model_copy(update={"verification": verification, "feedback": feedback(verification)})


_NOTHING = "the reviewer found no counter-example"


def _with_number(found: VerifiedPatch, number: int) -> VerifiedPatch:
    verification = found.verification.model_copy(update={"submission": number})
    return found.model_copy(update={"verification": verification})


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
    "Nothing is broken, but it is not proved either, for the reasons above. If you can mend one, or have a test of "
    "your own that fails on the original code and passes now, submit again; if not, submit the same again: it is then "
    "taken as it is, and the pull request says what is not proved."
)


_AGENT_MAY_MEND = frozenset({"reviewer_asks", "existing_tests_changed"})
"""Rules of a `tested` change that is sent back once."""


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
        (now.verdict == "tested" and now.expects_red and not set(now.rules) & _AGENT_MAY_MEND)
        or (was_requested and not lost)
        or any(earlier.verification.verdict != "broken" for earlier in before)
    )
