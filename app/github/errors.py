"""The errors of a forge, in four kinds that callers decide by."""

from datetime import datetime

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode


class ForgeError(AgentFixError):
    """A forge could not do what was requested; `message` has the forge's words, without any token."""

    branch: str = ""
    """The branch that was pushed before."""
    compare: str = ""
    """The address where a person can open the pull request of that branch."""

    exit_code = ExitCode.OUTPUT


class TemporaryFailure(ForgeError):  # noqa: N818  # named for what to do
    """It may succeed later: a network error, a 5xx, a broken answer. The effect may have happened."""

    repeatable = True


class RateLimited(ForgeError):  # noqa: N818
    """The forge wants no request before `until`; an earlier one makes it worse."""

    repeatable = True

    def __init__(self, message: str, *, until: datetime) -> None:
        super().__init__(message)
        self.timestamp = until.timestamp()  # a number, so that the error can be stored as JSON

    @property
    def until(self) -> datetime:
        return moment(self.timestamp)


class NoAccess(ForgeError):  # noqa: N818
    """No access: not installed, suspended, archived, moved, or a missing permission."""


class NeedsHumanAction(ForgeError):  # noqa: N818
    """The forge refused: a protected branch, a closed pull request, someone else's commits."""


class WorkflowsMoved(NeedsHumanAction):
    """The branch changes a workflow file, or lacks a change of one on the base branch; GitHub refuses both."""
