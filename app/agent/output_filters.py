"""Rules that shorten output without losing information: repetitions, and lines that report success."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

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
