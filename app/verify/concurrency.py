"""Runs tasks in parallel, and leaves none running when one fails."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def gather_all(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results in order. If one fails, the others are cancelled and awaited before its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def gather_pair(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """The results of two tasks of different types."""
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await asyncio.gather(first, second)
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
