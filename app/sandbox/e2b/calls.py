"""Calls E2B's cloud with our own time limits and one kind of error."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from e2b.exceptions import (
    AuthenticationException,
    NotFoundException,
    SandboxNotRunningException,
)

from app.core.errors import AgentFixError, LostSandboxError, SandboxError
from app.sandbox.machine.execution import AGAIN

T = TypeVar("T")
SECONDS = 60.0
CANCEL_SECONDS = 5.0
"""How long a cancelled call may take to notice it."""
LOST = "The cloud sandbox is gone: it was killed, or its time ran out."


class LostMachineError(LostSandboxError):
    """The requested machine no longer exists."""


async def bounded(call: Coroutine[Any, Any, T], action: str, *, seconds: float = SECONDS) -> T:
    """The call's result. The SDK does not keep its own time limits on every Python, and raises bare exceptions.

    Raises SandboxError, or LostMachineError if the sandbox no longer exists.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
    if not done:
        if task.done() and not task.cancelled():
            task.exception()  # reported as a time-out
        raise LostSandboxError(f"E2B did not answer within {seconds:.0f} s ({action}).", hint=AGAIN)
    error = task.exception()
    if error is None:
        return task.result()
    raise translated(error, action) from error


def translated(error: BaseException, action: str) -> BaseException:
    """As our own error; our errors and cancellations stay as they are."""
    match error:
        case AgentFixError():
            return error
        case SandboxNotRunningException() | NotFoundException():
            return LostMachineError(f"{LOST} ({action})", hint=AGAIN)
        case AuthenticationException():
            return SandboxError(f"E2B rejected the key ({action}).", hint="Set E2B_API_KEY to a valid key.")
        case Exception():
            return SandboxError(f"E2B failed ({action}): {str(error)[:300] or type(error).__name__}", hint=AGAIN)
        case _:
            return error
