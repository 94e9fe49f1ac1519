"""What the agent needs of a metered model."""

from typing import Protocol

from app.llm.base import ModelAnswer, ModelInfo, ModelRequest


class ModelPort(Protocol):
    """`app.llm.budgeted_model.BudgetedModel`, as its callers see it. Raises ModelError and BudgetError."""

    @property
    def info(self) -> ModelInfo: ...

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer; `key` is the same for the same call in a resumed job."""
        ...
