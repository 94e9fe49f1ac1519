"""The model for each kind of work, and what a job's model calls cost."""

import re
from decimal import Decimal
from typing import Literal

from app.core.errors import AgentFixError
from app.core.record import Record

WorkKind = Literal["plan", "code", "review", "answer", "cheap"]
"""Kinds of work that may have a model each: plans, specification tests, changes, answers to questions, and minor tasks
beside."""


Reasoning = Literal["", "low", "medium", "high"]
"""How hard a model is to think before it answers; empty leaves that to the provider."""


class ModelNames(Record):
    """The model for each kind of work; an empty name means the code model."""

    code: str = ""
    plan: str = ""
    review: str = ""
    answer: str = ""
    cheap: str = ""

    def of(self, kind: WorkKind) -> str:
        name: str = getattr(self, kind)
        return name or self.code


MicroUSD = int
"""Money in millionths of a US dollar: sums stay exact."""
DOLLAR: MicroUSD = 1_000_000


class ModelUse(Record):
    """How many of a job's answers came from one model, either for one kind of work or as a fallback."""

    model: str
    kind: WorkKind = "code"
    answers: int = 1
    instead_of: str = ""
    because: str = ""


class Totals(Record):
    """The sum of a job's model calls so far.

    `lost` calls were sent by a process that died before it stored the answer. They count at what the provider may have
    charged: the whole prompt, uncached. `pending` calls are in flight (or died with their process and were not
    repeated) and count the same way. `estimated` is the number of calls without usage from the provider.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: MicroUSD = 0
    lost: int = 0
    pending: int = 0
    estimated: int = 0
    models: tuple[ModelUse, ...] = ()
    """The models that really answered, by kind of work (plans, tests, code, questions, the rest), fallbacks last."""

    @property
    def cached_share(self) -> float:
        """The share of prompt tokens that came from the provider's cache, between 0 and 1."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def dollars(cost: MicroUSD | float) -> str:
    """Money for programs: dollars with four digits and no sign."""
    return f"{cost / DOLLAR:.4f}"


_USD = re.compile(r"\$?([0-9]{1,6}(?:\.[0-9]{1,6})?|\.[0-9]{1,6})")


def usd(amount: MicroUSD) -> str:
    """Money for people: cents, with more digits only if cents would show nothing (`$0.0042`)."""
    digits = 2 if amount >= 10_000 or amount == 0 else 4
    return f"${amount / DOLLAR:.{digits}f}"


def parse_usd(text: str, *, current: MicroUSD = 0) -> MicroUSD:
    """Parse dollars as people write them (`5`, `0.50`, `$5`) to micro-dollars; `+3` is three more than `current`."""
    plain = text.strip()
    base = current if plain.startswith("+") else 0
    match = _USD.fullmatch(plain.removeprefix("+"))
    if match is None:
        raise AgentFixError(
            f"{text[:40]!r} is not an amount of dollars.",
            hint="Write an amount such as 5, 0.50 or +3 (at most 999999).",
        )
    return base + int(Decimal(match[1]) * DOLLAR)
