"""What an endpoint sends compressed is not unpacked without end."""

import gzip
from typing import Any

import httpx
import pytest
from httpx import _decoders

from app.llm.litellm import MAX_UNPACKED, bound_decoders


def decoders() -> dict[str, Any]:
    made = dict(_decoders.SUPPORTED_DECODERS)
    bound_decoders(made)
    return made


def test_compressed_answers_have_a_limit() -> None:
    packed = gzip.compress(bytes(MAX_UNPACKED + 2**20), compresslevel=1)
    decoder = decoders()["gzip"]()
    parts = (decoder.decode(packed[start : start + 65_536]) for start in range(0, len(packed), 65_536))
    with pytest.raises(httpx.DecodingError, match="unpacks to more than 128 MiB"):
        sum(map(len, parts))


def test_ordinary_answers_are_unpacked_as_before() -> None:
    decoder = decoders()["gzip"]()
    assert decoder.decode(gzip.compress(b"{}")) + decoder.flush() == b"{}"
    assert decoders()["identity"] is _decoders.SUPPORTED_DECODERS["identity"]
