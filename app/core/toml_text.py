"""Reads TOML that anybody may have written."""

import tomllib
from typing import Any

_MAX_COST = 25_000_000


def toml_table(text: str) -> dict[str, Any]:
    """Raises ValueError if this cannot be read (TOMLDecodeError if it is not TOML), or only with very much memory."""
    lines = text.split("\n")  # a quoted key may contain all else that Python takes for the end of a line
    dots = [line.count(".") for line in lines]
    # The parser keeps every beginning of a dotted key (5,000 parts take 100 MB), and each key goes through all tables
    # that contain its own.
    depth = max((count for line, count in zip(lines, dots, strict=True) if line.lstrip().startswith("[")), default=0)
    if sum(count**2 for count in dots) + depth * (sum(dots) + len(dots)) > _MAX_COST:
        raise ValueError("its keys have too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
