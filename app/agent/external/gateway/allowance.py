"""The turns and money that the job still allows its agent, shared by calls in parallel."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.agent.external.gateway.call_budget import CallBudget, CallRequest, Reservation
from app.agent.external.gateway.protocols import RequestRefused
from app.llm.errors import BudgetError
from app.llm.raw_call import WireProtocol


class ReachedLimit(NamedTuple):
    """The limit that was reached: a word for programs, and a sentence."""

    reason: str
    message: str


@dataclass(slots=True)
class JobAllowance:
    """Admits calls in order. A call that is blocked only by other open calls waits, because they may use less than
    reserved. A call that is blocked with none open is refused, and `cut_short` says why."""

    account: CallBudget
    turns: int
    cut_short: str = ""
    _used: int = 0
    _open: set[str] = field(default_factory=set)
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, protocol: WireProtocol, body: Mapping[str, Any]) -> Reservation:
        """Raises RequestRefused."""
        wanted = await self.account.measure(protocol, body)
        async with self._in_order:
            while True:
                self._ended.clear()
                found = await self._ask(wanted)
                if isinstance(found, Reservation):
                    self._open.add(found.call)
                    return found
                if not self._open and not self._ended.is_set():
                    self.cut_short = found.message
                    raise RequestRefused(402, found.reason, f"{found.message} Stop here: the job is paused.")
                await self._ended.wait()

    async def _ask(self, wanted: CallRequest) -> Reservation | ReachedLimit:
        if self._used + len(self._open) >= self.turns:
            return ReachedLimit("turns_used", f"All {self.turns} turns are used.")
        try:
            return await self.account.reserve(wanted, alone=not self._open)
        except BudgetError as error:
            return ReachedLimit("budget_reached", error.message)

    def ended(self, reserved: Reservation, *, answered: bool) -> None:
        """Mark a call as booked; `answered` is true if it counts as a turn."""
        self._open.discard(reserved.call)
        self._used += answered
        self._ended.set()
