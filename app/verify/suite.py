"""Runs the suite once in a sandbox, with per-test results if its framework gives them."""

import re
import secrets
from typing import NamedTuple

from app.core.verification import Execution, Status, SuiteResult, TestCount
from app.sandbox.base import Sandbox
from app.verify.execution import CommandResult, as_inside, excerpt, run
from app.verify.frameworks import SuiteCommand, files_command, narrow, report_command, report_environment
from app.verify.missing_programs import missing_packages, missing_program
from app.verify.report_files import report_in_file
from app.verify.report_text import go_output, report_in_output
from app.verify.reports import Report, shared_cause

REPORT_CHUNK = 4 * 1024**2
MAX_REPORT = 64 * 1024**2

# Some old versions and settings reject the request for a report; then the suite is run as it is.
_REPORT_REFUSED = re.compile(
    r"unrecognized arguments:.*--junitxml|Error importing plugin \"agent_fix_report"
    r"|not allowed in NODE_OPTIONS|must match the number of specified"
    r"|unknown (?:option|argument).*reporter",
    re.IGNORECASE,
)
_NOT_INSTALLED = re.compile(
    r"No module named '?(?P<module>pytest|unittest|django)\b"
    r"|(?i:missing script:? \"?test)|could not determine executable to run"
)
_ASKED_FOR = re.compile(r"(?m)^\S*python[\d.]*: No module named (?P<module>[\w.-]+)")
"""What the interpreter says of `python -m NAME`; an import that fails is told otherwise."""


class SuiteMeasurement(NamedTuple):
    """A suite's result, the framework's message for each test, and the output."""

    result: SuiteResult
    cases: Report | None
    output: bytes


async def measure(
    sandbox: Sandbox,
    suite: SuiteCommand,
    *,
    timeout: float,
    only: tuple[str, ...] | None = None,
    parallel: bool = False,
) -> SuiteMeasurement:
    """Run the suite, or only some of its tests (ids or test files), for at most `timeout` seconds.

    `parallel`: in several processes if CI does so. Raises ValueError if the command cannot be narrowed to `only`.
    """
    shown = suite.command if only is None else narrow(suite, only)
    report = f"/tmp/report-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
    environment = report_environment(suite, report)
    command = report_command(suite, report, only, parallel=parallel)
    ran = await run(sandbox, command, timeout=timeout, env=environment)
    if _REPORT_REFUSED.search(ran.output[-20_000:].decode(errors="replace")):
        ran = await run(sandbox, shown, timeout=timeout)
        return SuiteMeasurement(result_of(ran, None, shown, timeout), None, ran.output)
    if collecting := files_command(suite, report):
        await sandbox.exec(["sh", "-c", collecting], timeout=60.0)
    content = await read_file(sandbox, report)
    if suite.framework == "go" and content:
        output = go_output(content) + ran.output
        ran = CommandResult(ran.execution.model_copy(update={"excerpt": excerpt(output)}), output, ran.dropped)
    cases = _cases(suite, ran, content)
    return SuiteMeasurement(result_of(ran, cases, shown, timeout), cases, ran.output)


def _cases(suite: SuiteCommand, ran: CommandResult, content: bytes) -> Report | None:
    """What the suite wrote and, if nobody knows what it starts or it wrote nothing, what it printed."""
    stopped = ran.execution.timed_out
    written = report_in_file(content, stopped=stopped) if content else None
    # Lines are missing from the middle of an output that was too long: no results are better than half of them.
    if ran.dropped or (written and suite.framework != "other"):
        return written
    printed = report_in_output(ran.output, stopped=stopped)
    if not (written and printed):
        return printed or written
    # CTest prints what it starts: the programs of googletest, or each of their tests.
    return {**{name: case for name, case in printed.items() if name.replace(".", "::", 1) not in written}, **written}


def result_of(ran: CommandResult, cases: Report | None, shown: str, timeout: float) -> SuiteResult:
    execution = ran.execution.model_copy(update={"command": shown})
    if cases and not execution.excerpt:
        execution = execution.model_copy(update={"excerpt": excerpt(_failures(cases).encode())})
    if cases is None:
        return SuiteResult(execution=execution, partial=_partial(execution, None, timeout))
    return _with_cases(execution, cases, timeout)


def _with_cases(execution: Execution, cases: Report, timeout: float) -> SuiteResult:
    count = count_of(cases)
    cause, others = shared_cause(cases)
    return SuiteResult(
        execution=execution,
        count=count,
        failing=tuple(sorted(name for name, case in cases.items() if case.failed)),
        passing=tuple(sorted(name for name, case in cases.items() if case.status == "passed")),
        partial=_partial(execution, count, timeout),
        shared_cause=cause,
        other_failures=others,
    )


def count_of(cases: Report) -> TestCount:
    numbers: dict[Status, int] = {"passed": 0, "failed": 0, "error": 0, "skipped": 0}
    for case in cases.values():
        numbers[case.status] += 1
    return TestCount(passed=numbers["passed"], failed=numbers["failed"] + numbers["error"], skipped=numbers["skipped"])


def could_not_start(execution: Execution) -> str:
    """Why a suite command never reached a test, in a sentence; empty if it did."""
    if execution.timed_out or execution.exit_code == 0:
        return ""
    output = execution.excerpt[-EXCERPT_LOOKED_AT:]
    found = _NOT_INSTALLED.search(output)
    for match in filter(None, (found, _ASKED_FOR.search(output))):
        if match["module"]:
            return f"{match['module']} is not installed in the sandbox."
    if missing := missing_program(execution.exit_code, output) or missing_packages(execution.excerpt):
        return missing
    if execution.exit_code in (126, 127):
        return f"The command could not be started (exit code {execution.exit_code})."
    return "The command does not exist in the project." if found else ""


EXCERPT_LOOKED_AT = 2_000


def _partial(execution: Execution, count: TestCount | None, timeout: float) -> str:
    if not execution.timed_out:
        return ""
    if count is None or count == TestCount():
        return f"The suite was stopped at its limit of {timeout:g} s, before it reported any result."
    done = count.passed + count.failed + count.skipped
    stopped = f"The suite was stopped at its limit of {timeout:g} s"
    return f"{stopped}; {done} tests had finished by then; the others were not run."


def _failures(cases: Report) -> str:
    failing = [f"{name}\n{case.text}\n" for name, case in cases.items() if case.failed]
    return "\n".join(failing) or f"{len(cases)} tests, none failing"


async def read_file(sandbox: Sandbox, path: str) -> bytes:
    """A report's bytes, read in chunks below the output limit; empty if there is none or it is too long."""
    content = bytearray()
    while len(content) < MAX_REPORT:
        script = 'test -f "$1" && tail -c "+$2" "$1" | head -c "$3"'
        argv = ["sh", "-c", script, "sh", path, str(len(content) + 1), str(REPORT_CHUNK)]
        piece = await sandbox.exec(argv, timeout=60.0, separate_stderr=True)
        if piece.dropped:
            return b""
        content += piece.output
        if len(piece.output) < REPORT_CHUNK:
            return await as_inside(sandbox, bytes(content))
    return b""
