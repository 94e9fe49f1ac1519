"""The table of families at the end of `make proof`."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each family: how many there are, how many ended as they have to, and the verdicts."""
    rows: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, ()):
            told = dict(report.user_properties)
            if "family" in told:
                row = rows.setdefault(str(told["family"]), Counter())
                row.update(
                    ["all", "as they have to" if outcome == "passed" else "not", str(told.get("verdict", "none"))]
                )
    columns = ("all", "as they have to", "broken", "unproved", "tested", "proved")
    if rows:
        terminalreporter.section("verdicts by family")
        terminalreporter.write_line(f"{'':24}" + "".join(f"{name:>16}" for name in columns))
        for family, row in sorted(rows.items()):
            terminalreporter.write_line(f"{family:24}" + "".join(f"{row[name]:>16}" for name in columns))
