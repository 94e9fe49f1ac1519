"""What the agent needs of a metered model."""

from typing import Protocol

from app.model.base import Answer, ModelInfo, Request


class Asks(Protocol):
    """`app.model.meter.Meter`, as its callers see it. Raises ModelError and BudgetError."""

    @property
    def info(self) -> ModelInfo: ...

    async def ask(self, key: str, request: Request) -> Answer:
        """One answer; `key` is the same for the same call in a resumed job."""
        ...
