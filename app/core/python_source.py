"""Parses Python that anybody may have written."""

import ast
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def parse_python(source: str | bytes) -> ast.Module | None:
    """The syntax tree; None for what this Python cannot parse, or only with too much depth."""
    return none_if_unparsable(lambda: ast.parse(source))


def none_if_unparsable(parse: Callable[[], T]) -> T | None:
    """The result of `parse`, which calls this Python's parser; None for text that it cannot parse.

    CPython 3.11 counts the nesting of all threads together, and raises SystemError if two get in each other's way: then
    it is tried again.
    """
    for _ in range(3):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return parse()
        except SystemError:
            continue
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
    return None
