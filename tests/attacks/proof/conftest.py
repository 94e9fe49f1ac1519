"""The table of families at the end of `make proof`."""

from collections import Counter

import pytest

COLUMNS = ("cases", "broken", "unproved", "tested", "proved")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each family: how many there are, their verdicts, and the mean of seconds of a verification."""
    rows: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            told = dict(report.user_properties)
            for family in (str(told["family"]), "all") if "family" in told else ():
                rows.setdefault(family, Counter()).update(["cases", str(told["verdict"])])
                seconds[family] = seconds.get(family, 0.0) + float(str(told["seconds"]))
    if rows:
        terminalreporter.section("verdicts by family")
        terminalreporter.write_line("".join(f"| {name} " for name in ("family", *COLUMNS, "seconds")) + "|")
        for family in sorted(rows, key=lambda name: (name == "all", name)):
            row = rows[family]
            figures = (*(str(row[name] or "") for name in COLUMNS), f"{seconds[family] / row['cases']:.1f}")
            terminalreporter.write_line("".join(f"| {text} " for text in (family, *figures)) + "|")
