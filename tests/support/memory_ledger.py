"""A ledger in memory."""

from dataclasses import dataclass

from app.core.model_usage import MicroUSD, Totals
from app.llm.base import Usage
from app.llm.errors import BudgetError
from app.llm.ledger import NOTHING, near_cap_warning, over_cap, total


@dataclass(slots=True)
class _LedgerEntry:
    call: str
    worst: MicroUSD
    usage: Usage
    """The booked usage; before that, the usage that counts if the call is lost."""
    state: str = "reserved"
    answer: str = ""


class MemoryLedger:
    def __init__(self, cap: MicroUSD) -> None:
        self._cap = cap
        self._entries: list[_LedgerEntry] = []

    @property
    def cap(self) -> MicroUSD:
        return self._cap

    def reserve(self, call: str, worst: MicroUSD, *, if_lost: Usage = NOTHING) -> None:
        earlier = self._open(call)
        if earlier is not None:
            earlier.state = "lost"
        if worst > self.remaining():
            raise self.refusal(call, worst)
        self._entries.append(_LedgerEntry(call, worst, if_lost))

    def book(self, call: str, usage: Usage, answer: str = "") -> None:
        entry = self._open(call)
        if entry is not None:
            entry.usage, entry.state, entry.answer = usage, "booked", answer

    def mark_lost(self, prefix: str) -> None:
        for entry in self._entries:
            if entry.state == "reserved" and entry.call.startswith(prefix):
                entry.state = "lost"

    def stored_answer(self, call: str) -> str | None:
        return next((entry.answer for entry in reversed(self._entries) if entry.call == call and entry.answer), None)

    def spent(self) -> MicroUSD:
        return sum(entry.usage.cost for entry in self._entries if entry.state != "reserved")

    def remaining(self, call: str = "") -> MicroUSD:
        pending = [entry for entry in self._entries if entry.state == "reserved"]
        reserved = sum(entry.usage.cost if entry.call == call else entry.worst for entry in pending)
        return max(0, self._cap - self.spent() - reserved)

    def totals(self) -> Totals:
        return total(((entry.state, entry.usage) for entry in self._entries), (entry.answer for entry in self._entries))

    def refusal(self, call: str, worst: MicroUSD) -> BudgetError:
        return over_cap(self._cap, self.spent(), self.remaining(call), worst)

    def nearing(self, cost: MicroUSD) -> tuple[str, ...]:
        return near_cap_warning("budget", self._cap, self.spent(), cost)

    def _open(self, call: str) -> _LedgerEntry | None:
        return next((entry for entry in self._entries if entry.call == call and entry.state == "reserved"), None)
