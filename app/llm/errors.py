"""The errors of model calls, by what can be done about them."""

from typing import Literal

from app.core.errors import AgentFixError, ExitCode
from app.llm.base import Usage

ModelErrorKind = Literal["retry", "wait", "shrink", "give_up"]


class ModelError(AgentFixError):
    """A failed call. `kind` says what may be done about it:

    - `retry`: transient (5xx, a cut stream, connection lost); again with back-off
    - `wait`: rate limited; again after `retry_after` seconds
    - `shrink`: the request does not fit the window; again only if it becomes smaller
    - `give_up`: never again as it stands (bad key, unknown model, refused content, dead endpoint)

    `reason` is a stable slug for tests and metrics, such as `rate_limited` or `no_key`.
    `usage` is what the provider has probably charged for the failed call, where it may have charged anything.
    """

    exit_code = ExitCode.MODEL

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        reason: str,
        retry_after: float | None = None,
        hint: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: ModelErrorKind = kind
        self.reason = reason
        self.retry_after = retry_after
        self.usage = usage

    @property
    def final(self) -> bool:
        """False for errors that only a smaller request fixes: the same request may be sent again later."""
        return self.kind == "shrink"


class BudgetError(AgentFixError):
    """The next call could exceed the job's cap; nothing was sent, and a person must decide whether to raise the cap."""

    exit_code = ExitCode.LIMIT_REACHED
    repeatable = True
    """With a larger budget the same step continues."""


class DayBudgetError(BudgetError):
    """The next call could exceed a daily cap that several jobs share; money becomes available again by itself."""
