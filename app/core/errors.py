"""Every error that agent-fix shows to a person, with the exit code that the shell receives."""

from enum import IntEnum
from typing import Any, ClassVar


class ExitCode(IntEnum):
    """The exit codes of `agent-fix`: 0 only if the verdict is `proved` or `tested`."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INTERRUPTED = 3
    BUSY = 4
    CONFIG = 5
    SANDBOX = 6
    MODEL = 7
    SETUP_FAILED = 8
    OUTPUT = 9
    DISK_FULL = 10
    GITHUB = 11
    UNPROVED = 20
    BROKEN = 21
    LIMIT_REACHED = 22
    NO_CHANGE = 23
    AWAITING_APPROVAL = 24
    NEEDS_INPUT = 25
    STOPPED = 26
    NOT_REPRODUCED = 27
    ALREADY_WORKS = 28
    NOT_A_REPOSITORY = 30
    NO_COMMITS = 31
    BARE_REPOSITORY = 32
    SHALLOW_REPOSITORY = 33
    UNKNOWN_BASE = 36
    UNSUPPORTED_REPOSITORY = 37
    ISSUE_UNREADABLE = 40
    ISSUE_EMPTY = 41
    ISSUE_BINARY = 42
    ISSUE_TOO_LARGE = 43
    PLAN_INVALID = 44


class AgentFixError(Exception):
    """An error that the user can fix, shown without a traceback.

    `message` says what is wrong, `hint` what to do about it.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    """Of errors of this kind, unless one has its own `code`."""
    repeatable: ClassVar[bool] = False
    """Whether the same step may succeed later."""
    _kinds: ClassVar[dict[str, type["AgentFixError"]]] = {}

    def __init__(self, message: str, *, code: ExitCode | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = self.exit_code if code is None else code
        self.hint = hint

    def __init_subclass__(cls) -> None:
        AgentFixError._kinds[cls.__name__] = cls

    @property
    def final(self) -> bool:
        """True if repeating the failed step cannot help."""
        return not self.repeatable

    def to_json(self) -> dict[str, Any]:
        return {"type": type(self).__name__, **vars(self)}

    @staticmethod
    def from_json(kept: dict[str, Any]) -> "AgentFixError":
        """Rebuild the error that a stored step ended with: same class, same attributes."""
        cls = AgentFixError._kinds.get(kept["type"], AgentFixError)
        error = cls.__new__(cls)
        Exception.__init__(error, kept["message"])
        error.__dict__.update({k: v for k, v in kept.items() if k != "type"})
        error.code = ExitCode(kept["code"])
        return error


class UnforeseenError(AgentFixError):
    """An error of a library or of our own, at a boundary that must go on; the message names it."""

    exit_code = ExitCode.INTERNAL
    repeatable = True

    @classmethod
    def of(cls, error: BaseException, *, hint: str = "") -> "UnforeseenError":
        return cls(f"agent-fix failed ({type(error).__name__}: {str(error)[:300]}).", hint=hint)


class PublicationError(AgentFixError):
    """A verified change could not be published; its patch is kept."""

    repeatable = True


class RepositoryError(AgentFixError):
    """The repository cannot be worked on; `code` says which reason applies."""


class IssueError(AgentFixError):
    """The issue's text cannot be used."""


class ConfigError(AgentFixError):
    """`.github/agent-fix.yml` is broken; the message names file, line and key."""

    exit_code = ExitCode.CONFIG


class SandboxError(AgentFixError):
    """No sandbox with every promised property is available, or the sandbox was lost for good."""

    exit_code = ExitCode.SANDBOX
    repeatable = True


class LostSandboxError(SandboxError):
    """The sandbox is gone or does not answer. The job continues from its last checkpoint in a new one."""


class SetupError(AgentFixError):
    """The repository's set-up commands failed; the message ends with the tail of their output."""

    exit_code = ExitCode.SETUP_FAILED


class OutputError(AgentFixError):
    """The output or state directory cannot be written."""

    exit_code = ExitCode.OUTPUT
    repeatable = True
