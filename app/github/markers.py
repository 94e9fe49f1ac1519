"""The hidden mark by which the bot finds again what it wrote: invisible to readers, one for each key."""

import re

_MARK = re.compile(r"<!-- agent-fix:job:[A-Za-z0-9._/-]+ -->")
MARKED = re.compile(r"<!-- agent-fix:job:(?P<key>[A-Za-z0-9._/-]+) -->\s*\Z")
"""The mark of a text that has one."""
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,120}")


def marker(key: str) -> str:
    if not _KEY.fullmatch(key) or "--" in key:
        raise ValueError(f"{key!r} is no key for a hidden mark")
    return f"<!-- agent-fix:job:{key} -->"


def marked(body: str, key: str) -> str:
    """The body with its mark at the end, and no other mark that a text might bring along."""
    return f"{_MARK.sub('', body).rstrip()}\n\n{marker(key)}"


def has_text(body: str, key: str) -> bool:
    """Whether this was written for the key: its mark is the last thing in it."""
    return body.rstrip().endswith(marker(key))
