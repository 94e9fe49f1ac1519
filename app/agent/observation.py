"""Formats a command's output for the model: plain text, shortened, with the whole stored in a file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from app.core.text import plain
from app.sandbox.base import CompletedCommand

_REPEATS = 4
_BLOCK_REPEATS, _MAX_BLOCK_LENGTH = 3, 12
"""How often a block of lines must repeat to be shown once, and its maximum length (for a recursion's frames)."""
_COUNTING = 6
"""Minimum number of consecutive lines that differ only in numbers and count percents or parts of a whole."""

_MAX_LINES = 60_000
"""Beyond this, only head and tail are shown, because filtering would take seconds."""

_PASSING = re.compile(
    r"""
    \S+::.*\sPASSED(\s+\[\s*\d+%\])?          # pytest -v
    | \[gw\d+\]\s\[\s*\d+%\]\sPASSED\s.*      # pytest-xdist -v
    | (\S+\.py\s)?[.]+(\s+\[\s*\d+%\])?       # pytest, dots
    | test\w*\s\(\S+\)(\s.*)?\s\.\.\.\sok     # unittest -v
    | test\s\S.*\s\.\.\.\sok                  # cargo test
    | \s*---\sPASS:\s.* | ===\s+(RUN|PAUSE|CONT)\s.* | ok\s+\t\S+\t.* | \?\s+\t\S+\t\[no\stest\sfiles\]   # go test
    | \s*ok\s\d+\s-\s.* | \s*\#\sSubtest:\s.* | \s*(---|\.\.\.|duration_ms:.*|type:\s'(test|suite)')      # TAP of node
    | \s*[✔✓√]\s.*                            # node --test, mocha, vitest, jest
    | PASS\s\S+\.[cm]?[jt]sx?(\s\(.*\))?      # jest
    | \[\s+(RUN|OK)\s+\]\s.*                  # googletest
    | \s*\d+/\d+\sTest\s+\#\d+:.*\sPassed\s.* # ctest
    | \[INFO\]\sTests\srun:\s\d+,\sFailures:\s0,\sErrors:\s0,.*   # maven
    """,
    re.VERBOSE,
)
_PROGRESS = re.compile(
    r"""
    (Collecting|Requirement\salready\ssatisfied:|Obtaining)\s.*
    | \s*(Using\scached|Downloading|Downloaded|Preparing\smetadata|Installing\sbuild\sdependencies|Fetching)\b.*
    | \s*(Getting\srequirements\sto\sbuild|Building\swheels?|Created\swheel|Stored\sin\sdirectory).*
    | \s*[━╸╺─]{5,}.*                         # pip's bars
    | npm\s(http|timing|sill|verb)\b.* | npm\s(WARN|warn)\sdeprecated\s.*
    | \s*(Compiling|Checking|Fresh|Adding|Locking)\s\S+\sv\d.*   # cargo
    | go:\s(downloading|finding|extracting)\s.*
    | (Get|Hit|Ign):\d+\s.* | (Selecting|Preparing\sto|Unpacking|Setting\sup)\s.*   # apt
    | .*\[\s*\d+/\d+\]\s(Building|Compiling|Linking)\s.*         # ninja
    | (<s>\s)?\[webpack\.Progress\]\s.* | \d+%\s(setup|building|sealing|emitting|optimi\S+|after\s\S+)\b.*   # webpack
    | .*\d+%\|[^|]*\|.*                       # tqdm
    """,
    re.VERBOSE,
)
_CACHES = re.compile(
    r".*(?:^|[\s/])(?:__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.git/(?:objects|refs|hooks|logs)|\.tox|\.nox"
    r"|\.cache|\.gradle|\.parcel-cache)(?:/.*|:?)"
)
_INSTALLED = re.compile(r".*(?:^|[\s/])(?:node_modules|site-packages|vendor/bundle|target/(?:debug|release))/.*")
_RUNTIME_FRAME = re.compile(
    r"\s+at\s(?:.*\(?(?:node:internal/|internal/modules/)|(?:java\.base/|jdk\.internal\.|sun\.reflect\.|org\.junit\."
    r"|org\.gradle\.|org\.apache\.maven\.)).*"
)
_DIGITS = re.compile(r"\d+")
_COUNTED = re.compile(r"\d\s?%|\d+/\d+")


class _Kind(NamedTuple):
    """Lines that may be replaced by their number, in runs of `at_least`."""

    name: str
    pattern: re.Pattern[str]
    at_least: int


_KINDS = (
    _Kind("lines on passing tests", _PASSING, 5),
    _Kind("lines of package progress", _PROGRESS, 4),
    _Kind("paths in caches", _CACHES, 5),
    _Kind("paths of installed packages", _INSTALLED, 40),
    _Kind("frames of the runtime", _RUNTIME_FRAME, 3),
)


def filter_output(lines: Sequence[str]) -> list[str]:
    """The lines, with repetitions and reports of success reduced to one line each."""
    once = list(_without_repeats(lines))
    if len(once) > _MAX_LINES:
        return once
    return list(_without_counting(_without_blocks(list(_without_kinds(_joined(once))))))


def _joined(lines: Sequence[str]) -> Iterable[str]:
    """A passing test of unittest -v with a docstring takes two lines; join them."""
    if not any(line.endswith(" ... ok") for line in lines):
        return lines
    text = "\n".join(lines)
    return re.sub(r"(?m)^(test\w* \([\w.]+\))\n(?!test)(.* \.\.\. ok)$", "\\1 \\2", text).split("\n")


def _without_repeats(lines: Iterable[str]) -> Iterator[str]:
    for line, run in groupby(lines):
        count = sum(1 for _ in run)
        if count < _REPEATS:
            yield from [line] * count
        else:
            yield line
            yield f"(… the line above {count:,} times)"


def _without_kinds(lines: Iterable[str]) -> Iterator[str]:
    for kind, run in groupby(lines, key=_kind_of):
        block = list(run)
        if kind is not None and len(block) >= kind.at_least:
            yield f"(… {len(block):,} {kind.name})"
        else:
            yield from block


@lru_cache(maxsize=10_000)
def _kind_of(line: str) -> _Kind | None:
    return next((kind for kind in _KINDS if len(line) < 500 and kind.pattern.fullmatch(line)), None)


def _without_blocks(lines: Sequence[str]) -> Iterator[str]:
    """Show repeated blocks of lines, such as the frames of a recursion, once."""
    at = 0
    while at < len(lines):
        size, times = _repeated_block(lines, at)
        if times < _BLOCK_REPEATS:
            yield lines[at]
            at += 1
        else:
            yield from lines[at : at + size]
            yield f"(… the {size} lines above {times:,} times)"
            at += size * times


def _repeated_block(lines: Sequence[str], at: int) -> tuple[int, int]:
    for size in range(2, _MAX_BLOCK_LENGTH + 1):
        if at + size >= len(lines) or lines[at] != lines[at + size]:
            continue
        block, times = lines[at : at + size], 1
        while lines[at + size * times : at + size * (times + 1)] == block:
            times += 1
        if times >= _BLOCK_REPEATS:
            return size, times
    return 1, 1


def _without_counting(lines: Iterable[str]) -> Iterator[str]:
    """Of lines that count percents or parts of a whole, keep the first and the last."""
    for key, run in groupby(lines, key=_without_digits):
        block = list(run)
        if key is None or len(block) < _COUNTING:
            yield from block
        else:
            yield block[0]
            yield f"(… {len(block) - 2:,} lines like these, but for the numbers)"
            yield block[-1]


def _without_digits(line: str) -> str | None:
    return _DIGITS.sub("0", line) if len(line) < 200 and _COUNTED.search(line) else None


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
