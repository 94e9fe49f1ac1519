"""Amounts of money, and what a job's model calls cost."""

from app.core.model_names import WorkKind
from app.core.record import Record

MicroUSD = int
"""Money in millionths of a US dollar: sums stay exact."""


class ModelUse(Record):
    """How many of a job's answers came from one model for one kind of work, or in place of another model."""

    model: str
    kind: WorkKind = "code"
    answers: int = 1
    instead_of: str = ""
    because: str = ""


class Totals(Record):
    """What a job's model calls came to so far.

    `lost` calls were sent by a process that died before the answer was kept: they count with what the provider may
    have charged, the whole prompt, uncached. `pending` ones are in flight right now (or died with their process and
    were not repeated) and count the same way. `estimated` is how many calls have no usage from the provider itself.
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
    """Which models really answered: for plans, code, questions and the rest, those that stood in for others last."""

    @property
    def cached_share(self) -> float:
        """The part of the prompt tokens that came out of the provider's cache, between 0 and 1."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
