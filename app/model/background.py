"""Blocking work in a thread that nobody waits for at exit, so that Ctrl-C ends an import or a connection at once."""

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
