"""The money of one call: its worst case is set aside before, and what it used is booked, however it ends."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from app.gateway.reading import Reading
from app.gateway.wires import Refusal, limit_of
from app.model.background import or_undone
from app.model.base import MicroUSD, ModelInfo, Usage
from app.model.budget import NOTHING, Ledger
from app.model.errors import BudgetError
from app.model.passage import Wire
from app.model.prices import affordable, cost_of, worst_case
from app.model.tokens import count_text

SMALLEST_ANSWER = 256
"""Output tokens below which an answer is not worth asking for; agents have small questions too."""
SHARE_IS_USED = "This attempt's share of the money is used."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for: tokens of its prompt, of an answer that is worth having, and of the longest there is
    room for."""

    prompt: int
    enough: int
    room: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A call that may be made: `limit` is how many tokens its answer may have."""

    call: str
    prompt: int
    limit: int


@dataclass(frozen=True, slots=True)
class Account:
    """One job's ledger, for the calls of one start of an agent, which are `name.1`, `name.2` and so on.

    `until` is the job's money at which an attempt has used its share; 0 where only the job's own cap counts.
    """

    ledger: Ledger
    info: ModelInfo
    name: str = "agent"
    until: MicroUSD = 0
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    async def begin(self) -> None:
        """The same start may have been made by a process that died: what it had open is lost."""
        await asyncio.to_thread(self.ledger.lose, f"{self.name}.")

    async def measure(self, wire: Wire, body: Mapping[str, Any]) -> Wanted:
        """Raises Refusal for what does not fit the window."""
        return await asyncio.to_thread(self._measure, wire, body)

    def _measure(self, wire: Wire, body: Mapping[str, Any]) -> Wanted:
        info, wanted = self.info, limit_of(wire, body)
        prompt = count_text(info.name, json.dumps(body, ensure_ascii=False))
        enough = min(SMALLEST_ANSWER, wanted or SMALLEST_ANSWER)
        room = min(wanted or info.max_output, info.max_output, info.context_window - prompt)
        if room < enough:
            message = f"{prompt:,} tokens do not fit into the context window of {info.context_window:,} tokens."
            raise Refusal(400, "context_length_exceeded", message)
        return Wanted(prompt, enough, room)

    async def reserve(self, wanted: Wanted, *, alone: bool = True) -> Reservation:
        """Raises BudgetError for what does not fit the money. Where others are open, an answer is not made shorter
        for the money that they hold: it is refused, and may come again."""
        reserve = partial(self._reserve, wanted, alone=alone)
        return await or_undone(reserve, lambda made: self.ledger.book(made.call, NOTHING))

    def _reserve(self, wanted: Wanted, *, alone: bool) -> Reservation:
        info, prompt, call = self.info, wanted.prompt, f"{self.name}.{next(self._numbers)}"
        enough = wanted.enough if alone else wanted.room
        left = self.ledger.remaining(call)
        share = max(0, self.until - self.ledger.spent()) if self.until else left
        room = affordable(info, prompt, min(left, share), wanted.room)
        if room < enough:
            worst = worst_case(info, prompt, enough)
            raise BudgetError(SHARE_IS_USED) if worst <= left else self.ledger.refusal(call, worst)
        lost = Usage(prompt_tokens=prompt, estimated=True)
        lost = lost.model_copy(update={"cost": cost_of(info, lost)})
        self.ledger.reserve(call, worst_case(info, prompt, room), if_lost=lost)
        return Reservation(call, prompt, room)

    def book(self, reserved: Reservation, reading: Reading | None) -> Usage:
        """What the provider reported, or an estimate of what it heard and said; nothing where it was never asked."""
        usage = Usage() if reading is None else self._used(reserved, reading)
        written = 0 if reading is None else reading.cache_written
        usage = usage.model_copy(update={"cost": cost_of(self.info, usage, written)})
        self.ledger.book(reserved.call, usage)
        return usage

    def _used(self, reserved: Reservation, reading: Reading) -> Usage:
        """Before its end a provider has told of the prompt at most."""
        reported = reading.usage
        if reported is not None and reading.finished:
            return reported
        completion = count_text(self.info.name, reading.everything)
        if reported is None:
            return Usage(prompt_tokens=reserved.prompt, completion_tokens=completion, estimated=True)
        completion = max(completion, reported.completion_tokens)
        prompt = reported.prompt_tokens or reserved.prompt
        return reported.model_copy(update={"prompt_tokens": prompt, "completion_tokens": completion, "estimated": True})
