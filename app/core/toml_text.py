"""Reads TOML that anybody may have written."""

import tomllib
from typing import Any

_MAX_COST = 25_000_000


def toml_table(text: str) -> dict[str, Any]:
    """Raises ValueError if this cannot be read (TOMLDecodeError if it is no TOML), or only with very much memory."""
    # The parser keeps every beginning of a dotted key: 5,000 parts take 100 MB.
    if sum(line.count(".") ** 2 for line in text.splitlines()) > _MAX_COST:
        raise ValueError("its keys have too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
