"""How the agent's work can end: exceptions named after the exit status."""

from typing import Literal


class AgentOutcome(Exception):  # noqa: N818  # an outcome, not an error
    """The loop is over; `reason` is one sentence for people, `claim` the model's unchecked statement."""

    exit_status: Literal["submitted", "no_change", "limit_reached", "error"]

    def __init__(self, reason: str, claim: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.claim = claim


class SubmittedOutcome(AgentOutcome):
    """The harness accepted a submission."""

    exit_status = "submitted"


class NoChangeOutcome(AgentOutcome):
    """The model insists that nothing needs to be changed."""

    exit_status = "no_change"


class LimitReachedOutcome(AgentOutcome):
    """A limit on turns or minutes was reached; with a higher one the work can continue."""

    exit_status = "limit_reached"


class FailedOutcome(AgentOutcome):
    """The model makes no progress, or the work does not fit its window."""

    exit_status = "error"
