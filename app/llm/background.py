"""Runs blocking work in a thread: either one that exit does not wait for, or one that is undone on cancellation."""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def background(work: Callable[[], T], name: str) -> "Future[T]":
    """Start `work` now. Unlike the threads of `asyncio.to_thread`, this one is not joined when the loop ends.

    An error in `work` is printed with its traceback, and is a RuntimeError to those who wait for the result.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a waiter that gives up must not cancel it for the others

    def finish() -> None:
        try:
            future.set_result(work())
        finally:
            if not future.done():
                failure = RuntimeError(f"{name} failed")
                failure.__cause__ = sys.exc_info()[1]  # the process may end before this thread prints
                future.set_exception(failure)

    threading.Thread(target=finish, name=name, daemon=True).start()
    return future


async def run_or_undo(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """The result of `work`, or a cancellation after its effect was undone.

    A thread cannot be cancelled: a cancelled caller waits for it, and calls `undo` before the cancellation continues.
    `undo` must be short, because it is called in the loop.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))

    def take_back(done: "asyncio.Task[T]") -> None:
        if not done.cancelled() and done.exception() is None:
            undo(done.result())

    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(take_back)  # also if the wait is cancelled again
        await asyncio.wait({working})
        raise
