"""The ledger: never over the cap, never negative, the same after a crash; in memory and in a database alike."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, select

from app.core.errors import AgentFixError, ExitCode
from app.core.model_usage import ModelUse, WorkKind, parse_usd, usd
from app.llm.base import AnswerOrigin, ModelAnswer, ModelInfo, Usage
from app.llm.errors import BudgetError
from app.llm.ledger import NOTHING, Ledger, fallback_notes
from app.llm.prices import affordable, cost_of, worst_case
from app.llm.sql_ledger import SqlLedger, job_costs, metadata
from tests.support.memory_ledger import MemoryLedger

MakeLedger = Callable[[int], Ledger]
PROMPT = Usage(prompt_tokens=50, cost=30, estimated=True)


def engine(path: Path) -> Engine:
    made = create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
    metadata.create_all(made)
    return made


@pytest.fixture(params=["memory", "sql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLedger]:
    if request.param == "memory":
        yield MemoryLedger
        return
    made = engine(tmp_path / "ledger.db")
    yield lambda cap: SqlLedger(made, "job-1", cap)
    made.dispose()


def test_a_call_is_reserved_and_booked(make: MakeLedger) -> None:
    ledger = make(1_000)
    ledger.reserve("turn.1", 600, if_lost=PROMPT)
    assert (ledger.spent(), ledger.remaining(), ledger.totals().pending) == (0, 400, 1)
    ledger.book("turn.1", Usage(prompt_tokens=50, cached_tokens=20, completion_tokens=5, cost=200))
    assert (ledger.spent(), ledger.remaining(), ledger.cap) == (200, 800, 1_000)
    totals = ledger.totals()
    assert totals.model_dump() == {
        "calls": 1,
        "prompt_tokens": 50,
        "cached_tokens": 20,
        "completion_tokens": 5,
        "cost": 200,
        "lost": 0,
        "pending": 0,
        "estimated": 0,
        "models": (),
    }


def test_newest_stored_answer_of_a_call_counts(make: MakeLedger) -> None:
    ledger = make(1_000)
    for answer in ("first", "second"):
        ledger.reserve("turn.1", 10)
        ledger.book("turn.1", PROMPT, answer)
    assert ledger.stored_answer("turn.1") == "second"


def test_reservation_over_the_cap_is_refused(make: MakeLedger) -> None:
    ledger = make(1_000)
    ledger.reserve("turn.1", 1_000)
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("turn.2", 1)
    assert caught.value.code is ExitCode.LIMIT_REACHED
    assert ledger.totals().pending == 1


def test_refusal_says_what_is_spent_reserved_and_left(make: MakeLedger) -> None:
    ledger = make(1_000_000)
    message = "The next model call could cost $0.50. Of the budget of $1.00, $0.00 is spent, "
    ledger.reserve("turn.1", 600_000)
    held = f"{message}$0.60 is reserved for calls that are running, and $0.40 is left."
    assert ledger.refusal("turn.2", 500_000).message == held
    with pytest.raises(BudgetError) as caught:
        ledger.reserve("turn.2", 500_000)
    assert caught.value.message == held
    ledger.book("turn.1", NOTHING)
    assert ledger.refusal("turn.2", 500_000).message == f"{message}and $1.00 is left."


def test_booking_twice_or_without_a_reservation_changes_nothing(make: MakeLedger) -> None:
    ledger = make(1_000)
    ledger.book("turn.1", PROMPT)
    assert ledger.totals().calls == 0
    ledger.reserve("turn.1", 600)
    for _ in range(2):
        ledger.book("turn.1", PROMPT)
    assert (ledger.totals().calls, ledger.spent()) == (1, 30)


def test_unbooked_call_is_lost_at_its_prompt_cost(make: MakeLedger) -> None:
    ledger = make(1_000)
    ledger.reserve("turn.1", 600, if_lost=PROMPT)
    assert ledger.remaining("turn.1") == 970
    ledger.reserve("turn.1", 600, if_lost=PROMPT)
    assert (ledger.totals().lost, ledger.totals().pending, ledger.spent()) == (1, 1, 30)
    ledger.book("turn.1", Usage(prompt_tokens=50, completion_tokens=5, cost=100))
    totals = ledger.totals()
    assert (totals.calls, totals.lost, totals.cost, totals.prompt_tokens) == (2, 1, 130, 100)


def test_open_calls_of_a_dead_process_are_lost_at_once(make: MakeLedger) -> None:
    ledger = make(1_000)
    for call in ("kilo.1.1", "kilo.1.2", "kilo.11.1", "turn.1"):
        ledger.reserve(call, 200, if_lost=PROMPT)
    ledger.book("kilo.1.2", PROMPT)
    ledger.mark_lost("kilo.1.")
    totals = ledger.totals()
    assert (totals.lost, totals.pending, ledger.spent(), ledger.remaining()) == (1, 2, 60, 540)
    ledger.mark_lost("kil_.")
    assert ledger.totals().pending == 2, "a name is a name, and no pattern"


def test_lost_call_stays_lost_when_its_retry_is_refused(make: MakeLedger) -> None:
    ledger = make(620)
    ledger.reserve("turn.1", 600, if_lost=PROMPT)
    with pytest.raises(BudgetError):
        ledger.reserve("turn.1", 600, if_lost=PROMPT)
    assert (ledger.totals().lost, ledger.totals().pending, ledger.remaining()) == (1, 0, 590)


def test_failed_free_call_is_not_counted(make: MakeLedger) -> None:
    ledger = make(1_000)
    for usage in (Usage(), Usage(), PROMPT):
        ledger.reserve("turn.1", 600)
        ledger.book("turn.1", usage)
    assert (ledger.totals().calls, ledger.totals().estimated, ledger.spent()) == (1, 1, 30)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "book"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 500),
        st.floats(0, 1),
    ),
    max_size=40,
)


@given(actions=ACTIONS, cap=st.integers(0, 2_000))
def test_ledgers_never_exceed_the_cap_or_become_negative(actions: list[tuple[str, str, int, float]], cap: int) -> None:
    """The database keeps the same account as the memory, and neither ever holds more than the cap."""
    made = create_engine("sqlite://")
    metadata.create_all(made)
    ledgers: tuple[Ledger, ...] = (MemoryLedger(cap), SqlLedger(made, "job", cap))
    worst: dict[str, int] = {}
    for action, call, amount, share in actions:
        if action == "book":
            usage = Usage(prompt_tokens=1, cost=int(worst.pop(call, 0) * share))
            for ledger in ledgers:
                ledger.book(call, usage)
        else:
            outcomes = [_reserve(ledger, call, amount, int(amount * share)) for ledger in ledgers]
            assert outcomes[0] == outcomes[1]
            worst |= {call: amount} if outcomes[0] else {}
            if not outcomes[0]:
                worst.pop(call, None)
        for ledger in ledgers:
            assert 0 <= ledger.spent() <= ledger.totals().cost <= cap
            assert 0 <= ledger.remaining() <= cap - ledger.spent()
        with made.connect() as db:
            assert (db.scalar(select(job_costs.c.cost)) or 0) == ledgers[0].spent()
        assert ledgers[0].totals() == ledgers[1].totals()
        assert ledgers[0].remaining("a") == ledgers[1].remaining("a")
    made.dispose()


def _reserve(ledger: Ledger, call: str, worst: int, lost: int) -> bool:
    try:
        ledger.reserve(call, worst, if_lost=Usage(cost=lost))
    except BudgetError:
        return False
    return True


def test_ledger_survives_its_process_and_belongs_to_one_job(tmp_path: Path) -> None:
    first = engine(tmp_path / "ledger.db")
    SqlLedger(first, "job-1", 1_000).reserve("turn.1", 600, if_lost=PROMPT)
    first.dispose()
    second = engine(tmp_path / "ledger.db")
    ledger = SqlLedger(second, "job-1", 4_000)
    assert (ledger.totals().pending, ledger.remaining()) == (1, 3_400)
    assert SqlLedger(second, "job-2", 500).remaining() == 500
    second.dispose()


def test_calls_set_aside_stay_paid_and_hold_nothing(tmp_path: Path) -> None:
    made = engine(tmp_path / "ledger.db")
    ledger = SqlLedger(made, "job-1", 1_000)
    ledger.reserve("turn.1", 400)
    ledger.book("turn.1", Usage(prompt_tokens=100, completion_tokens=10, cost=300), "answer")
    ledger.reserve("turn.2", 600, if_lost=PROMPT)  # its process dies
    for _ in range(2):
        ledger.set_aside()
        assert (ledger.stored_answer("turn.1"), ledger.spent(), ledger.remaining()) == (None, 330, 670)
        assert (ledger.totals().calls, ledger.totals().lost, ledger.totals().pending) == (2, 1, 0)
    made.dispose()


def test_concurrent_calls_cannot_reserve_the_same_money(tmp_path: Path) -> None:
    made = engine(tmp_path / "ledger.db")
    start = threading.Barrier(8)
    won: list[str] = []

    def grab(call: str) -> None:
        start.wait()
        if _reserve(SqlLedger(made, "job", 1_000), call, 400, 0):
            won.append(call)

    threads = [threading.Thread(target=grab, args=(f"turn.{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.dispose()
    assert len(won) == 2


@pytest.mark.parametrize(
    ("text", "amount"),
    [("5", 5_000_000), ("0.50", 500_000), ("$5", 5_000_000), (" 2.5 ", 2_500_000), (".000001", 1), ("0", 0)],
)
def test_dollar_amounts_are_parsed(text: str, amount: int) -> None:
    assert parse_usd(text) == amount


def test_plus_raises_the_cap() -> None:
    assert parse_usd("+3", current=5_000_000) == 8_000_000
    assert parse_usd("3", current=5_000_000) == 3_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+-1",
        "nan",
        "inf",
        "1e309",
        "1e3",
        "∞",
        "٣",
        "5,0",
        "5 USD",
        "++3",
        "0x10",
        "9999999",
        "1.1234567",
        ".",
    ],
)
def test_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(AgentFixError) as caught:
        parse_usd(text)
    assert caught.value.code is ExitCode.USAGE


@given(st.integers(0, 10**12))
def test_formatted_amounts_can_be_parsed_back(amount: int) -> None:
    assert usd(amount).startswith("$")
    assert abs(parse_usd(usd(amount % 10**11)) - amount % 10**11) <= 5_000


TOKENS = st.integers(0, 2_000_000)
PRICE = st.integers(0, 100_000_000)


@given(st.tuples(TOKENS, TOKENS), st.floats(0, 1), st.tuples(PRICE, PRICE, PRICE), st.tuples(TOKENS, st.integers(1, 4)))
def test_worst_case_cost_is_never_too_low(
    tokens: tuple[int, int], cached: float, prices: tuple[int, int, int], step: tuple[int, int]
) -> None:
    prompt, output = tokens
    long, factor = step
    given_price, output_price, write = prices
    info = ModelInfo(
        "m",
        10**7,
        10**7,
        input_price=given_price,
        cached_price=given_price // 10,
        output_price=output_price,
        cache_write_price=write,
        long_prompt=long,
        long_input_price=given_price * factor,
        long_output_price=output_price * factor,
    )
    usage = Usage(prompt_tokens=prompt, cached_tokens=int(prompt * cached), completion_tokens=output)
    worst = worst_case(info, prompt, output)
    assert 0 <= cost_of(info, usage) <= worst
    space = affordable(info, prompt, worst, output)
    assert space == output
    if worst:
        less = affordable(info, prompt, worst - 1, output)
        assert less < output or worst_case(info, prompt, less) <= worst - 1


def answered(model: str, kind: WorkKind = "code", *, instead_of: str = "", because: str = "") -> str:
    return ModelAnswer(
        model=model, origin=AnswerOrigin(kind=kind, instead_of=instead_of, because=because)
    ).model_dump_json()


def test_ledger_counts_answers_per_model(make: MakeLedger) -> None:
    ledger = make(1_000)
    answers = [
        answered("b/code"),
        answered("c/other", instead_of="b/code", because="unreachable"),
        answered("a/plan", "plan"),
        answered("b/code"),
        answered("c/other", instead_of="b/code", because="unreachable"),
    ]
    for number, answer in enumerate(answers):
        ledger.reserve(f"call.{number}", 10)
        ledger.book(f"call.{number}", Usage(cost=1), answer)
    ledger.reserve("call.failed", 10)
    ledger.book("call.failed", Usage(cost=1))
    totals = ledger.totals()
    assert [(use.model, use.kind, use.answers) for use in totals.models] == [
        ("a/plan", "plan", 1),
        ("b/code", "code", 2),
        ("c/other", "code", 2),
    ]
    assert fallback_notes(totals) == ("2 of 5 answers came from c/other, because b/code was unreachable.",)


def test_older_answers_have_no_fallback_note(make: MakeLedger) -> None:
    ledger = make(1_000)
    ledger.reserve("turn.1", 10)
    ledger.book("turn.1", Usage(cost=1), '{"content": "x", "model": "b/code"}')
    assert ledger.totals().models == (ModelUse(model="b/code"),)
    assert fallback_notes(ledger.totals()) == ()
