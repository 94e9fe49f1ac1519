"""How the agent's work can end: exceptions whose name is the exit status."""

from typing import Literal


class AgentOutcome(Exception):  # noqa: N818  # an outcome, not an error
    """The loop is over; `reason` is one sentence for people, `claim` what the model says, which nobody has checked."""

    exit_status: Literal["submitted", "no_change", "limit_reached", "error"]

    def __init__(self, reason: str, claim: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.claim = claim


class SubmittedOutcome(AgentOutcome):
    """The harness accepted a submission."""

    exit_status = "submitted"


class NoChangeOutcome(AgentOutcome):
    """The model stands by it that nothing is to be changed."""

    exit_status = "no_change"


class LimitReachedOutcome(AgentOutcome):
    """A cap on turns or minutes was reached; with a larger one the work can go on."""

    exit_status = "limit_reached"


class FailedOutcome(AgentOutcome):
    """The model does not act in a way that leads anywhere, or the work does not fit it."""

    exit_status = "error"
