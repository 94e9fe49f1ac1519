"""The port to a job's account of model calls, and sums and sentences about money."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from app.core.model_usage import MicroUSD, ModelUse, Totals, WorkKind, usd
from app.llm.base import AnswerOrigin, Usage
from app.llm.errors import BECAUSE, BudgetError

T = TypeVar("T")
NEAR_CAP_PERCENT = 80
NEAR_CAP = f"{NEAR_CAP_PERCENT} % of the "
"""How the warning of a cap that is nearly reached begins."""
SHARE_USED_UP = "This attempt's share of the money is used."
NOTHING = Usage()


_ORDER: tuple[WorkKind, ...] = ("plan", "code", "review", "answer", "cheap")


class Ledger(Protocol):
    """One job's account. `call` is the durable step's name. Methods block, so call them from a thread.

    After a crash, reserving a call again marks its unbooked reservation as lost, and it stays in the account with the
    usage `if_lost`. Booking twice, or without a reservation, changes nothing.
    """

    @property
    def cap(self) -> MicroUSD: ...

    def reserve(self, call: str, worst: MicroUSD, *, if_lost: Usage = NOTHING) -> None:
        """Reserve `worst`, or raise BudgetError if that would exceed the cap."""
        ...

    def book(self, call: str, usage: Usage, answer: str = "") -> None:
        """Replace the open reservation of `call` by the actual usage, and store the answer."""
        ...

    def mark_lost(self, prefix: str) -> None:
        """Mark open reservations whose names start with `prefix` as lost, because their process died."""
        ...

    def stored_answer(self, call: str) -> str | None:
        """The newest answer stored with a booking of `call`, so that it is not bought again."""
        ...

    def spent(self) -> MicroUSD:
        """The money of booked and lost calls."""
        ...

    def remaining(self, call: str = "") -> MicroUSD:
        """The highest cost that the next call may have: the cap minus spent money and open reservations.

        An open reservation of the same `call` counts as lost, as it will be when the call is reserved again.
        """
        ...

    def totals(self) -> Totals: ...

    def refusal(self, call: str, worst: MicroUSD) -> BudgetError:
        """The error to raise if `worst` is more than `remaining`; it names the cap that was reached."""
        ...

    def nearing(self, cost: MicroUSD) -> tuple[str, ...]:
        """A sentence for each cap of which the newest booking, with this cost, made spending reach `NEAR_CAP`."""
        ...


async def run_or_undo(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """The result of `work`, or a cancellation after its effect was undone.

    A thread cannot be cancelled: a cancelled caller waits for it, and calls `undo` before the cancellation continues.
    `undo` must be short, because it is called in the loop.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))

    def take_back(done: "asyncio.Task[T]") -> None:
        if not done.cancelled() and done.exception() is None:
            undo(done.result())

    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(take_back)  # also if the wait is cancelled again
        await asyncio.wait({working})
        raise


def total(entries: Iterable[tuple[str, Usage]], answers: Iterable[str] = ()) -> Totals:
    """Sum up (state, usage) of all calls; failed calls that cost nothing are not counted.

    `answers` are those stored with their bookings, in order; empty ones are ignored.
    """
    kept = [(state, usage) for state, usage in entries if state != "booked" or usage != NOTHING]
    usages = [usage for _, usage in kept]
    return Totals(
        calls=len(kept),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cost=sum(usage.cost for usage in usages),
        lost=sum(state == "lost" for state, _ in kept),
        pending=sum(state == "reserved" for state, _ in kept),
        estimated=sum(state == "booked" and usage.estimated for state, usage in kept),
        models=_uses(filter(None, answers)),
    )


class _StoredAnswer(BaseModel):
    """The part of a stored answer that says which model gave it."""

    model: str
    origin: AnswerOrigin = AnswerOrigin()


def _uses(answers: Iterable[str]) -> tuple[ModelUse, ...]:
    counted: Counter[ModelUse] = Counter()
    for answer in answers:
        with suppress(ValidationError):  # written by another version of agent-fix
            kept = _StoredAnswer.model_validate_json(answer)
            counted[ModelUse(model=kept.model, **kept.origin.model_dump())] += 1
    uses = (use.model_copy(update={"answers": count}) for use, count in counted.items())
    return tuple(sorted(uses, key=lambda use: (_ORDER.index(use.kind), use.instead_of, use.model)))


def over_cap(cap: MicroUSD, spent: MicroUSD, left: MicroUSD, worst: MicroUSD) -> BudgetError:
    """What is neither spent nor left is reserved for calls that have no answer yet."""
    reserved = cap - spent - left
    held = f", {usd(reserved)} is reserved for calls that are running" if reserved > 0 else ""
    return BudgetError(
        f"The next model call could cost {usd(worst)}. Of the budget of {usd(cap)}, {usd(spent)} is spent{held}, and"
        f" {usd(left)} is left.",
        hint="Raise the budget (for example `--budget +3`) and continue; the job resumes where it stopped.",
    )


def near_cap_warning(what: str, cap: MicroUSD, spent: MicroUSD, cost: MicroUSD) -> tuple[str, ...]:
    """The warning, if spending the last `cost` of `spent` made it due."""
    due = cap * NEAR_CAP_PERCENT // 100
    if not cap or not spent - cost < due <= spent:
        return ()
    return (f"{NEAR_CAP}{what} is spent: {usd(spent)} of {usd(cap)}.",)


def price(totals: Totals) -> str:
    """The cost of the calls, for people; a total of zero is shown as an unknown price."""
    return usd(totals.cost) if totals.cost or not totals.calls else "price unknown"


def fallback_notes(totals: Totals) -> tuple[str, ...]:
    """A sentence for each fallback that answered: `2 of 7 answers came from X, because Y was unreachable.`"""
    answers = sum(use.answers for use in totals.models)
    grouped: dict[tuple[str, str, str], int] = {}
    for use in totals.models:
        if use.instead_of:
            key = use.model, use.instead_of, BECAUSE.get(use.because, "gave no answer")
            grouped[key] = grouped.get(key, 0) + use.answers
    return tuple(
        f"{count} of {answers} answers came from {model}, because {missing} {why}."
        for (model, missing, why), count in grouped.items()
    )
