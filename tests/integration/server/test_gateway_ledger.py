"""What the ledger has of an outside agent's calls: right to the token, however a call ends and whoever else asks."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.agent.external.exchange import CallBudget, RequestRefused
from app.agent.external.gateway import CHARGED, Gateway
from app.llm.base import Body, ModelInfo, StreamEvent, Usage, WireProtocol
from app.llm.errors import ModelError, ModelErrorKind
from app.llm.ledger import Ledger
from tests.support.memory_ledger import MemoryLedger

INFO = ModelInfo(
    "openai/gpt-plain",
    context_window=20_000,
    max_output=1_000,
    input_price=2_000_000,
    cached_price=200_000,
    output_price=10_000_000,
    cache_write_price=2_500_000,
)
BODY: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "fix it"}], "max_tokens": 400}
USAGE = {"prompt_tokens": 120, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 64}}
COST = 425
"""56 fresh at 2, 64 cached at 0.2, 30 written at 10: micro-dollars."""
ANSWER = (
    StreamEvent("", {"choices": [{"index": 0, "delta": {"content": "I look around, and then I go on."}}]}),
    StreamEvent("", {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    StreamEvent("", {"choices": [], "usage": USAGE}),
)
Hook = Callable[[], Awaitable[None]]


async def _at_once() -> None:
    """Nobody is waited for."""


@dataclass
class ScriptedRawCall:
    """A passage that plays `events` and then raises `error`; `before` is awaited first, `asked` counts."""

    events: Sequence[StreamEvent] = ANSWER
    error: ModelError | None = None
    before: Hook = _at_once
    info: ModelInfo = INFO
    asked: int = 0
    limits: list[int] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)

    async def stream(self, wire: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        self.asked += 1
        self.limits.append(limit)
        self.bodies.append(body)
        await self.before()
        for event in self.events:
            yield event
        if self.error is not None:
            raise self.error

    async def complete(self, wire: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        self.asked += 1
        self.limits.append(limit)
        await self.before()
        if self.error is not None:
            raise self.error
        message = {"role": "assistant", "content": "I look around."}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}


def gateway(passage: ScriptedRawCall, ledger: Ledger | None = None, **more: Any) -> Gateway:
    account = CallBudget(ledger or MemoryLedger(1_000_000), passage.info, "agent.1")
    return Gateway(passage, account, "token", frozenset({"m"}), clock=lambda: 0.0, **more)


async def call(made: Gateway, wire: WireProtocol = "chat", *, stream: bool = True, **fields: Any) -> str:
    """The answer as text, to its end."""
    answer = await made.answer(wire, {**BODY, "stream": stream, **fields})
    if isinstance(answer, dict):
        return str(answer)
    return b"".join([piece async for piece in answer]).decode()


def failure(reason: str, kind: ModelErrorKind = "retry") -> ModelError:
    return ModelError(f"it was {reason}.", kind=kind, reason=reason)


def prompt_of(made: Gateway) -> int:
    """As it is counted where the provider does not say."""
    [usage] = [exchange.usage for exchange in made.recorder.exchanges if not exchange.refused]
    return usage.prompt_tokens


FREE: Sequence[tuple[ModelErrorKind, str]] = (
    ("retry", "server_error"),
    ("retry", "unreachable"),
    ("retry", "bad_response"),
    ("wait", "rate_limited"),
    ("wait", "overloaded"),
    ("shrink", "context_window"),
    ("give_up", "bad_key"),
    ("give_up", "refused"),
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("kind", "reason"), FREE)
async def test_a_call_refused_before_work_costs_nothing(kind: ModelErrorKind, reason: str, *, stream: bool) -> None:
    made = gateway(ScriptedRawCall((), failure(reason, kind)))
    with pytest.raises(RequestRefused):
        await call(made, stream=stream)
    totals = made.account.ledger.totals()
    assert (totals.calls, totals.pending, totals.cost) == (0, 0, 0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reason", sorted(CHARGED))
async def test_a_call_whose_answer_was_lost_costs_its_prompt(reason: str, *, stream: bool) -> None:
    made = gateway(ScriptedRawCall((), failure(reason)))
    with pytest.raises(RequestRefused):
        await call(made, stream=stream)
    totals, prompt = made.account.ledger.totals(), prompt_of(made)
    assert 20 < prompt < 60
    assert (totals.calls, totals.estimated, totals.pending) == (1, 1, 0)
    assert (totals.prompt_tokens, totals.completion_tokens, totals.cost) == (prompt, 0, prompt * 2)


async def test_an_answer_that_breaks_off_costs_what_was_heard() -> None:
    made = gateway(ScriptedRawCall(ANSWER[:1], failure("server_error")))
    assert "it was server_error" in await call(made)
    totals, prompt = made.account.ledger.totals(), prompt_of(made)
    assert (totals.calls, totals.estimated, totals.completion_tokens) == (1, 1, 11)
    assert totals.cost == prompt * 2 + 110


MESSAGES = (
    StreamEvent("", {"type": "message_start", "message": {"usage": {"input_tokens": 90, "output_tokens": 1}}}),
    StreamEvent("", {"type": "content_block_delta", "delta": {"text": "I look around, and then I go on."}}),
    StreamEvent("", {"type": "message_delta", "usage": {"output_tokens": 30}}),
    StreamEvent("", {"type": "message_stop"}),
)


async def test_usage_of_an_interrupted_stream_is_estimated() -> None:
    """Anthropic's first event has the prompt's tokens, and one of the answer's."""
    made = gateway(ScriptedRawCall(MESSAGES[:2], failure("connection_lost")))
    await call(made, "messages")
    [exchange] = made.recorder.exchanges
    assert exchange.usage == Usage(prompt_tokens=90, completion_tokens=11, cost=290, estimated=True)
    made = gateway(ScriptedRawCall(MESSAGES))
    await call(made, "messages")
    [exchange] = made.recorder.exchanges
    assert exchange.usage == Usage(prompt_tokens=90, completion_tokens=30, cost=480)


async def test_cache_writes_are_priced() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 50}
    start = StreamEvent("", {"type": "message_start", "message": {"usage": usage}})
    made = gateway(ScriptedRawCall((start, *MESSAGES[1:])))
    await call(made, "messages")
    [exchange] = made.recorder.exchanges
    assert (exchange.usage.prompt_tokens, exchange.usage.cached_tokens) == (100, 40)
    assert exchange.usage.cost == 10 * 2 + 40 * 0.2 + 50 * 2.5 + 30 * 10


class Gate:
    """Holds calls until it is opened; `here` is how many came so far."""

    def __init__(self) -> None:
        self.here = 0
        self._open = asyncio.Event()
        self._came = asyncio.Condition()

    async def pass_through(self) -> None:
        async with self._came:
            self.here += 1
            self._came.notify_all()
        await self._open.wait()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(30), self._came:
            await self._came.wait_for(lambda: self.here >= count)

    def open(self) -> None:
        self._open.set()


async def test_fields_that_a_recipe_drops_are_not_sent() -> None:
    """Its operator knows an agent that says more than is offered, and that works without."""
    passage = ScriptedRawCall()
    made = gateway(passage, leaves_out=("plugins",))
    assert "[DONE]" in await call(made, plugins=["web"])
    assert passage.bodies == [{**BODY, "stream": True}]
    with pytest.raises(RequestRefused):
        await call(made, plugins=["web"], models=["dearer"])


async def test_a_call_waits_for_money_that_others_reserved() -> None:
    """There is money for one worst case at a time, and for both calls as they turn out."""
    gate = Gate()
    passage = ScriptedRawCall(before=gate.pass_through)
    made = gateway(passage, MemoryLedger(6_000))
    calls = [asyncio.ensure_future(call(made)) for _ in range(4)]
    await gate.reached(1)
    assert made.account.ledger.totals().pending == 1
    gate.open()
    assert all("[DONE]" in text for text in await asyncio.gather(*calls))
    assert made.cut_short == ""
    assert passage.limits == [400] * 4, "nobody's answer is shorter for what others hold"
    totals = made.account.ledger.totals()
    assert (totals.calls, totals.pending, totals.cost) == (4, 0, 4 * COST)


async def test_only_a_request_without_an_open_one_is_refused() -> None:
    made = gateway(ScriptedRawCall(), MemoryLedger(3_500))
    answers = await asyncio.gather(*(call(made) for _ in range(9)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, RequestRefused)]
    totals = made.account.ledger.totals()
    assert {refusal.reason for refusal in refused} == {"budget_reached"}
    assert {refusal.status for refusal in refused} == {402}
    assert "budget" in made.cut_short
    assert totals.calls == len(answers) - len(refused) == 2
    assert (totals.cost, totals.pending) == (2 * COST, 0)


async def test_turns_are_counted_while_they_are_open() -> None:
    gate = Gate()
    passage = ScriptedRawCall(before=gate.pass_through)
    made = gateway(passage, turns=3)
    calls = [asyncio.ensure_future(call(made)) for _ in range(7)]
    await gate.reached(3)
    gate.open()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, RequestRefused)]
    assert (passage.asked, len(refused)) == (3, 4)
    assert {refusal.reason for refusal in refused} == {"turns_used"}
    assert made.cut_short == "All 3 turns are used."
    assert made.account.ledger.totals().cost == 3 * COST


async def test_a_turn_that_gave_no_answer_is_the_next_ones() -> None:
    gate = Gate()
    passage = ScriptedRawCall((), failure("server_error"), gate.pass_through)
    made = gateway(passage, turns=1)
    first = asyncio.ensure_future(call(made))
    await gate.reached(1)
    second = asyncio.ensure_future(call(made))
    gate.open()
    with pytest.raises(RequestRefused, check=lambda refusal: refusal.reason == "server_error"):
        await first
    passage.events, passage.error = ANSWER, None
    assert "[DONE]" in await second
    assert made.cut_short == ""
