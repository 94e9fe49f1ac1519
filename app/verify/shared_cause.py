"""The one cause for which most tests of a suite fail, so that it is said once and taken for no fault of a change."""

import re
from collections import Counter

from app.core.text import one_line
from app.verify.reports import Report

MOST = 0.8
"""Share of the failing tests that must fail in the same way."""
LEAST = 5
"""Fewer failing tests say nothing of the set-up."""
LENGTH = 300
_PYTEST_LINE = re.compile(r"(?m)^E\s{2,}(\S.*)$")
_ERROR_LINE = re.compile(r"(?m)^\s*((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning|NotFound|Exit)\b.*)$")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+|'[^']*/[^']*'")


def shared_cause(cases: Report) -> tuple[str, tuple[str, ...]]:
    """The cause as one line, and the failing tests that do not share it; ("", ()) where most have their own."""
    causes = {name: cause_of(case.text) for name, case in cases.items() if case.status in ("failed", "error")}
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
    """The line of a failure's text that names the error: pytest's last `E` line, else the last that looks like one."""
    lines = [line for line in _PYTEST_LINE.findall(text) if _ERROR_LINE.match(line)] or _ERROR_LINE.findall(text)
    if not lines:
        lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1])[:LENGTH] if lines else ""
