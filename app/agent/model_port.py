"""The port to a budgeted model, as the agent uses it."""

from typing import Protocol

from app.llm.base import ModelAnswer, ModelInfo, ModelRequest


class ModelPort(Protocol):
    """Implemented by `app.llm.budgeted_model.BudgetedModel`. Raises ModelError and BudgetError."""

    @property
    def info(self) -> ModelInfo: ...

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        """One answer; `key` is the same for the same call in a resumed job."""
        ...
