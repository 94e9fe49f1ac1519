"""Hidden markers, one for each key, by which the bot finds its own texts again."""

import re

_MARK = re.compile(r"<!-- agent-fix:job:[A-Za-z0-9._/-]+ -->")
MARKED = re.compile(r"<!-- agent-fix:job:(?P<key>[A-Za-z0-9._/-]+) -->\s*\Z")
"""The marker at the end of a text."""
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,120}")


def marker(key: str) -> str:
    if not _KEY.fullmatch(key) or "--" in key:
        raise ValueError(f"{key!r} cannot be the key of a marker")
    return f"<!-- agent-fix:job:{key} -->"


def with_marker(body: str, key: str) -> str:
    """The body with this marker at the end and without any other marker."""
    return f"{_MARK.sub('', body).rstrip()}\n\n{marker(key)}"


def has_text(body: str, key: str) -> bool:
    """True if the text ends with the key's marker."""
    return body.rstrip().endswith(marker(key))
