"""Renders the change of an attempt that was not published, folded, for the job's last status comment."""

from app.core.redaction import MASK, find_secrets
from app.publish.markdown import details, fenced
from app.publish.plaintext import count

MAX_LINE = 1_000
_OVERHEAD = 500
"""Characters for what stands around the lines."""


def attempt_diff(diff: str, room: int) -> str:
    """The change's diff in at most `room` characters; empty if there is none, or no room for it.

    What looks like a secret is masked by whole lines. Left-out lines are counted.
    """
    secret = {found.line for found in find_secrets(diff)}
    lines = [
        f"{line[:1]}{MASK}" if number in secret else _shortened(line)
        for number, line in enumerate(diff.rstrip("\n").split("\n"), 1)
    ]
    shown, left = [], room - _OVERHEAD
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        shown.append(line)
    if not diff.strip() or not shown:
        return ""
    more = len(lines) - len(shown)
    note = f"\n\n{count(more, 'more line')} not shown." if more else ""
    text = fenced("\n".join(shown), "diff")
    return details("Unpublished change from this attempt", f"{text}{note}")


def _shortened(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
