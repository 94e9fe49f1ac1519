"""Stores deliveries that arrive together in one commit: while one commit runs, the next batch collects."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from app.jobs.inbox import Delivery, StoreOutcome

MAX_TOGETHER: Final = 64

_Waiting = tuple[Delivery, "asyncio.Future[StoreOutcome]"]


class BatchWriter:
    """The async interface of an inbox: `put` returns after the commit with the delivery, or raises its InboxError."""

    def __init__(self, store: Callable[[Sequence[Delivery]], list[StoreOutcome]]) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def put(self, delivery: Delivery) -> StoreOutcome:
        future: asyncio.Future[StoreOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
            storing = asyncio.to_thread(self._store, [delivery for delivery, _ in batch])
            (outcome,) = await asyncio.gather(storing, return_exceptions=True)
            for number, (_, future) in enumerate(batch):
                if future.done():  # the sender may have disconnected
                    continue
                if isinstance(outcome, BaseException):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[number])
