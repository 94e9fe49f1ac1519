"""A job's models, one per kind of work, with one budget and breakers that the whole process shares."""

import asyncio
from collections.abc import Callable, Sequence

from app.core.job import Progress
from app.core.model_names import ModelNames, WorkKind
from app.core.money import Totals
from app.llm.base import Model
from app.llm.budgeted_model import BudgetedModel
from app.llm.circuit_breaker import CircuitBreakers
from app.llm.errors import ModelError
from app.llm.ledger import Ledger


class JobModels:
    """`make` creates a model by its name, at no cost; each name is created once."""

    def __init__(
        self,
        models: ModelNames,
        make: Callable[[str], Model],
        ledger: Ledger,
        progress: Progress,
        *,
        fallbacks: Sequence[str] = (),
        breakers: CircuitBreakers | None = None,
    ) -> None:
        self._names = models
        self._make = make
        self.ledger = ledger
        self._progress = progress
        self._fallbacks = tuple(dict.fromkeys(fallbacks))
        self._breakers = breakers or CircuitBreakers()
        self._unpriced: set[str] = set()
        self._made: dict[str, Model] = {}
        self._job_models: dict[WorkKind, BudgetedModel] = {}

    def of(self, kind: WorkKind) -> BudgetedModel:
        """The model for this kind of work; always the same object."""
        if kind not in self._job_models:
            name = self._names.of(kind)
            self._job_models[kind] = BudgetedModel(
                self._model(name),
                self.ledger,
                self._progress,
                kind=kind,
                fallbacks=[self._model(each) for each in self._fallbacks if each != name],
                breakers=self._breakers,
                unpriced=self._unpriced,
            )
        return self._job_models[kind]

    def warm(self) -> None:
        self._model(self._names.code).warm()

    async def check(self, *kinds: WorkKind) -> None:
        """Refuse models that cannot work for any of these kinds; for a fallback that cannot, only warn."""
        names = dict.fromkeys(self._names.of(kind) for kind in kinds)
        await asyncio.gather(*(self._model(name).check() for name in names))
        for name in self._fallbacks:
            try:
                if name not in names:
                    await self._model(name).check()
            except ModelError as error:
                self._progress.report("warning", f"The fallback cannot be used: {error.message}")

    def totals(self) -> Totals:
        return self.ledger.totals()

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
