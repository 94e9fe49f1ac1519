"""Runs inside pytest as a plugin: writes how each test ended to a file at once, so that those until a stop are known.

Stand-alone and standard library only, for Python 3.6 and newer. Each line is JSON, as `lines.js` writes it: process,
test, status, text. Where pytest-xdist is installed, tests run in as many processes as CI runs them in, at most one for
each processor.
"""

import json
import os
from typing import Any

NAME = "agent_fix_report"
MAX_TEXT = 4000
# What the tests start themselves, and pytest-xdist's own processes, are not asked for results.
REPORT = os.environ.pop("AGENT_FIX_REPORT", "")
PARALLEL = os.environ.pop("AGENT_FIX_PARALLEL", "").split()
OUTPUT = os.open(REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if REPORT else -1
# A test may replace these.
WRITE, DUMPS, PROCESS = os.write, json.dumps, os.getpid
OWN = os.getpid()
for variable, separator, own in (("PYTHONPATH", os.pathsep, REPORT + ".d"), ("PYTEST_ADDOPTS", " -p ", NAME)):
    os.environ[variable] = separator.join(word for word in os.environ.get(variable, "").split(separator) if word != own)
    if not os.environ[variable]:
        del os.environ[variable]


def send(name: str, status: str, text: str) -> None:
    if OUTPUT >= 0 and PROCESS() == OWN:  # a test may fork
        WRITE(OUTPUT, (DUMPS([OWN, name, status, text[-MAX_TEXT:]]) + "\n").encode())


def pytest_load_initial_conftests(early_config: Any, args: Any) -> None:
    if not (REPORT and PARALLEL and early_config.pluginmanager.hasplugin("xdist")):
        return
    number, *distribution = PARALLEL
    possible = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    args.append(f"-n{min(possible, int(number) if number.isdigit() else possible)}")
    args.extend(distribution)


def pytest_runtest_logreport(report: Any) -> None:
    error = report.outcome == "failed"
    if report.when == "call" or report.outcome != "passed":
        status = report.outcome if report.when == "call" or not error else "error"
        send(report.nodeid, status, str(report.longrepr) if error else "")


def pytest_collectreport(report: Any) -> None:
    if report.outcome == "failed":
        send(report.nodeid, "error", str(report.longrepr))
