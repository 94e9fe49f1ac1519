"""The one way to ask a model: what fits is checked and money reserved before a call, and usage booked after."""

import asyncio

from app.job import Progress
from app.model.base import Answer, Model, ModelInfo, Request, Usage
from app.model.budget import Ledger, Totals
from app.model.errors import ModelError
from app.model.prices import cost_of, worst_case

SMALLEST_ANSWER = 1_024
"""Output tokens below which an answer is not worth asking for."""


class Meter:
    """Asks a model within a budget. Journals nothing: `ask` is the work of one durable step of the caller."""

    def __init__(self, model: Model, ledger: Ledger, progress: Progress) -> None:
        self._model = model
        self._ledger = ledger
        self._progress = progress

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    def count(self, request: Request) -> int:
        return self._model.count(request)

    def totals(self) -> Totals:
        return self._ledger.totals()

    async def ask(self, key: str, request: Request) -> Answer:
        """One answer to `request`; `key` is the name of the durable step this is the work of."""
        prompt = self._model.count(request)
        info = self._model.info
        room = min(request.max_tokens, info.max_output, info.context_window - prompt)
        if room < min(SMALLEST_ANSWER, request.max_tokens):
            raise ModelError("The request does not fit the model's window.", kind="shrink", reason="does_not_fit")
        request = request.model_copy(update={"max_tokens": room})
        if_lost = Usage(prompt_tokens=prompt, estimated=True)
        if_lost = if_lost.model_copy(update={"cost": cost_of(info, if_lost)})
        await asyncio.to_thread(self._ledger.reserve, key, worst_case(info, prompt, room), if_lost=if_lost)
        try:
            answer = await self._model.complete(request, key=key, on_text=lambda text: self._progress.say("text", text))
        except ModelError as error:
            self._ledger.book(key, error.usage or Usage())
            raise
        await asyncio.to_thread(self._ledger.book, key, answer.usage)
        return answer
