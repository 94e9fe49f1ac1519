"""Cases in which the work does not fit: the window by the provider's word or by our count, the money, the turns."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.core.job import Budget
from app.llm.prices import Price
from tests.support.always_ends.answers import FIX, GOOD, POSITIONS, SUBMIT, bash, ever, once, with_usage
from tests.support.always_ends.case_runner import ACCEPTED, Case
from tests.support.always_ends.endpoint import Play, always, first
from tests.support.openai_endpoint import Reply, error

PHRASES = {
    "OpenAI's words": error(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
    "Anthropic's words": error(400, "prompt is too long: 208310 tokens > 200000 maximum"),
    "llama.cpp's words": error(400, "the request exceeds the available context size (exceed_context_size_error)"),
    "a 413": error(413, "Request too large"),
    "a 429 of one request": error(429, "Request too large for gpt-4 on tokens per min (TPM): Limit 10000"),
    "a 500": error(500, "maximum context length exceeded"),
}
TOO_LONG = PHRASES["OpenAI's words"]
MENDED, HOPELESS = 2, 3
"""Calls that overflow: two compactions are tried, the third refusal ends it."""
WORDY = "seq {0}0000 {0}1200; echo -e 'app.py:2: wrong\\nFAILED tests/test_app.py::test_add - {0}'"


def price(window: int, output: int = 2_000) -> Price:
    return Price(input=1, cached=0.1, output=10, context_window=window, max_output=output)


def worked(turns: int) -> list[Reply]:
    """Turns that fill the conversation with different things."""
    return [bash(WORDY.format(number + 1)) for number in range(turns)]


def refuses_above(characters: int, play: Play) -> Play:
    """A provider whose window is what it is, whatever we believe; what is refused is not played."""
    asked = 0

    def answered(number: int, body: dict[str, Any]) -> Reply:
        nonlocal asked
        if number == 0:
            asked = 0
        if sum(len(str(message)) for message in body["messages"]) > characters:
            return TOO_LONG
        asked += 1
        return play(asked - 1, body)

    return answered


def cases() -> Iterator[Case]:
    yield from _by_the_provider()
    yield from _by_our_count()
    yield from _by_money()
    yield from _by_turns()


def _by_the_provider() -> Iterator[Case]:
    places = list(POSITIONS.items())
    for number, (name, reply) in enumerate(PHRASES.items()):
        for where, position in (places[number % 5], places[(number + 3) % 5]):
            yield Case(
                f"an overflow in {name}, for ever, {where}",
                ever(position, always(reply)),
                "error",
                position + HOPELESS,
                says="does not fit",
            )
    for turns in (2, 4, 8, 12):
        filled = first(worked(turns), always(TOO_LONG))
        yield Case(f"an overflow for ever after {turns} long turns", filled, "error", turns + HOPELESS, "does not fit")
        mended = first([*worked(turns), TOO_LONG, *GOOD], always(TOO_LONG))
        yield Case(f"an overflow once after {turns} long turns", mended, "submitted", turns + 6)
        twice = first([*worked(turns), TOO_LONG, TOO_LONG, *GOOD], always(TOO_LONG))
        if turns > 2:
            # or what a prompt always has is so much of the rest that a second digest would not make it clearly smaller
            yield Case(f"two overflows after {turns} long turns", twice, "submitted|error", turns + 7)
    each = [reply for turn in worked(11) for reply in (turn, TOO_LONG)]
    yield Case("an overflow at every second call", first(each, always(TOO_LONG)), "error|limit_reached", 30)
    for characters in (30_000, 60_000, 120_000):
        job = first([*worked(11), FIX, SUBMIT, *GOOD], always(SUBMIT))
        small = refuses_above(characters, job)
        reviews = (ACCEPTED,)
        name = f"a window of {characters:,} characters that nobody told of"
        yield Case(name, small, "submitted", 24, reviews=reviews, price=None)
        endless = Case(f"{name}, for ever", refuses_above(characters, _endless()), "limit_reached", 30, price=None)
        yield replace(endless, budget=Budget(steps=12))
    tiny = refuses_above(2_000, always(SUBMIT))
    yield Case(
        "a window smaller than the head that nobody told of", tiny, "error", HOPELESS, "does not fit", price=None
    )
    fallback = first([*worked(6), *[error(500, "oops")] * 5], always(TOO_LONG))
    yield Case("a fallback whose window is smaller", fallback, "error|server_error", 6 + 5 + 12, fallbacks=1)


def _endless() -> Play:
    return lambda number, _body: bash(WORDY.format(number + 1))


def _by_our_count() -> Iterator[Case]:
    for window, ends, says in ((1_800, "error", "does not fit"), (4_000, "submitted", "")):
        work = first(GOOD, always(SUBMIT))
        yield Case(f"a window of {window:,} tokens", work, ends, 6, says, price=price(window))
    for window in (500, 1_000):
        case = Case(f"a window of {window:,} tokens", always(SUBMIT), "error", 0, "does not fit", price=price(window))
        yield case
        yield replace(case, name=f"{case.name}, all of them for the answer", price=price(window, window))
    for window in (8_000, 16_000, 24_000):
        job = first([*worked(11), FIX, SUBMIT], always(SUBMIT))
        for name, most in (("", 2_000), (", all of them for the answer", window)):
            full = Case(f"a job longer than {window:,} tokens{name}", job, "submitted", 16, reviews=(ACCEPTED,))
            yield replace(full, price=price(window, most))
            endless = Case(f"an endless job in {window:,} tokens{name}", _endless(), "limit_reached", 25)
            yield replace(endless, price=price(window, most), budget=Budget(steps=12))
    for size in (8_000, 60_000):
        brief = Case(f"a brief of {size:,} words", always(SUBMIT), "error", 0, "does not fit", brief="word " * size)
        yield replace(brief, price=price(8_000))
    lying = [with_usage(reply, prompt_tokens=7_900) for reply in (*worked(6), *GOOD)]
    yield Case("counts that fill the window", first(lying, always(SUBMIT)), "submitted", 11, price=price(8_000))
    beyond = [with_usage(reply, prompt_tokens=10**6) for reply in (*worked(6), *GOOD)]
    yield Case(
        "counts beyond the window",
        first(beyond, always(SUBMIT)),
        "submitted",
        11,
        price=Price(input=0, output=0, context_window=20_000),
    )
    no_output = Price(input=1, output=10, context_window=64_000, max_output=1)
    yield Case("an output of one token", ever(0, always(bash("date"))), "error", 5, price=no_output)


def _by_money() -> Iterator[Case]:
    for cents, calls in ((0, 0), (1, 2), (2, 4), (5, 25)):
        endless = Case(f"{cents} cents for an endless job", _endless(), "budget|limit_reached", calls)
        yield replace(endless, budget=Budget(usd=cents * 10_000, steps=25), price=Price(input=1, cached=1, output=1))
    for where, position in POSITIONS.items():
        dear = [with_usage(reply, prompt_tokens=4_999_000) for reply in GOOD]
        played = first([*GOOD[:position], dear[position]], always(SUBMIT))
        last = position == len(GOOD) - 1
        yield Case(f"all the money gone {where}", played, "submitted" if last else "budget", position + 1)
    retried = first([error(500, "oops")] * 4, _endless())
    yield Case("a little money and failures", retried, "budget", 6, budget=Budget(usd=12_000, steps=25))


def _by_turns() -> Iterator[Case]:
    for turns in (1, 2, 5):
        budget = Budget(steps=turns)
        says = "The one turn" if turns == 1 else f"All {turns} turns"
        yield Case(f"{turns} turns", _endless(), "limit_reached", turns, says, budget=budget)
    slow = ever(
        0,
        lambda number, _body: (
            error(429, "slow", headers={"retry-after": "250"}) if number % 2 == 0 else bash(f"echo {number}")
        ),
    )
    yield Case("minutes that are spent on waiting", slow, "limit_reached", 20, "minutes", budget=Budget(minutes=10))
    yield Case("no minutes at all", _endless(), "limit_reached", 0, "minutes", budget=Budget(minutes=0))
    once_slow = once(1, error(429, "slow down", headers={"retry-after": "299"}))
    yield Case("minutes that suffice", once_slow, "submitted", 6, budget=Budget(minutes=10))
