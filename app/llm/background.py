"""Blocking work in a thread: one that nobody waits for at exit, or one that is undone where its caller is cancelled."""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def background(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` now. The threads of `asyncio.to_thread` would be joined when the loop ends; this one is not.

    Whatever `work` raises is printed with its traceback, and is a RuntimeError to those who wait for the result.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # one who stops waiting must not cancel it for the others

    def finish() -> None:
        try:
            future.set_result(work())
        finally:
            if not future.done():
                failure = RuntimeError(f"{name} failed")
                failure.__cause__ = sys.exc_info()[1]  # told with it: the process may end before this thread prints
                future.set_exception(failure)

    threading.Thread(target=finish, name=name, daemon=True).start()
    return future


async def or_undone(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """The result of `work`. A thread cannot be cancelled: who is cancelled meanwhile waits for it, and what it did is
    undone before the cancellation goes on. `undo` is short: it is called in the loop.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))

    def take_back(done: "asyncio.Task[T]") -> None:
        if not done.cancelled() and done.exception() is None:
            undo(done.result())

    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(take_back)  # also where the wait is cancelled in turn
        await asyncio.wait({working})
        raise
