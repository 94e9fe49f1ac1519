"""How talking to a forge can fail: the four kinds that everything else decides by, whatever the forge's words were."""

from datetime import UTC, datetime

from app.core.errors import AgentFixError, ExitCode


class ForgeError(AgentFixError):
    """A forge did not do what it was asked; `message` carries its own words, without any token."""

    branch: str = ""
    """What was pushed before."""
    compare: str = ""
    """Where a person opens the pull request of that branch."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, code=ExitCode.OUTPUT, hint=hint)


class TemporaryFailure(ForgeError):  # noqa: N818  # named for what to do
    """It may succeed later: the network, a 5xx, an answer that broke off. Whether the effect happened is not known."""

    @property
    def final(self) -> bool:
        return False


class RateLimited(ForgeError):  # noqa: N818
    """The forge wants to hear nothing before `until`; asking earlier makes it worse."""

    def __init__(self, message: str, *, until: datetime) -> None:
        super().__init__(message)
        self.timestamp = until.timestamp()  # a number, so that the error can be stored as JSON

    @property
    def until(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp, UTC)

    @property
    def final(self) -> bool:
        return False


class NoAccess(ForgeError):  # noqa: N818
    """The door is closed to us: not installed, suspended, archived, moved, a permission that was not given."""


class NeedsHumanAction(ForgeError):  # noqa: N818
    """The forge understood and refused: a protected branch, a closed pull request, somebody else's commits."""


class WorkflowsMoved(NeedsHumanAction):
    """The branch has a workflow file that no other branch has: it lacks a change of that file, or makes one."""
