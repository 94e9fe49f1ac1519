"""Runs the configured lint command on the head, and on the base if it fails there."""

from app.core.patch import Patch
from app.core.verification import Execution, GateResult
from app.verify.execution import run
from app.verify.reproduction import BorrowSandbox

MAX_LINES = 10


async def lint(command: str | None, patch: Patch, borrow: BorrowSandbox, *, timeout: float) -> GateResult:
    """Blocks what is red on the head and green on the base; red on both only warns."""
    if not command:
        return GateResult(name="lint", outcome="not_run", details=("no lint command is configured",))
    head = await _run(command, "lint-head", patch, borrow, timeout)
    if head.exit_code == 0 and not head.timed_out:
        return GateResult(name="lint", outcome="passed")
    base = await _run(command, "lint-base", None, borrow, timeout)
    if base.exit_code != 0 or base.timed_out:
        return GateResult(name="lint", outcome="warned", details=(f"`{command}` {_ended(head)}, as on the base",))
    lines = head.excerpt.splitlines()[-MAX_LINES:]
    outcome = f"`{command}` {_ended(head)}, and passes on the base"
    return GateResult(name="lint", outcome="blocked", details=(outcome, *lines))


def _ended(execution: Execution) -> str:
    return "did not finish in time" if execution.timed_out else f"has exit code {execution.exit_code}"


async def _run(command: str, sandbox: str, patch: Patch | None, borrow: BorrowSandbox, timeout: float) -> Execution:
    async with borrow(sandbox, patch) as opened:
        return (await run(opened, command, timeout=timeout)).execution
