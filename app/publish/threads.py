"""Replies in review threads when the work is done, and which threads the change addresses."""

import re

from app.jobs.context import ThreadRef
from app.publish.evidence import clip
from app.publish.markdown import code_span, quoted

MAX_DISTANCE = 5
"""Lines around a thread within which a change addresses it."""
_HUNK = re.compile(r"(?m)^@@ -(?P<start>\d+)(?:,(?P<count>\d+))? \+")


def touches(diff: str, thread: ThreadRef) -> bool:
    """True if a file's diff (without context) changes the thread's lines; False for a thread without lines."""
    if thread.end is None:
        return False
    first, last = (thread.start or thread.end) - MAX_DISTANCE, thread.end + MAX_DISTANCE
    for hunk in _HUNK.finditer(diff):
        start, count = int(hunk["start"]), int(hunk["count"] or 1)
        if start <= last and start + max(count, 1) - 1 >= first:
            return True
    return False


def thread_answer(thread: ThreadRef, *, commit: str, touched: bool, changed: bool, summary: str) -> str:
    """The reply in a thread. The full commit id becomes a link on GitHub."""
    where = code_span(thread.path) or "this file"
    if touched:
        head = f"Changed in {commit}."
    elif changed:
        head = (
            f"{commit} changes {where}, but nothing near these lines; please decide whether that resolves the thread."
        )
    else:
        head = f"{commit} does not change {where}; please decide whether that resolves the thread."
    words = quoted(clip(summary, 1_500)) if summary.strip() else ""
    return f"{head}\n\n{words}" if words else head


def sibling_answer(url: str) -> str:
    """The reply in a thread of a pull request that we cannot push to."""
    return f"agent-fix cannot push to this branch. The change is in a separate pull request: {url}"
