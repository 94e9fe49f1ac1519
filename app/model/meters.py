"""A job's meters, one for each kind of work: one account, one budget, and breakers that the whole process shares."""

import asyncio
from collections.abc import Callable, Sequence

from app.job import Progress
from app.model.base import Model, Models, WorkKind
from app.model.breaker import Breakers
from app.model.budget import Ledger, Totals
from app.model.errors import ModelError
from app.model.meter import Meter


class Meters:
    """`make` makes a model by its name, at no cost; each name is made once."""

    def __init__(
        self,
        models: Models,
        make: Callable[[str], Model],
        ledger: Ledger,
        progress: Progress,
        *,
        fallbacks: Sequence[str] = (),
        breakers: Breakers | None = None,
    ) -> None:
        self._names = models
        self._make = make
        self.ledger = ledger
        self._progress = progress
        self._fallbacks = tuple(dict.fromkeys(fallbacks))
        self._breakers = breakers or Breakers()
        self._unpriced: set[str] = set()
        self._made: dict[str, Model] = {}
        self._meters: dict[WorkKind, Meter] = {}

    def of(self, kind: WorkKind) -> Meter:
        """The meter for this kind of work; the same one at each asking."""
        if kind not in self._meters:
            name = self._names.of(kind)
            self._meters[kind] = Meter(
                self._model(name),
                self.ledger,
                self._progress,
                kind=kind,
                fallbacks=[self._model(each) for each in self._fallbacks if each != name],
                breakers=self._breakers,
                unpriced=self._unpriced,
            )
        return self._meters[kind]

    def warm(self) -> None:
        self._model(self._names.code).warm()

    async def check(self, *kinds: WorkKind) -> None:
        """Refuse what cannot work for any of these kinds; a fallback that cannot is only warned of."""
        names = dict.fromkeys(self._names.of(kind) for kind in kinds)
        await asyncio.gather(*(self._model(name).check() for name in names))
        for name in self._fallbacks:
            try:
                if name not in names:
                    await self._model(name).check()
            except ModelError as error:
                self._progress.say("warning", f"The fallback will not be of help: {error.message}")

    def totals(self) -> Totals:
        return self.ledger.totals()

    def _model(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
