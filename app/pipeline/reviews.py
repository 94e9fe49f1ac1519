"""The harness's side of a submission: it is verified from its patch alone, and taken or sent back with the facts."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from app.agent.base import ReviewResult, Submission
from app.core.job import Journal, Progress
from app.core.patch import Patch
from app.core.verification import BaselineResult, UnchangedSubmission, Verification, VerifiedPatch

MAX_REVIEWS = 6
"""Submissions that are verified; the last one's facts are the job's, whatever they are."""

MAX_UNANSWERED = 2
"""Earlier reproductions that are executed again where the last one shows nothing."""


class VerifierPort(Protocol):
    """The proof engine (`app.verify.verifier`)."""

    async def baseline(self) -> BaselineResult: ...

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch: ...


class SubmissionReviews:
    """Verifies each submission once, and keeps the facts of all."""

    def __init__(
        self,
        verifier: VerifierPort,
        export: Callable[[], Awaitable[Patch]],
        journal: Journal,
        progress: Progress,
        known: BaselineResult,
        *,
        settled: bool = False,
    ) -> None:
        """Where it is `settled` that nothing can be shown red, a submission is not sent back for a reproduction."""
        self._verifier = verifier
        self._export = export
        self._journal = journal
        self._progress = progress
        self._known = known
        self._settled = settled
        self.verified: list[VerifiedPatch] = []
        """Every submission's facts, in order."""
        self.last: VerifiedPatch | None = None

    async def review(self, submission: Submission) -> ReviewResult:
        self._progress.report("state", "verifying")
        name = f"verify.{len(self.verified) + 1}"
        before = tuple(self.verified)
        self.last = await self._journal.step(name, VerifiedPatch, partial(self._verify, submission, before))
        self.verified.append(self.last)
        verification = self.last.verification
        self._progress.report("verification", f"{verification.verdict}: {' '.join(verification.reasons)}")
        if is_acceptable(verification, before, asked=submission.asked or self._settled):
            return ReviewResult(accepted=True, text=self.last.feedback)
        broken = verification.verdict == "broken"
        text = self.last.feedback if broken else f"{self.last.feedback}\n\n{_RETURNED}"
        return ReviewResult(accepted=False, broken=broken, text=text)

    async def _verify(self, submission: Submission, before: Sequence[VerifiedPatch]) -> VerifiedPatch:
        """The facts of this patch and reproduction; what was verified just so before is not executed again."""
        patch = await self._export()
        for earlier in before:
            known = earlier.verification.reproduction
            if earlier.patch == patch and known is not None and known.command == submission.reproduction:
                return earlier
        return await self._verifier.verify(patch, submission, self._known, _unanswered(before))


def _unanswered(before: Sequence[VerifiedPatch]) -> tuple[UnchangedSubmission, ...]:
    """The agent's reproductions that failed on base and head, newest first, each with the newest of its tests."""
    found: dict[str, UnchangedSubmission] = {}
    for verified in reversed(before):
        shown = verified.verification.reproduction
        if shown is None or shown.unanswered or (shown.on_base, shown.on_head) != ("red", "red"):
            continue
        found.setdefault(shown.command, UnchangedSubmission(command=shown.command, patch=verified.patch))
    return tuple(found.values())[:MAX_UNANSWERED]


_RETURNED = (
    "Nothing is broken, but it is not proved either. If a better reproduction is possible, submit with that; "
    "if not, submit the same again: it is then taken as it is, and the pull request says what is not proved."
)


def is_acceptable(now: Verification, before: Sequence[VerifiedPatch], *, asked: bool) -> bool:
    """Whether a submission is taken as it is.

    What is proved is taken at once, and so is red→green where only the suite has nothing to say: the agent could not
    do better. What else broke nothing goes back once with the facts, so that a better reproduction may be found
    (unless one was asked for already, or none can be expected), and so do tests that vanished. What is broken goes back
    while there are reviews left.
    """
    if now.verdict == "proved" or len(before) + 1 >= MAX_REVIEWS:
        return True
    if now.verdict == "broken":
        return False
    shown = now.reproduction is not None and (now.reproduction.on_base, now.reproduction.on_head) == ("red", "green")
    lost = now.suite is not None and bool(now.suite.missing)
    return (
        (shown and now.verdict == "tested")
        or (asked and not lost)
        or any(earlier.verification.verdict != "broken" for earlier in before)
    )
