"""Options of the whole suite."""

import re
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.containers.engines import end_engines

UNTESTED = re.compile(r"\bNOT (?:TESTED|checked)\b")
"""In the reason of a test that is skipped for want of a part."""


@pytest.fixture(autouse=True)
def github_as_published() -> Iterator[None]:
    """Fails a test in which a fake GitHub was asked, or answered, what GitHub's description does not know."""
    yield
    if judge := sys.modules.get("tests.support.openapi"):
        found, judge.VIOLATIONS[:] = judge.VIOLATIONS[:], []
        assert not found, "\n".join(found)


# A busy machine is no reason to fail.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also the long part of the kill matrix")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore SIGINT, and so would every process that a test starts and then interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "full: long; only with --full")


def pytest_unconfigure() -> None:
    end_engines()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be had, and so was not tested, is said at the end, once for each reason."""
    told = {_reason(report) for report in terminalreporter.stats.get("skipped", ())}
    for reason in sorted(reason for reason in told if UNTESTED.search(reason)):
        terminalreporter.write_line(reason, yellow=True, bold=True)


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
