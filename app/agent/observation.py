"""Formats a command's output for the model: plain text, shortened, with the whole stored in a file."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.agent.output_filters import filter_output
from app.core.text import plain
from app.sandbox.base import CompletedCommand

LIMIT = 10_000
"""Characters of one observation."""
OVERSHOOT = 1.2
"""Texts up to this many times the limit stay whole: a small cut would cost the model a turn."""
MAX_LINE_LENGTH = 2_000
_HEAD_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """What the model sees of a text; `whole` is all of it if something was left out, else None."""

    text: str
    whole: str | None = None


def headline(done: CompletedCommand, limit: float) -> str:
    """How a command ended, in one line."""
    seconds = f"{done.seconds:.1f} s"
    if done.timed_out:
        return f"stopped at its limit of {limit:g} s; everything it had started was ended"
    if done.exit_code > 128:
        memory = ", perhaps out of memory" if done.exit_code == 137 else ""
        return f"exit {done.exit_code} (signal {done.exit_code - 128}{memory}), {seconds}"
    return f"exit {done.exit_code}, {seconds}"


def observe(output: bytes, *, limit: int, kept_in: str, dropped: int = 0) -> ShownOutput:
    """An observation of at most about `limit` characters; `kept_in` is where the whole will be stored.

    `dropped` bytes were lost between head and tail, beyond the sandbox's limit.
    """
    whole = plain(output.decode("utf-8", "replace")).rstrip("\n")
    if not whole.strip():
        return ShownOutput("(no output)")
    lines = whole.split("\n")
    small = "\n".join(_shorten(line) for line in filter_output(lines))
    shown = cut(small, limit, kept_in)
    if dropped:
        shown += f"\n(… the command wrote {dropped:,} bytes more than are kept; they are missing in the middle)"
    if shown == whole:
        return ShownOutput(whole)
    if kept_in not in shown:
        shown += f"\n(the whole output: {kept_in})"
    return ShownOutput(shown, whole)


def cut(text: str, limit: int, kept_in: str) -> str:
    """Head and tail of a text, cut at line ends, and between them what is missing and where to find it."""
    if len(text) <= limit * OVERSHOOT:
        return text
    lines = text.split("\n")
    head = _take(lines, int(limit * _HEAD_SHARE))
    tail = _take(lines[:head:-1], limit - int(limit * _HEAD_SHARE))
    if not head or not tail:  # a few huge lines: there is no line end to cut at
        first, last = text[: limit // 2], text[-limit // 2 :]
        return f"{first}\n{_gap(0, len(text) - limit, kept_in)}\n{last}"
    kept = lines[:head] + lines[len(lines) - tail :]
    missing = len(text) - len("\n".join(kept))
    gap = _gap(len(lines) - head - tail, missing, kept_in)
    return "\n".join([*lines[:head], gap, *lines[len(lines) - tail :]])


def _take(lines: Sequence[str], space: int) -> int:
    """How many of the first lines fit into `space` characters."""
    for count, line in enumerate(lines):
        space -= len(line) + 1
        if space < 0:
            return count
    return len(lines)


def _gap(lines: int, characters: int, kept_in: str) -> str:
    what = f"{lines:,} lines, {characters:,} characters" if lines else f"{characters:,} characters"
    return f"(… {what} left out; all of it is in {kept_in}: view or grep it)"


def _shorten(line: str) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line
    kept = MAX_LINE_LENGTH * 3 // 4
    return f"{line[:kept]} (… {len(line) - kept:,} more characters in this line)"
