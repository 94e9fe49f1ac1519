"""Reads frameworks' test reports into one form (test id → how it ended, and why), and finds a cause they share."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from xml.parsers import expat

from app.core.text import one_line, plain
from app.core.verification import Status
from app.sandbox.base import WORKSPACE

MAX_TESTS = 200_000
MAX_DEPTH = 100
MAX_ID = 400
MAX_TEXT = 4_000
_MOCHA = re.compile(rb'^\{\s*"stats":', re.MULTILINE)


class CaseResult(NamedTuple):
    """How one test ended. `text` is the framework's message for a failure, otherwise empty."""

    status: Status
    text: str = ""


Report = Mapping[str, CaseResult]
_RANK: Mapping[Status, int] = {"failed": 3, "error": 2, "passed": 1, "skipped": 0}


def collect(cases: Iterable[tuple[str, CaseResult]]) -> dict[str, CaseResult]:
    """Cases by id; of several with the same id (a test and its teardown) the worst counts."""
    report: dict[str, CaseResult] = {}
    for name, case in cases:
        key = test_id(name)
        if not key:  # pytest leaves a nameless case for the test that was interrupted
            continue
        known = report.get(key)
        if known is None or (_RANK[case.status], len(case.text)) > (_RANK[known.status], len(known.text)):
            report[key] = case
    return report


def test_id(name: str) -> str:
    """An id without control characters, of bounded length, with paths relative to the repository's top."""
    return one_line(name.replace(f"{WORKSPACE}/", ""))[:MAX_ID]


class _JUnitCase:
    __slots__ = ("file", "name", "owner", "status", "suites", "text")

    def __init__(self, attributes: Mapping[str, str], suites: tuple[str, ...]) -> None:
        self.name = attributes.get("name", "")
        self.owner = attributes.get("classname", "")
        self.file = attributes.get("file", "").removeprefix(f"{WORKSPACE}/")
        self.suites = suites
        self.status: Status = "passed"
        self.text = ""


class _ReportRefusedError(ValueError):
    """The report contains something that no honest framework writes."""


class _JUnitReader:
    """Streams JUnit XML through expat; document types and entities are refused before they can expand."""

    def __init__(self) -> None:
        self.cases: list[_JUnitCase] = []
        self._case: _JUnitCase | None = None
        self._suites: list[str] = []
        self._depth = 0

    def read(self, data: bytes) -> list[_JUnitCase]:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.Parse(data, True)
        return self.cases

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH or len(self.cases) > MAX_TESTS:
            raise _ReportRefusedError("the report is too deep or too long")
        if tag == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase":
            self._case = _JUnitCase(attributes, tuple(self._suites))
            self.cases.append(self._case)
        elif self._case is not None:
            self._outcome(self._case, tag, attributes)

    def _outcome(self, case: _JUnitCase, tag: str, attributes: Mapping[str, str]) -> None:
        outcomes: Mapping[str, Status] = {"failure": "failed", "error": "error", "skipped": "skipped"}
        if tag not in outcomes or case.status == "skipped":  # node marks a failing `todo` as both
            return
        if outcomes[tag] == "skipped" or _RANK[outcomes[tag]] > _RANK[case.status]:
            case.status = outcomes[tag]
        case.text += attributes.get("message", "") + "\n"

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testsuite" and self._suites:
            self._suites.pop()
        elif tag == "testcase":
            self._case = None

    def _characters(self, text: str) -> None:
        case = self._case
        if case is not None and case.status in ("failed", "error") and len(case.text) < MAX_TEXT:
            case.text += text

    def _refuse(self, *_: object) -> None:
        raise _ReportRefusedError("document types and entities are refused")


def read_junit(data: bytes) -> Report | None:
    """pytest (either family), `node --test`, and whatever else writes JUnit XML."""
    try:
        cases = _JUnitReader().read(data)
    except (expat.ExpatError, ValueError, LookupError):
        return None
    modules = {_module(case.file): case.file for case in cases if case.file.endswith(".py")}
    return collect((_junit_id(case, modules), CaseResult(case.status, shortened(case.text))) for case in cases)


def _junit_id(case: _JUnitCase, modules: Mapping[str, str]) -> str:
    if case.owner in ("", "test", "suite"):
        if _module(case.file) == case.name:  # pytest could not collect the file
            return case.file
        path = " > ".join([*case.suites, case.name]) if case.suites != ("pytest",) else case.name
        return f"{case.file}::{path}" if case.file else path
    # An inherited test names the file of its definition, so the module is looked up among all of the report's.
    parts = case.owner.split(".")
    for end in range(len(parts), 0, -1):
        file = modules.get(".".join(parts[:end]))
        if file:
            return "::".join([file, *parts[end:], case.name])
    return f"{case.owner}::{case.name}"


def read_bun(data: bytes) -> Report | None:
    """The JUnit XML of `bun test`: a suite for each file, and below it one for each `describe`."""
    try:
        cases = _JUnitReader().read(data)
    except (expat.ExpatError, ValueError, LookupError):
        return None
    titles = ((case, " > ".join([*case.suites[1:], case.name])) for case in cases)
    return collect((f"{case.file}::{title}", CaseResult(case.status, shortened(case.text))) for case, title in titles)


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def read_jest(data: bytes) -> Report | None:
    """The JSON that jest writes with `--json`, and vitest with its `json` reporter."""
    return _from_json(data, _jest_cases)


def _jest_cases(document: Any) -> Iterable[tuple[str, CaseResult]]:
    statuses: Mapping[str, Status] = {"passed": "passed", "failed": "failed"}
    for file in document["testResults"]:
        if not file["assertionResults"] and file["status"] == "failed":
            yield str(file["name"]), CaseResult("error", shortened(str(file.get("message", ""))))
        for result in file["assertionResults"]:
            title = " > ".join(map(str, [*result["ancestorTitles"], result["title"]]))
            text = "\n".join(map(str, result.get("failureMessages") or ()))
            yield f"{file['name']}::{title}", CaseResult(statuses.get(result["status"], "skipped"), shortened(text))


def read_mocha(data: bytes) -> Report | None:
    """The JSON of mocha's `json` reporter, which may be surrounded by what the tests print."""
    start = _MOCHA.search(data)
    return _from_json(data[start.start() :] if start else data, _mocha_cases)


def _mocha_cases(document: Any) -> Iterable[tuple[str, CaseResult]]:
    groups: tuple[tuple[str, Status], ...] = (("passes", "passed"), ("pending", "skipped"), ("failures", "failed"))
    for group, status in groups:
        for test in document[group]:
            error = test.get("err") or {}
            text = str(error.get("stack") or error.get("message") or "")
            yield f"{test.get('file') or ''}::{test['fullTitle']}", CaseResult(status, shortened(text))


def _from_json(data: bytes, cases: Callable[[Any], Iterable[tuple[str, CaseResult]]]) -> Report | None:
    try:
        document, _ = json.JSONDecoder().raw_decode(data.decode("utf-8-sig", "replace").lstrip())
        return collect(cases(document))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
_ERROR_LINE = re.compile(r"(?m)^\s*((?:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning|NotFound|Exit)\b|Error:).*)$")
_LIMIT_LINE = re.compile(r"(?m)^\[[\w ]+ the sandbox's [\w ]+\]$")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+|'[^']*/[^']*'")


def shared_cause(cases: Report) -> tuple[str, tuple[str, ...]]:
    """The cause as one line, and the failing tests that do not share it; ("", ()) if most have their own."""
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
    """The line of a failure's text that names the error: a limit of the sandbox, pytest's last `E` line, else the last
    that looks like one."""
    if limit := _LIMIT_LINE.search(text):
        return limit[0]
    lines = [line for line in _PYTEST_LINE.findall(text) if _ERROR_LINE.match(line)] or _ERROR_LINE.findall(text)
    if not lines:
        lines = [line for line in text.splitlines() if line.strip() and "A complete log of this run" not in line]
    return one_line(lines[-1])[:LENGTH] if lines else ""
