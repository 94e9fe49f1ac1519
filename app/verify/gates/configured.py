"""Runs the lint command and the gates that a repository configures: they must pass, or must not get worse."""

import re
from typing import Literal

from app.config.repository import GateConfig
from app.core.patch import Patch
from app.core.text import plain
from app.core.verification import Execution, GateResult
from app.verify.execution import CommandResult, run
from app.verify.reproduction import BorrowSandbox

Outcome = Literal["passed", "blocked", "warned"]
MAX_LINES = 10
# A number is not part of a word, a version or a time: not the 2 of `py2`, of `1.2.3`, or of `took 2s`.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w|\.\d)")


def last_number(output: str, metric: str | None = None) -> float | None:
    """The last number of the last line that has one and, if `metric` is given, contains that text."""
    for line in reversed(output.splitlines()):
        if (metric is None or metric in line) and (found := _NUMBER.findall(line.replace(metric or "\0", " "))):
            return float(found[-1].replace(",", ""))
    return None


class ConfiguredGates:
    """The gates of one job. What is measured on the base is measured once."""

    def __init__(self, gates: tuple[GateConfig, ...], borrow: BorrowSandbox, *, timeout: float) -> None:
        self._gates = gates
        self._borrow = borrow
        self._timeout = timeout
        self._on_base: dict[str, CommandResult] = {}

    async def check(self, patch: Patch) -> tuple[GateResult, ...]:
        return tuple([await self._check(gate, patch) for gate in self._gates])

    async def _check(self, gate: GateConfig, patch: Patch) -> GateResult:
        head = await self._run(gate, "head", patch)
        return await (self._passes(gate, head) if gate.must == "pass" else self._compared(gate, head))

    async def _passes(self, gate: GateConfig, head: CommandResult) -> GateResult:
        if head.execution.ok:
            return _result(gate, "passed")
        also = ", also without the change" if not (await self._base(gate)).execution.ok else ""
        return _result(gate, "blocked", f"`{gate.command}` {_ended(head.execution)}{also}", *_end(head))

    async def _compared(self, gate: GateConfig, head: CommandResult) -> GateResult:
        base = await self._base(gate)
        before, now = _number(gate, base), _number(gate, head)
        if before is None:
            return _result(
                gate, "warned", f"`{gate.command}` prints no number on the base to compare with", *_end(base)
            )
        if now is None:
            return _result(gate, "blocked", f"`{gate.command}` prints no number; on the base {before:g}", *_end(head))
        worse = now > before if gate.better == "lower" else now < before
        numbers = f"{before:g} on the base, {now:g} on the head"
        return _result(gate, "blocked", numbers, *_end(head)) if worse else _result(gate, "passed", numbers)

    async def _base(self, gate: GateConfig) -> CommandResult:
        if gate.name not in self._on_base:
            self._on_base[gate.name] = await self._run(gate, "base", None)
        return self._on_base[gate.name]

    async def _run(self, gate: GateConfig, side: str, patch: Patch | None) -> CommandResult:
        async with self._borrow(f"gate-{self._gates.index(gate)}-{side}", patch) as opened:
            return await run(opened, gate.command, timeout=self._timeout)


def _number(gate: GateConfig, ran: CommandResult) -> float | None:
    """None also for a command that was stopped: what it printed last may be anything."""
    return None if ran.execution.timed_out else last_number(plain(ran.output.decode(errors="replace")), gate.metric)


def _result(gate: GateConfig, outcome: Outcome, *details: str) -> GateResult:
    return GateResult(name=f"{gate.name} (configured)", outcome=outcome, details=details)


def _ended(execution: Execution) -> str:
    return "did not finish in time" if execution.timed_out else f"has exit code {execution.exit_code}"


def _end(ran: CommandResult) -> list[str]:
    return ran.execution.excerpt.splitlines()[-MAX_LINES:]


async def lint(command: str | None, patch: Patch, borrow: BorrowSandbox, *, timeout: float) -> GateResult:
    """Blocks what is red on the head and green on the base; red on both only warns."""
    if not command:
        return GateResult(name="lint", outcome="not_run", details=("no lint command is configured",))
    async with borrow("lint-head", patch) as opened:
        head = (await run(opened, command, timeout=timeout)).execution
    if head.ok:
        return GateResult(name="lint", outcome="passed")
    async with borrow("lint-base", None) as opened:
        base = (await run(opened, command, timeout=timeout)).execution
    if not base.ok:
        return GateResult(name="lint", outcome="warned", details=(f"`{command}` {_ended(head)}, as on the base",))
    lines = head.excerpt.splitlines()[-MAX_LINES:]
    outcome = f"`{command}` {_ended(head)}, and passes on the base"
    return GateResult(name="lint", outcome="blocked", details=(outcome, *lines))
