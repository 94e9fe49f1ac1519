"""Handles a submission before and during its review."""

from collections.abc import Sequence
from typing import NamedTuple

from app.agent.actions import SubmitAction
from app.agent.base import AssignmentAim, Reviewer, Submission
from app.agent.digest import last_checkpoint
from app.agent.step import Step, SubmissionFate

_NOTHING_CHANGED = (
    "Not submitted: /workspace is as it was in the beginning (ignored files do not count). If nothing is to be "
    "changed, submit once more with a summary that says why; the job then ends without a pull request."
)
_NO_REPRODUCTION = (
    "Not submitted yet: there is no reproduction. Give a command that fails on the original code with your changed "
    "test files and passes now, best one that executes a test you added; add the test if there is none. If this change "
    "cannot be shown by a command, submit again without one: the pull request will then say that it is not proved."
)


_UNCHANGED = "Nothing has changed since this was rejected:"
_MESSAGES_FIRST = (
    "Not taken yet: people said something while you worked, which stands below. Take it into account, then submit "
    "again."
)


class SubmissionResult(NamedTuple):
    """A submission, its fate, and the message for the model."""

    submission: Submission
    fate: SubmissionFate
    text: str

    def interrupted(self) -> "SubmissionResult":
        """The result if there are messages that the agent has not read: its work does not end."""
        if self.fate not in {"accepted", "nothing_changed"}:
            return self
        return self._replace(fate="messages_first", text=_MESSAGES_FIRST)


async def handle_submission(
    action: SubmitAction, steps: Sequence[Step], review: Reviewer, aim: AssignmentAim
) -> SubmissionResult:
    """Send back what cannot be verified and review the rest, except for repetitions of a rejected one."""
    fates = [step.turn.fate for step in steps]
    was_requested = "asked_for_reproduction" in fates
    submission = _submission(action).model_copy(update={"reproduction_was_requested": was_requested})
    if aim == "answer":
        return await _reviewed(submission, review)
    tree = last_checkpoint(steps)
    if tree is None or tree.clean:
        return SubmissionResult(submission, "nothing_changed", _NOTHING_CHANGED)
    if not submission.reproduction and not was_requested and aim == "change":
        return SubmissionResult(submission, "asked_for_reproduction", _NO_REPRODUCTION)
    if earlier_rejection := _earlier_rejection(submission, steps):
        return SubmissionResult(
            submission, "rejected", f"{_UNCHANGED}\n{earlier_rejection.removeprefix(_UNCHANGED).strip()}"
        )
    return await _reviewed(submission, review)


def postpone(action: SubmitAction) -> SubmissionResult:
    """A submission that is not reviewed, because people had written before it was made."""
    return SubmissionResult(_submission(action), "messages_first", _MESSAGES_FIRST)


def _submission(action: SubmitAction) -> Submission:
    return Submission(
        summary=action.summary,
        reproduction=action.reproduction.strip(),
        objection=action.objection.strip(),
        lessons=action.lessons,
    )


async def _reviewed(submission: Submission, review: Reviewer) -> SubmissionResult:
    verdict = await review(submission)
    fate: SubmissionFate = "accepted" if verdict.accepted else "rejected" if verdict.broken else "returned"
    return SubmissionResult(submission, fate, verdict.text or f"The submission was {fate}.")


def _earlier_rejection(submission: Submission, steps: Sequence[Step]) -> str:
    """The result of the last submission, if it was rejected, was the same, and the tree has not changed since."""
    tree = last_checkpoint(steps)
    for index in range(len(steps) - 1, -1, -1):
        turn = steps[index].turn
        if turn.fate == "rejected" and turn.submission:
            earlier = turn.submission
            same = earlier.reproduction == submission.reproduction and last_checkpoint(steps[:index]) == tree
            same = same and (earlier.objection == submission.objection or not submission.objection)
            return turn.observations[0].text if same else ""
    return ""
