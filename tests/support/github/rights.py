"""What GitHub demands of a token for a request, by the product's own table of calls."""

import re
from collections.abc import Mapping
from functools import cache

from app.github.calls import CALLS, Call

_NUMBER = re.compile(r"\{\w*(?:_id|_number)\}")
_SEVERAL_SEGMENTS = re.compile(r"\{(?:path|ref|branch)\}")
_NAME = re.compile(r"\{\w+\}")


def call_of(method: str, path: str, text: str = "") -> Call | None:
    """The row of this request; None for one that the product does not make."""
    if text:
        return next((call for call in CALLS if call.text == text), None)
    found = [call for call in CALLS if not call.text and call.method == method and _pattern(call.path).fullmatch(path)]
    return max(found, key=lambda call: len(_NAME.sub("", call.path)), default=None)


def allows(permissions: Mapping[str, str], call: Call) -> bool:
    """Whether a token with these permissions may do this. Every token of an App may read metadata."""
    held = {"metadata": "read", **permissions}
    return all(held.get(name) in {access, "write"} for name, access in call.needs.items())


@cache
def _pattern(template: str) -> re.Pattern[str]:
    shape = _NUMBER.sub(r"[0-9]+", re.escape(template).replace(r"\{", "{").replace(r"\}", "}"))
    return re.compile(_NAME.sub("[^/]+", _SEVERAL_SEGMENTS.sub(".+", shape)))
