"""Reads the files in which test runners report, by their format: JUnit XML, trx, RSpec's JSON, our own lines, text."""

from collections.abc import Mapping
from itertools import islice
from typing import Any
from xml.parsers import expat

from app.core.verification import Status
from app.sandbox.base import WORKSPACE
from app.verify.report_text import report_in_output
from app.verify.reports import MAX_TESTS, MAX_TEXT, RANK, CaseResult, Report, collect, json_line, shortened

MAX_DEPTH = 100
NEXT_FILE = b"\f"
"""Stands between reports in one file; XML and JSON cannot contain it."""


def report_in_file(data: bytes, *, stopped: bool = False) -> Report | None:
    """The results in a report of any known format, or in several of them; None if there is none that can be read.

    `stopped`: the suite was, so that its report may end anywhere.
    """
    found = [report for part in data.split(NEXT_FILE) if (report := _of_one_file(part.strip(), stopped)) is not None]
    return collect((name, case) for report in found for name, case in report.items()) if found else None


def _of_one_file(data: bytes, stopped: bool) -> Report | None:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data[:1] == b"<":
        return read_xml(data)
    found = read_rspec(data) if data[:1] == b"{" else read_lines(data, stopped=stopped)
    return report_in_output(data, stopped=stopped) if found is None else found


class _XmlCase:
    __slots__ = ("file", "name", "owner", "status", "suites", "text")

    def __init__(self, attributes: Mapping[str, str], suites: tuple[str, ...]) -> None:
        self.name = attributes.get("name", "")
        self.owner = attributes.get("classname", "")
        self.file = attributes.get("file", "").removeprefix(f"{WORKSPACE}/").removeprefix("./")
        self.suites = suites
        # googletest and CTest have no element for a test that is switched off
        off = attributes.get("status") in ("notrun", "disabled")
        self.status: Status = _TRX.get(attributes.get("outcome", ""), "passed") if not off else "skipped"
        self.text = ""


_TRX: Mapping[str, Status] = {
    **dict.fromkeys(("Failed", "Timeout", "Aborted", "Error"), "failed"),
    **dict.fromkeys(("NotExecuted", "Inconclusive", "NotRunnable", "Disconnected", "Pending"), "skipped"),
}
"""What .NET's test platform calls the ways in which a test may end; all others have passed."""


class _XmlReader:
    """Streams JUnit XML or trx through expat; document types and entities are refused before they can expand."""

    def __init__(self) -> None:
        self.cases: list[_XmlCase] = []
        self.root = ""
        self.titled = ""
        self._case: _XmlCase | None = None
        self._suites: list[str] = []
        self._depth = 0

    def read(self, data: bytes) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.Parse(data, True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH or len(self.cases) > MAX_TESTS:
            raise ValueError("the report is too deep or too long")
        if self._depth == 1:
            self.root, self.titled = tag, attributes.get("name", "")
        if tag == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif tag in ("testcase", "UnitTestResult"):
            self._case = _XmlCase(
                {**attributes, "name": attributes.get("testName") or attributes.get("name", "")}, tuple(self._suites)
            )
            self.cases.append(self._case)
        elif self._case is not None:
            self._case.text += "\n" if self._case.text else ""
            self._outcome(self._case, tag, attributes)

    def _outcome(self, case: _XmlCase, tag: str, attributes: Mapping[str, str]) -> None:
        outcomes: Mapping[str, Status] = {"failure": "failed", "error": "error", "skipped": "skipped"}
        if tag not in outcomes or case.status == "skipped":  # node marks a failing `todo` as both
            return
        if outcomes[tag] == "skipped" or RANK[outcomes[tag]] > RANK[case.status]:
            case.status = outcomes[tag]
        case.text += attributes.get("message", "") + "\n"

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testsuite" and self._suites:
            self._suites.pop()
        elif tag in ("testcase", "UnitTestResult"):
            self._case = None

    def _characters(self, text: str) -> None:
        case = self._case
        if case is not None and case.status in ("failed", "error") and len(case.text) < MAX_TEXT:
            case.text += text

    def _refuse(self, *_: object) -> None:
        raise ValueError("document types and entities are refused")


def read_xml(data: bytes) -> Report | None:
    """JUnit XML, whoever writes it, and .NET's trx; None if it is neither."""
    reader = _XmlReader()
    try:
        reader.read(data)
    except (expat.ExpatError, ValueError, LookupError):
        return None
    if reader.root not in ("testsuites", "testsuite", "TestRun"):
        return None
    modules = {_module(case.file): case.file for case in reader.cases if case.file.endswith(".py")}
    name_of = _bun_id if reader.titled == "bun test" else _xml_id
    return collect((name_of(case, modules), CaseResult(case.status, shortened(case.text))) for case in reader.cases)


def _xml_id(case: _XmlCase, modules: Mapping[str, str]) -> str:
    if case.owner in ("", "test", "suite"):
        if _module(case.file) == case.name:  # pytest could not collect the file
            return case.file
        path = " > ".join([*case.suites, case.name]) if case.suites != ("pytest",) else case.name
        return f"{case.file}::{path}" if case.file else path
    if case.owner == case.name:  # CTest
        return case.name
    # An inherited test names the file of its definition, so the module is looked up among all of the report's.
    parts = case.owner.split(".")
    for end in range(len(parts), 0, -1):
        file = modules.get(".".join(parts[:end]))
        if file:
            return "::".join([file, *parts[end:], case.name])
    return f"{case.owner}::{case.name}"


def _bun_id(case: _XmlCase, _modules: Mapping[str, str]) -> str:
    """`bun test` has a suite for each file, and below it one for each `describe`."""
    return f"{case.file}::{' > '.join([*case.suites[1:], case.name])}"


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def read_lines(data: bytes, *, stopped: bool = False) -> Report | None:
    """What our own reporters write: a line of JSON for each test that ended, with the process that executed it.

    The tests of a process that did not finish count only if it was `stopped`. Lines of any other form are not
    ours.
    """
    found: list[tuple[int, str, CaseResult]] = []
    ended: set[int] = set()
    for line in islice(data.splitlines(), MAX_TESTS):
        match json_line(line):
            case [int(process)]:
                ended.add(process)
            case [int(process), str(name), "passed" | "failed" | "error" | "skipped" as word, str(text)]:
                status: Status = word
                failed = status in ("failed", "error")
                found.append((process, name, CaseResult(status, shortened(text) if failed else "")))
    report = collect((name, case) for process, name, case in found if stopped or process in ended)
    return report if report or ended else None


def read_rspec(data: bytes) -> Report | None:
    """What RSpec writes with `--format json`."""
    document = json_line(data)
    examples = document.get("examples") if isinstance(document, dict) else None
    if not isinstance(examples, list):
        return None
    cases = [_example(each) for each in examples[:MAX_TESTS] if isinstance(each, dict)]
    summary = document.get("summary")
    if isinstance(summary, dict) and summary.get("errors_outside_of_examples_count"):
        messages = document.get("messages")
        text = "\n".join(map(str, messages)) if isinstance(messages, list) else ""
        cases.append(("errors outside of examples", CaseResult("error", shortened(text))))
    return collect(cases)


def _example(found: Mapping[str, Any]) -> tuple[str, CaseResult]:
    statuses: Mapping[object, Status] = {"passed": "passed", "pending": "skipped"}
    name = f"{str(found.get('file_path', '')).removeprefix('./')}::{found.get('full_description', '')}"
    error = found.get("exception")
    text = f"{error.get('class')}: {error.get('message')}" if isinstance(error, dict) else ""
    status = statuses.get(found.get("status"), "failed")
    return name, CaseResult(status, shortened(text) if status == "failed" else "")
