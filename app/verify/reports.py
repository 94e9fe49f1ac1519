"""Test results in one form (test id → how it ended, and why), and the cause that most failures share."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from app.core.text import one_line, plain
from app.core.verification import Status
from app.sandbox.base import WORKSPACE

MAX_TESTS = 200_000
MAX_ID = 400
MAX_TEXT = 4_000


class CaseResult(NamedTuple):
    """How one test ended. `text` is the framework's message for a failure, otherwise empty.

    `plain` is False if other things than the test's own statements decided that: an expected exception, a plugin, a
    file that could not be loaded.
    """

    status: Status
    text: str = ""
    plain: bool = True

    @property
    def failed(self) -> bool:
        """True for an error as well."""
        return self.status in ("failed", "error")


Outcomes = tuple[tuple[str, CaseResult], ...]
"""The ids and results of the tests that one id stands for."""
Report = Mapping[str, CaseResult]
RANK: Mapping[Status, int] = {"failed": 3, "error": 2, "passed": 1, "skipped": 0}
"""Of several results with the same id, the one with the highest rank counts."""


def collect(cases: Iterable[tuple[str, CaseResult]]) -> dict[str, CaseResult]:
    """Cases by id; of several with the same id (a test and its teardown) the worst counts."""
    report: dict[str, CaseResult] = {}
    for name, case in cases:
        key = plain_id(name)
        if not key:  # pytest leaves a nameless case for the test that was interrupted
            continue
        known = report.get(key)
        if known is None or (RANK[case.status], len(case.text)) > (RANK[known.status], len(known.text)):
            report[key] = case
    return report


def plain_id(name: str) -> str:
    """An id without control characters, of bounded length, with paths relative to the repository's top."""
    return one_line(name.replace(f"{WORKSPACE}/", ""))[:MAX_ID]


def json_line(line: bytes | str) -> Any:
    """None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def shortened(text: str) -> str:
    """Head and tail of a test's output."""
    text = plain(text).strip()
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT // 2] + "\n…\n" + text[-MAX_TEXT // 2 :]


MOST = 0.8
"""Share of the failing tests that must fail in the same way."""
LEAST = 5
"""Fewer failing tests say nothing of the set-up."""
LENGTH = 300
_PYTEST_LINE = re.compile(r"(?m)^E\s{2,}(\S.*)$")
_ERROR_LINE = re.compile(
    r"""(?mx) ^\s* (?:\S+:\d+:in\ .*?:\ )?  # Ruby names the place first
    ( (?:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning|NotFound|Exit)\b | Error:).*
    | (?:Exception\ in\ thread\ "[^"]*" | Caused\ by:)\ .+
    | .+\([A-Z]\w*(?:::\w+)*(?:Error|NotFound)\)
    | CMake\ Error.*(?:\n+\ \ .+)?
    | \*\*\ \([A-Z][\w.]*\)\ .+
    | (?:PHP\ )?(?:Fatal|Parse)\ error:.+
    | (?:fatal\ |\S+:\d+:(?:\d+:)?\ )?error(?:\[\w+\])?:\ .+
    ) $"""
)
_FRAME = re.compile(r"\s*(?:at |from |\.\.\. \d+ more)")
_LIMIT_LINE = re.compile(r"(?m)^\[[\w ]+ the sandbox's [\w ]+\]$")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+|'[^']*/[^']*'")


def shared_cause(cases: Report) -> tuple[str, tuple[str, ...]]:
    """The cause as one line, and the failing tests that do not share it; ("", ()) if most have their own."""
    causes = {name: cause_of(case.text) for name, case in cases.items() if case.failed}
    ran = sum(1 for case in cases.values() if case.status != "skipped")
    if len(causes) < LEAST or 2 * len(causes) < ran:
        return "", ()
    kinds = {name: _VARYING.sub("…", cause) for name, cause in causes.items()}
    kind, number = Counter(kinds.values()).most_common(1)[0]
    if not kind or number < MOST * len(causes):
        return "", ()
    shown = next(cause for name, cause in causes.items() if kinds[name] == kind)
    return shown, tuple(sorted(name for name in causes if kinds[name] != kind))


def cause_of(text: str) -> str:
    """The line of a failure's text that names the error: a limit of the sandbox, pytest's last `E` line, else the last
    that looks like one."""
    if limit := _LIMIT_LINE.search(text):
        return limit[0]
    lines = [line for line in _PYTEST_LINE.findall(text) if _ERROR_LINE.match(line)] or _ERROR_LINE.findall(text)
    if not lines:
        shown = [line for line in text.splitlines() if line.strip() and "A complete log of this run" not in line]
        lines = [line for line in shown if not _FRAME.match(line)] or shown
    return one_line(lines[-1])[:LENGTH] if lines else ""
