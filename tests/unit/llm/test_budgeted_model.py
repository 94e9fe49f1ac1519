"""The meter: what is checked before a call, what is done about failures, and what is booked after."""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.core.model_usage import Totals
from app.llm.base import Message, ModelAnswer, ModelInfo, ModelRequest, OnText, Usage
from app.llm.budgeted_model import BudgetedModel
from app.llm.circuit_breaker import (
    FAILURES,
    MAX_ATTEMPTS,
    MAX_REST_SECONDS,
    MAX_WAIT_SECONDS,
    OPEN_SECONDS,
    TOTAL_WAIT,
    WAITS,
    CircuitBreaker,
    CircuitBreakers,
    RetryBackoff,
)
from app.llm.errors import BudgetError, ModelError, ModelErrorKind
from app.llm.ledger import NOTHING, fallback_notes
from app.llm.prices import worst_case
from tests.support.memory_ledger import MemoryLedger
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel, Turn, text

PRICED = ModelInfo("fake/priced", 10_000, 4_000, input_price=1_000_000, cached_price=100_000, output_price=10_000_000)
OTHER = ModelInfo("other/priced", 10_000, 4_000, input_price=2_000_000, output_price=20_000_000)
HELLO = ModelRequest(messages=(Message(role="user", content="hi " * 400),), max_tokens=2_000)


def failed(
    kind: ModelErrorKind, reason: str = "x", *, after: float | None = None, usage: Usage | None = None
) -> ModelError:
    return ModelError(f"it {reason}.", kind=kind, reason=reason, retry_after=after, usage=usage)


@dataclass
class BudgetHarness:
    """A meter over scripted models, whose sleeps are only noted down and move the clock."""

    turns: list[Turn]
    cap: int = 10_000_000
    info: ModelInfo = PRICED
    others: list[ScriptedModel] = field(default_factory=list)
    sleeps: list[float] = field(default_factory=list)
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.turns, info=self.info)
        self.ledger = MemoryLedger(self.cap)
        self.progress = ListProgress()
        self.budgeted_model = BudgetedModel(
            self.model,
            self.ledger,
            self.progress,
            fallbacks=self.others,
            breakers=CircuitBreakers(lambda: self.now),
            sleep=self.sleep,
            backoff=lambda: RetryBackoff(jitter=lambda: 0.5),
        )

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    async def refused(self, request: ModelRequest = HELLO) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.budgeted_model.ask("turn.1", request)
        return caught.value


async def test_answer_is_booked_and_streamed() -> None:
    services = BudgetHarness([text("hello")])
    answer = await services.budgeted_model.ask("turn.1", HELLO)
    assert (answer.content, answer.model) == ("hello", "fake/priced")
    assert services.model.keys == ["turn.1"]
    assert services.model.requests == [HELLO]
    assert services.progress.texts("text") == ["hello"]
    assert services.progress.texts("cost") == ["turn.1: 100 tokens (40 % cached) in, 10 out, $0.0010; $0.0010 so far"]
    totals = services.ledger.totals()
    assert (totals.calls, totals.cost, totals.lost, totals.pending) == (1, 1_000, 0, 0)
    assert totals.cached_share == 0.4


class StreamingModel(ScriptedModel):
    """Streams its answers in pieces of one character."""

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        answer = await super().complete(request, key=key)
        assert on_text is not None
        for character in answer.content:
            on_text(character)
        return answer


@pytest.mark.parametrize(
    ("content", "shown"), [("\n``` x", ""), (' {"a": 1}', ""), ("\n`a` b", "\n`a` b"), ("``a", "``a"), ("  ok", "  ok")]
)
async def test_streamed_text_is_shown_unless_it_is_json(content: str, shown: str) -> None:
    progress = ListProgress()
    model = BudgetedModel(StreamingModel([text(content)]), MemoryLedger(10_000_000), progress)
    await model.ask("turn.1", HELLO)
    assert "".join(progress.texts("text")) == shown


async def test_request_larger_than_the_window_is_never_sent() -> None:
    services = BudgetHarness([], info=ModelInfo("fake/small", 1_300, 1_200))
    found = await services.refused()
    assert (found.kind, found.reason) == ("shrink", "does_not_fit")
    assert (services.model.calls, services.ledger.totals().calls) == (0, 0)


@pytest.mark.parametrize(("window", "sent"), [(1_324, 1_024), (2_299, 1_999), (2_300, 2_000), (9_000, 2_000)])
async def test_answer_limit_is_cut_to_the_window(window: int, sent: int) -> None:
    services = BudgetHarness([text("ok")], info=ModelInfo("fake/small", window, 4_000))
    await services.budgeted_model.ask("turn.1", HELLO)
    assert services.model.requests[0].max_tokens == sent


async def test_requested_small_answer_fits_a_small_window() -> None:
    services = BudgetHarness([text("ok")], info=ModelInfo("fake/small", 400, 100))
    await services.budgeted_model.ask("turn.1", HELLO.model_copy(update={"max_tokens": 100}))
    assert services.model.requests[0].max_tokens == 100


async def test_answer_limit_is_cut_to_the_budget() -> None:
    services = BudgetHarness([text("ok")], cap=worst_case(PRICED, 300, 1_500))
    await services.budgeted_model.ask("turn.1", HELLO)
    assert services.model.requests[0].max_tokens == 1_500


async def test_no_call_is_made_without_budget() -> None:
    services = BudgetHarness([], cap=worst_case(PRICED, 300, 1_024) - 1)
    with pytest.raises(BudgetError, match=r"budget of \$0\.01") as caught:
        await services.budgeted_model.ask("turn.1", HELLO)
    assert "--budget" in caught.value.hint
    assert services.model.calls == 0


async def test_temporary_failures_are_retried_with_growing_pauses() -> None:
    services = BudgetHarness([*[failed("retry", "server_error")] * 4, text("at last")])
    assert (await services.budgeted_model.ask("turn.1", HELLO)).content == "at last"
    assert services.sleeps == [1.0, 2.0, 4.0, 8.0]
    assert len(services.progress.texts("warning")) == 4
    assert services.ledger.totals().calls == 1


async def test_call_is_tried_at_most_five_times() -> None:
    services = BudgetHarness([failed("retry", "server_error")] * MAX_ATTEMPTS)
    assert (await services.refused()).reason == "server_error"
    assert services.model.calls == MAX_ATTEMPTS
    assert services.ledger.spent() == 0


async def test_cut_stream_is_booked_at_its_estimated_cost() -> None:
    usage = Usage(prompt_tokens=300, completion_tokens=7, cost=370, estimated=True)
    services = BudgetHarness([failed("retry", "stream_cut", usage=usage), text("whole")])
    await services.budgeted_model.ask("turn.1", HELLO)
    totals = services.ledger.totals()
    assert (totals.calls, totals.cost, totals.estimated) == (2, 1_370, 1)


async def test_rate_limit_is_waited_for_as_announced() -> None:
    services = BudgetHarness([failed("wait", after=17.0), failed("wait", after=40.0), text("ok")])
    await services.budgeted_model.ask("turn.1", HELLO)
    assert services.sleeps == [17.5, 40.5]


async def test_rate_limit_over_five_minutes_is_not_waited_for() -> None:
    services = BudgetHarness([failed("wait", "rate_limited", after=MAX_WAIT_SECONDS + 1)])
    assert (await services.refused()).reason == "rate_limited"
    assert services.sleeps == []


async def test_total_waiting_time_is_limited() -> None:
    services = BudgetHarness([failed("wait", after=250.0)] * 9)
    await services.refused()
    assert sum(services.sleeps) <= TOTAL_WAIT
    pace = RetryBackoff(jitter=lambda: 1.0)
    granted = [pace.delay(failed("wait", after=0.0)) for _ in range(WAITS + 1)]
    assert granted == [1.0] * WAITS + [None]


@pytest.mark.parametrize(
    ("kind", "reason"), [("give_up", "bad_key"), ("give_up", "refused"), ("shrink", "context_window")]
)
async def test_permanent_failure_is_not_retried(kind: ModelErrorKind, reason: str) -> None:
    other = ScriptedModel([text("from the other")], info=OTHER)
    services = BudgetHarness([failed(kind, reason)], others=[other])
    assert (await services.refused()).reason == reason
    assert (services.model.calls, other.calls, services.sleeps) == (1, 0, [])


@pytest.mark.parametrize(
    "turns",
    [
        [failed("give_up", "unreachable")],
        [failed("retry", "server_error")] * MAX_ATTEMPTS,
        [failed("wait", after=999.0)],
    ],
)
async def test_fallback_answers_during_an_outage(turns: list[Turn]) -> None:
    other = ScriptedModel([text("from the other")], info=OTHER)
    services = BudgetHarness(turns, others=[other])
    answer = await services.budgeted_model.ask("turn.1", HELLO)
    assert (answer.content, answer.model) == ("from the other", "other/priced")
    assert "Asking other/priced instead." in services.progress.texts("warning")[-1]


async def test_open_breaker_lets_one_trial_call_through_later() -> None:
    services = BudgetHarness([*[failed("retry")] * MAX_ATTEMPTS, text("again")])
    await services.refused()
    services.sleeps.clear()
    assert (await services.budgeted_model.ask("turn.2", HELLO)).content == "again"
    assert services.sleeps == [OPEN_SECONDS]


async def test_open_breaker_is_not_waited_for_with_a_fallback() -> None:
    other = ScriptedModel([text("1"), text("2")], info=OTHER)
    services = BudgetHarness([failed("retry")] * MAX_ATTEMPTS, others=[other])
    await services.budgeted_model.ask("turn.1", HELLO)
    services.sleeps.clear()
    assert (await services.budgeted_model.ask("turn.2", HELLO)).content == "2"
    assert (services.model.calls, services.sleeps) == (MAX_ATTEMPTS, [])


async def test_fallback_answer_names_the_replaced_model() -> None:
    other = ScriptedModel([text("1"), text("2")], info=OTHER)
    services = BudgetHarness(
        [failed("give_up", "quota"), text("3"), failed("wait", "rate_limited", after=999.0)], others=[other]
    )
    for key in ("turn.1", "turn.2", "turn.3"):
        await services.budgeted_model.ask(key, HELLO)
        services.now += MAX_REST_SECONDS
    assert fallback_notes(services.ledger.totals()) == (
        "1 of 3 answers came from other/priced, because fake/priced had no credit left.",
        "1 of 3 answers came from other/priced, because fake/priced limited the rate for too long.",
    )
    assert {use.model: use.answers for use in services.ledger.totals().models if not use.instead_of} == {
        "fake/priced": 1
    }


async def test_failing_model_rests_while_a_fallback_answers() -> None:
    other = ScriptedModel([text("1"), text("2")], info=OTHER)
    services = BudgetHarness([failed("give_up", "quota"), text("3")], others=[other])
    for key in ("turn.1", "turn.2"):
        await services.budgeted_model.ask(key, HELLO)
    assert (services.model.calls, other.calls, services.sleeps) == (1, 2, [])
    assert [(use.answers, use.because) for use in services.ledger.totals().models] == [(2, "quota")]
    services.now += MAX_REST_SECONDS
    assert (await services.budgeted_model.ask("turn.3", HELLO)).content == "3"


async def test_model_without_fallback_is_called_again_at_once() -> None:
    services = BudgetHarness([failed("give_up", "quota"), text("filled")])
    assert (await services.refused()).reason == "quota"
    assert (await services.budgeted_model.ask("turn.1", HELLO)).content == "filled"
    assert services.sleeps == []


@pytest.mark.parametrize("reason", ["no_key", "bad_key", "unknown_model", "refused", "context_window"])
async def test_failing_fallback_leaves_the_first_error(reason: str) -> None:
    kind: ModelErrorKind = "shrink" if reason == "context_window" else "give_up"
    useless, good = ScriptedModel([failed(kind, reason)], info=OTHER), ScriptedModel([text("ok")], info=OTHER)
    services = BudgetHarness([failed("give_up", "unreachable")], others=[useless])
    assert (await services.refused()).reason == "unreachable"
    useless = ScriptedModel([failed(kind, reason)], info=OTHER)
    services = BudgetHarness([failed("give_up", "unreachable")], others=[useless, good])
    answer = await services.budgeted_model.ask("turn.1", HELLO)
    assert (answer.content, answer.origin.instead_of, answer.origin.because) == ("ok", "fake/priced", "unreachable")


async def test_fallback_that_costs_too_much_leaves_the_first_error() -> None:
    dear = ModelInfo("dear/priced", 10_000, 4_000, input_price=10**11, output_price=10**11)
    services = BudgetHarness([failed("retry", "server_error")] * MAX_ATTEMPTS, others=[ScriptedModel([], info=dear)])
    assert (await services.refused()).reason == "server_error"
    assert services.progress.texts("warning")[-1].startswith("dear/priced is not asked instead: The next model call")
    good = ScriptedModel([text("ok")], info=OTHER)
    services = BudgetHarness(
        [failed("retry", "server_error")] * MAX_ATTEMPTS, others=[ScriptedModel([], info=dear), good]
    )
    assert (await services.budgeted_model.ask("turn.1", HELLO)).content == "ok"


async def test_answer_has_a_deadline() -> None:
    model, ledger = _Endless(), MemoryLedger(10_000_000)
    with pytest.raises(ModelError) as caught:
        await BudgetedModel(model, ledger, ListProgress(), deadline=0.01).ask("turn.1", HELLO)
    assert (caught.value.kind, caught.value.reason) == ("retry", "deadline")
    assert (ledger.totals().calls, ledger.totals().pending) == (1, 0)


async def test_fallback_gets_half_of_the_remaining_time() -> None:
    other = ScriptedModel([text("in time")], info=OTHER)
    budgeted_model = BudgetedModel(
        _Endless(), MemoryLedger(10_000_000), ListProgress(), fallbacks=[other], deadline=10.0
    )
    answer = await budgeted_model.ask("turn.1", HELLO)
    assert (answer.content, answer.origin.because) == ("in time", "deadline")


async def test_models_of_a_process_share_circuit_breakers() -> None:
    now, progress, other = [0.0], ListProgress(), ScriptedModel([text("2")], info=OTHER)
    breakers = CircuitBreakers(lambda: now[0])

    def meter(turns: list[Turn], **more: Any) -> BudgetedModel:
        model = ScriptedModel(turns, info=PRICED)
        return BudgetedModel(model, MemoryLedger(10_000_000), progress, breakers=breakers, **more)

    with pytest.raises(ModelError):
        await meter([failed("wait", "rate_limited", after=MAX_WAIT_SECONDS + 1)]).ask("turn.1", HELLO)
    second = meter([], fallbacks=[other])
    assert (await second.ask("turn.1", HELLO)).origin.because == "rate_limited"
    now[0] += MAX_REST_SECONDS
    assert (await meter([text("3")]).ask("turn.1", HELLO)).content == "3"
    elsewhere = replace(PRICED, endpoint="http://127.0.0.1:1/v1")
    assert breakers.of(PRICED) is not breakers.of(elsewhere)


def test_breaker_lets_one_call_through_at_a_time() -> None:
    now = [0.0]
    breaker = CircuitBreaker(lambda: now[0])
    for _ in range(FAILURES):
        assert breaker.delay() == 0
        breaker.failed()
    assert breaker.delay() == OPEN_SECONDS
    now[0] += OPEN_SECONDS
    assert (breaker.delay(), breaker.delay()) == (0, OPEN_SECONDS)
    breaker.succeeded()
    assert breaker.delay() == 0


def test_longer_of_two_pauses_counts() -> None:
    breaker = CircuitBreaker(lambda: 0.0)
    for seconds in (200.0, 1.0):
        breaker.failed("rate_limited", seconds)
        assert breaker.delay() == 200


async def test_budget_warning_is_given_once_even_after_a_crash() -> None:
    services = BudgetHarness([text(str(number), usage=Usage(cost=300_000)) for number in range(4)], cap=1_000_000)
    for number in range(3):
        await services.budgeted_model.ask(f"turn.{number}", HELLO)
    said = ["80 % of the budget is spent: $0.90 of $1.00."]
    assert services.progress.texts("warning") == said
    after_the_crash = ListProgress()  # which may have come before anybody was told
    budgeted_model = BudgetedModel(services.model, services.ledger, after_the_crash)
    await budgeted_model.ask("turn.2", HELLO)
    assert after_the_crash.texts("warning") == said
    await services.budgeted_model.ask("turn.9", HELLO.model_copy(update={"max_tokens": 10}))
    assert services.progress.texts("warning") == said


class _Endless(ScriptedModel):
    """Says a word and never comes to an end."""

    def __init__(self) -> None:
        super().__init__([], info=PRICED)
        self.begun = asyncio.Event()

    async def complete(self, request: ModelRequest, *, key: str = "", on_text: OnText | None = None) -> ModelAnswer:
        assert on_text is not None
        on_text("let me think")
        self.begun.set()
        return await asyncio.Future[ModelAnswer]()


class SlowLedger(MemoryLedger):
    """Its reservations take as long as somebody wants."""

    def __init__(self, cap: int) -> None:
        super().__init__(cap)
        self.begun, self.go = threading.Event(), threading.Event()

    def reserve(self, call: str, worst: int, *, if_lost: Usage = NOTHING) -> None:
        self.begun.set()
        assert self.go.wait(60)
        super().reserve(call, worst, if_lost=if_lost)


async def test_cancelled_reservation_is_released() -> None:
    services = BudgetHarness([text("never asked for")])
    slow = SlowLedger(10_000_000)
    budgeted_model = BudgetedModel(services.model, slow, services.progress)
    asked = asyncio.ensure_future(budgeted_model.ask("turn.1", HELLO))
    await asyncio.to_thread(slow.begun.wait, 60)
    asked.cancel()
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert slow.totals() == Totals()
    assert slow.remaining() == slow.cap
    assert services.model.calls == 0


async def test_a_cancelled_call_is_booked_with_an_estimate() -> None:
    model, ledger = _Endless(), MemoryLedger(10_000_000)
    asked = asyncio.create_task(BudgetedModel(model, ledger, ListProgress()).ask("turn.1", HELLO))
    await model.begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    totals = ledger.totals()
    assert (totals.calls, totals.estimated, totals.pending, totals.prompt_tokens) == (1, 1, 0, 300)
    assert totals.completion_tokens > 0
    assert totals.cost > 300


async def test_unknown_price_is_reported_once() -> None:
    services = BudgetHarness([text("1"), text("2")], cap=0, info=ModelInfo("fake/unknown", 10_000, 4_000, priced=False))
    for key in ("turn.1", "turn.2"):
        await services.budgeted_model.ask(key, HELLO)
    assert [line for line in services.progress.texts("warning") if "price" in line] == services.progress.texts(
        "warning"
    )
    assert len(services.progress.texts("warning")) == 1


async def test_booked_answer_is_not_paid_again_after_a_crash() -> None:
    model, ledger = ScriptedModel([text("first"), text("second")]), MemoryLedger(10_000_000)
    assert (await BudgetedModel(model, ledger, ListProgress()).ask("turn.1", HELLO)).content == "first"
    after_the_crash = BudgetedModel(model, ledger, ListProgress())
    assert (await after_the_crash.ask("turn.1", HELLO)).content == "first"
    assert ledger.totals().calls == 1
    assert (await after_the_crash.ask("turn.2", HELLO)).content == "second"


async def test_stored_answer_of_another_version_is_bought_again_once() -> None:
    services = BudgetHarness([text("new")])
    services.ledger.reserve("turn.1", 10, if_lost=NOTHING)
    services.ledger.book("turn.1", Usage(cost=7), '["kept"]')
    for _ in range(2):
        assert (await services.budgeted_model.ask("turn.1", HELLO)).content == "new"
    assert services.model.calls == 1
    assert len(services.progress.texts("warning")) == 1


class EarlyWaking(BudgetHarness):
    """Sleeps that end before their time, as those of other processes' clocks do."""

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += max(seconds * 0.7, 0.01)


async def test_a_pause_of_no_whole_second_is_not_announced() -> None:
    services = EarlyWaking([failed("wait", "rate_limited", after=10.0), text("hello")])
    assert (await services.budgeted_model.ask("turn.1", HELLO)).content == "hello"
    announced = [each for each in services.progress.texts("warning") if "is not used for" in each]
    assert announced == ["fake/priced is not used for 3 s."]
