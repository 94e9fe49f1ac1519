"""The money of one call: its worst case is reserved before, and its usage booked after, however it ends."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from app.agent.external.gateway.exchange import RequestRefused, limit_of
from app.agent.external.gateway.response_reader import ResponseReader
from app.core.money import MicroUSD
from app.llm.background import run_or_undo
from app.llm.base import ModelInfo, Usage, WireProtocol
from app.llm.errors import BudgetError
from app.llm.ledger import NOTHING, Ledger
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.tokens import count_text

MIN_ANSWER = 256
"""Output tokens below which an answer is useless; agents have small questions too."""
SHARE_USED_UP = "This attempt's share of the money is used."


@dataclass(frozen=True, slots=True)
class CallRequest:
    """Tokens of a request: its prompt, a useful answer, and the longest possible answer."""

    prompt: int
    enough: int
    space: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A call that may be made; its answer may have `limit` tokens."""

    call: str
    prompt: int
    limit: int


@dataclass(frozen=True, slots=True)
class CallBudget:
    """One job's ledger, for the calls `name.1`, `name.2` and so on of one agent start.

    `until` is the job's spending at which an attempt has used its share; 0 if only the job's limit counts.
    """

    ledger: Ledger
    info: ModelInfo
    name: str = "agent"
    until: MicroUSD = 0
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    async def begin(self) -> None:
        """An earlier process may have made the same start: its open calls count as lost."""
        await asyncio.to_thread(self.ledger.mark_lost, f"{self.name}.")

    async def measure(self, protocol: WireProtocol, body: Mapping[str, Any]) -> CallRequest:
        """Raises RequestRefused if the request exceeds the context window."""
        return await asyncio.to_thread(self._measure, protocol, body)

    def _measure(self, protocol: WireProtocol, body: Mapping[str, Any]) -> CallRequest:
        info, wanted = self.info, limit_of(protocol, body)
        prompt = count_text(info.name, json.dumps(body, ensure_ascii=False))
        enough = min(MIN_ANSWER, wanted or MIN_ANSWER)
        space = min(wanted or info.max_output, info.max_output, info.context_window - prompt)
        if space < enough:
            message = f"{prompt:,} tokens do not fit into the context window of {info.context_window:,} tokens."
            raise RequestRefused(400, "context_length_exceeded", message)
        return CallRequest(prompt, enough, space)

    async def reserve(self, wanted: CallRequest, *, alone: bool = True) -> Reservation:
        """Raises BudgetError if there is not enough money. While other calls hold money, an answer is never
        shortened: the call is refused and may be repeated."""
        reserve = partial(self._reserve, wanted, alone=alone)
        return await run_or_undo(reserve, lambda made: self.ledger.book(made.call, NOTHING))

    def _reserve(self, wanted: CallRequest, *, alone: bool) -> Reservation:
        info, prompt, call = self.info, wanted.prompt, f"{self.name}.{next(self._numbers)}"
        enough = wanted.enough if alone else wanted.space
        left = self.ledger.remaining(call)
        share = max(0, self.until - self.ledger.spent()) if self.until else left
        space = affordable(info, prompt, min(left, share), wanted.space)
        if space < enough:
            worst = worst_case(info, prompt, enough)
            raise BudgetError(SHARE_USED_UP) if worst <= left else self.ledger.refusal(call, worst)
        lost = Usage(prompt_tokens=prompt, estimated=True)
        lost = lost.model_copy(update={"cost": cost_of(info, lost)})
        self.ledger.reserve(call, worst_case(info, prompt, space), if_lost=lost)
        return Reservation(call, prompt, space)

    def book(self, reserved: Reservation, reading: ResponseReader | None) -> Usage:
        """Book the reported usage, or an estimate; nothing if the provider was never called."""
        usage = Usage() if reading is None else self._used(reserved, reading)
        written = 0 if reading is None else reading.cache_written
        usage = usage.model_copy(update={"cost": cost_of(self.info, usage, written)})
        self.ledger.book(reserved.call, usage)
        return usage

    def _used(self, reserved: Reservation, reading: ResponseReader) -> Usage:
        """Until its end, a provider has reported the prompt at most."""
        reported = reading.usage
        if reported is not None and reading.finished:
            return reported
        completion = count_text(self.info.name, reading.all_text)
        if reported is None:
            return Usage(prompt_tokens=reserved.prompt, completion_tokens=completion, estimated=True)
        completion = max(completion, reported.completion_tokens)
        prompt = reported.prompt_tokens or reserved.prompt
        return reported.model_copy(update={"prompt_tokens": prompt, "completion_tokens": completion, "estimated": True})
