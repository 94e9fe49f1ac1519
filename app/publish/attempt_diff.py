"""Renders the change of an attempt that was not published, folded, for the job's last status comment."""

import re

from app.core.redaction import find_secrets
from app.publish.markdown import as_shown, details, fenced
from app.publish.plaintext import count

MAX_LINE = 1_000
TITLE = "Unpublished change from this attempt"
LEFT_OUT = "The diff is left out, because it contains what looks like a secret."
_OVERHEAD = 500
"""Characters for what stands around the lines, without a long fence."""


def attempt_diff(diff: str, room: int) -> str:
    """The change's diff in at most `room` characters; empty if there is none, or no room for it.

    It is left out if any line looks like a secret: a key has more lines than the one that is recognised. Lines that do
    not fit are counted.
    """
    text = as_shown(diff).strip("\n")
    if not text:
        return ""
    if find_secrets(text):
        return details(TITLE, LEFT_OUT)
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…" for line in text.split("\n")]
    shown, left = [], room - _OVERHEAD - 2 * max(map(len, re.findall("`+", text)), default=0)
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    if not shown:
        return ""
    more = len(lines) - len(shown)
    note = f"\n\n{count(more, 'more line')} not shown." if more else ""
    return details(TITLE, fenced("\n".join(shown), "diff") + note)
