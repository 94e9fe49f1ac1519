"""A command's output as the model sees it: plain text, small at birth, never losing what was left out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from app.sandbox.base import Completed
from app.text import plain

LIMIT = 10_000
"""Characters of one observation."""
OVERSHOOT = 1.2
"""Texts up to this many times the limit stay whole: a cut that saves little costs the model a turn."""
LONGEST_LINE = 2_000
_HEAD_SHARE = 0.4
_REPEATS = 4

_PASSING = re.compile(
    r"""
    \S+::.*\sPASSED(\s+\[\s*\d+%\])?          # pytest -v
    | \[gw\d+\]\s\[\s*\d+%\]\sPASSED\s.*      # pytest-xdist -v
    | test\w*\s\(\S+\)\s\.\.\.\sok            # unittest -v
    | test\s\S.*\s\.\.\.\sok                  # cargo test
    | \s*---\sPASS:\s.* | ===\s+(RUN|PAUSE|CONT)\s.*   # go test -v
    | \s*ok\s\d+\s-\s.*                       # TAP
    | \s*[✔✓]\s.*                             # node --test, mocha, vitest
    """,
    re.VERBOSE,
)
_PROGRESS = re.compile(
    r"""
    (Collecting|Requirement\salready\ssatisfied:|Obtaining)\s.*
    | \s*(Using\scached|Downloading|Downloaded|Preparing\smetadata|Installing\sbuild\sdependencies|Fetching)\b.*
    | \s*(Getting\srequirements\sto\sbuild|Building\swheel|Created\swheel|Stored\sin\sdirectory).*
    | npm\s(http|timing|sill|verb)\b.*
    | \s*(Compiling|Checking|Fresh|Adding|Locking)\s\S+\sv\d.*   # cargo
    | (Get|Hit|Ign):\d+\s.* | (Selecting|Preparing\sto|Unpacking|Setting\sup)\s.*   # apt
    """,
    re.VERBOSE,
)


class _Kind(NamedTuple):
    """Lines that may be told by their number alone, in runs of `at_least`."""

    name: str
    pattern: re.Pattern[str]
    at_least: int


_KINDS = (_Kind("passing tests", _PASSING, 5), _Kind("lines of package progress", _PROGRESS, 4))


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model sees of a text; `whole` is all of it where something was left out, else None."""

    text: str
    whole: str | None = None


def headline(done: Completed, limit: float) -> str:
    """How a command ended, in one line."""
    seconds = f"{done.seconds:.1f} s"
    if done.timed_out:
        return f"stopped at its limit of {limit:g} s; everything it had started was ended"
    if done.exit_code > 128:
        memory = ", perhaps out of memory" if done.exit_code == 137 else ""
        return f"exit {done.exit_code} (signal {done.exit_code - 128}{memory}), {seconds}"
    return f"exit {done.exit_code}, {seconds}"


def observe(output: bytes, *, limit: int, kept_in: str, dropped: int = 0) -> Shown:
    """An observation of at most about `limit` characters; `kept_in` is where the whole will be found.

    `dropped` bytes were already lost between head and tail, beyond what a sandbox keeps.
    """
    whole = plain(output.decode("utf-8", "replace")).rstrip("\n")
    if not whole.strip():
        return Shown("(no output)")
    lines = whole.split("\n")
    small = "\n".join(_shorten(line) for line in _collapse(lines))
    shown = cut(small, limit, kept_in)
    if dropped:
        shown += f"\n(… the command wrote {dropped:,} bytes more than are kept; they are missing in the middle)"
    if shown == whole:
        return Shown(whole)
    if kept_in not in shown:
        shown += f"\n(the whole output: {kept_in})"
    return Shown(shown, whole)


def cut(text: str, limit: int, kept_in: str) -> str:
    """Head and tail of a text at line borders, and between them how much is missing and where it is."""
    if len(text) <= limit * OVERSHOOT:
        return text
    lines = text.split("\n")
    head = _take(lines, int(limit * _HEAD_SHARE))
    tail = _take(lines[:head:-1], limit - int(limit * _HEAD_SHARE))
    if not head or not tail:  # a few huge lines: there is no border to cut at
        first, last = text[: limit // 2], text[-limit // 2 :]
        return f"{first}\n{_gap(0, len(text) - limit, kept_in)}\n{last}"
    kept = lines[:head] + lines[len(lines) - tail :]
    missing = len(text) - len("\n".join(kept))
    gap = _gap(len(lines) - head - tail, missing, kept_in)
    return "\n".join([*lines[:head], gap, *lines[len(lines) - tail :]])


def _take(lines: Sequence[str], room: int) -> int:
    """How many of the first lines fit into `room` characters."""
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return count
    return len(lines)


def _gap(lines: int, characters: int, kept_in: str) -> str:
    what = f"{lines:,} lines, {characters:,} characters" if lines else f"{characters:,} characters"
    return f"(… {what} left out; all of it is in {kept_in}: view or grep it)"


def _shorten(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    kept = LONGEST_LINE * 3 // 4
    return f"{line[:kept]} (… {len(line) - kept:,} more characters in this line)"


def _collapse(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with what repeats itself or says only that all is well told in one line."""
    for kind, run in groupby(lines, key=_kind_of):
        block = list(run)
        if kind is not None and len(block) >= kind.at_least:
            yield f"(… {len(block):,} {kind.name})"
        else:
            yield from _without_repeats(block)


def _kind_of(line: str) -> _Kind | None:
    return next((kind for kind in _KINDS if kind.pattern.fullmatch(line)), None)


def _without_repeats(lines: Sequence[str]) -> Iterator[str]:
    for line, run in groupby(lines):
        count = sum(1 for _ in run)
        if count < _REPEATS:
            yield from [line] * count
        else:
            yield line
            yield f"(… the line above {count:,} times)"
