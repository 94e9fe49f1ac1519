"""What is said in a review's threads once the work is done, and which of them it answers."""

import re

from app.jobs.context import ThreadRef
from app.publish.evidence import clip
from app.publish.markdown import code_span, quoted

NEAR = 5
"""Lines around a thread within which a change answers it."""
_HUNK = re.compile(r"(?m)^@@ -(?P<start>\d+)(?:,(?P<count>\d+))? \+")


def touches(diff: str, thread: ThreadRef) -> bool:
    """Whether a file's diff (without context) changes what the thread is about. Without lines nobody can tell."""
    if thread.end is None:
        return False
    first, last = (thread.start or thread.end) - NEAR, thread.end + NEAR
    for hunk in _HUNK.finditer(diff):
        start, count = int(hunk["start"]), int(hunk["count"] or 1)
        if start <= last and start + max(count, 1) - 1 >= first:
            return True
    return False


def thread_answer(thread: ThreadRef, *, commit: str, touched: bool, changed: bool, summary: str) -> str:
    """What is said in a thread. The commit's whole id is a link wherever a forge shows it."""
    where = code_span(thread.path) or "this file"
    if touched:
        head = f"Changed in {commit}."
    elif changed:
        head = f"{commit} changes {where}, but nothing near these lines; the thread stays open for you to judge."
    else:
        head = f"{commit} does not change {where}; the thread stays open for you to judge."
    words = quoted(clip(summary, 1_500)) if summary.strip() else ""
    return f"{head}\n\n{words}" if words else head


def sibling_answer(url: str) -> str:
    """In a thread of a pull request whose branch is not ours to push to."""
    return f"This branch is not mine to push to. The change is in a pull request beside it: {url}"
