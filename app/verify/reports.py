"""Reads test reports and output into one form (test id → how it ended, and why), and finds a cause that they share."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple
from xml.parsers import expat

from app.core.text import one_line, plain
from app.core.verification import Status
from app.sandbox.base import WORKSPACE

MAX_TESTS = 200_000
MAX_DEPTH = 100
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


class _JUnitCase:
    __slots__ = ("file", "name", "owner", "status", "suites", "text")

    def __init__(self, attributes: Mapping[str, str], suites: tuple[str, ...]) -> None:
        self.name = attributes.get("name", "")
        self.owner = attributes.get("classname", "")
        self.file = attributes.get("file", "").removeprefix(f"{WORKSPACE}/")
        self.suites = suites
        self.status: Status = "passed"
        self.text = ""


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
            raise ValueError("the report is too deep or too long")
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
        if outcomes[tag] == "skipped" or RANK[outcomes[tag]] > RANK[case.status]:
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
        raise ValueError("document types and entities are refused")


def _junit_cases(data: bytes) -> list[_JUnitCase] | None:
    try:
        return _JUnitReader().read(data)
    except (expat.ExpatError, ValueError, LookupError):
        return None


def read_junit(data: bytes) -> Report | None:
    """pytest (either family), `node --test`, and whatever else writes JUnit XML."""
    if (cases := _junit_cases(data)) is None:
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
    if (cases := _junit_cases(data)) is None:
        return None
    titles = ((case, " > ".join([*case.suites[1:], case.name])) for case in cases)
    return collect((f"{case.file}::{title}", CaseResult(case.status, shortened(case.text))) for case, title in titles)


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
_ERROR_LINE = re.compile(r"(?m)^\s*((?:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning|NotFound|Exit)\b|Error:).*)$")
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
        lines = [line for line in text.splitlines() if line.strip() and "A complete log of this run" not in line]
    return one_line(lines[-1])[:LENGTH] if lines else ""


_CARGO_SECTION = re.compile(r"^\s*(?:Running (?:unittests )?(?P<path>\S+)|Doc-tests (?P<crate>\S+))")
_CARGO_TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<status>ok|FAILED|ignored)\b")
_CARGO_LINE = re.compile(r" \(line \d+\)")
_CARGO_FAILURE = re.compile(r"^---- (?P<name>.+?) stdout ----$")

_UNITTEST_START = re.compile(r"^(?P<method>[\w.]+) \((?P<owner>[\w.<>]+)\)(?P<rest>.*)$")
_UNITTEST_END = re.compile(r"(?:^|\s|\.\.\. )(?P<status>ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")
_UNITTEST_BLOCK = re.compile(r"^(?P<kind>ERROR|FAIL|UNEXPECTED SUCCESS): (?P<method>[\w.]+) \((?P<owner>[\w.<>]+)\)")
_UNITTEST_STATUS: Mapping[str, Status] = {
    "ok": "passed",
    "expected failure": "passed",
    "FAIL": "failed",
    "unexpected success": "failed",
    "ERROR": "error",
}


class GoEvents:
    """The events of one `go test -json`, which may be mixed with lines that are not JSON.

    `statuses` and `texts` are by package, or by `package::Test`; `begun` are tests.
    """

    def __init__(self, data: bytes) -> None:
        self.statuses: dict[str, list[Status]] = {}
        self.texts: dict[str, str] = {}
        self.begun: list[str] = []
        self.empty = True
        for line in data.splitlines():
            if event := go_event(line):
                self._read(event)

    def _read(self, event: Mapping[str, Any]) -> None:
        self.empty = False
        package, test, action = str(event.get("Package", "")), str(event.get("Test", "")), str(event.get("Action"))
        name = f"{package}::{test}" if test else package
        if action == "build-output":  # of "package", "package [package.test]" or "package_test [package.test]"
            path, _, tested = str(event.get("ImportPath", "")).partition(" [")
            name = tested.removesuffix(".test]") or path
        if action in ("output", "build-output"):
            self.texts[name] = (self.texts.get(name, "") + str(event.get("Output", "")))[-4 * MAX_TEXT :]
        elif action == "run":
            self.begun.append(name)
        statuses: Mapping[str, Status] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
        if action in statuses:
            self.statuses.setdefault(name, []).append(statuses[action])

    def cases(self) -> Iterator[tuple[str, CaseResult]]:
        failed = [name for name, found in self.statuses.items() if "failed" in found]
        owners = {name.partition("::")[0] for name in failed if "::" in name}
        for name, found in self.statuses.items():
            text = shortened(self.texts.get(name, "")) if found[-1] == "failed" else ""
            if "::" in name:
                yield name, CaseResult(found[-1], text)
            elif found[-1] == "failed" and name not in owners:  # it did not build, or it crashed
                yield name, CaseResult("error", text)


def read_go(data: bytes) -> Report | None:
    """The events of `go test -json`."""
    events = GoEvents(data)
    return None if events.empty else collect(events.cases())


def go_output(data: bytes) -> bytes:
    """What the same tests would have printed without `-json`."""
    shown: list[str] = []
    for line in data.splitlines():
        event = go_event(line)
        if event is None:
            shown.append(line.decode(errors="replace") + "\n")
        elif event.get("Action") in ("output", "build-output"):
            shown.append(str(event.get("Output", "")))
    return "".join(shown).encode()


def go_event(line: bytes) -> dict[str, Any] | None:
    """An event of `go test -json`; None for any other line."""
    event = json_line(line) if line.startswith(b"{") else None
    return event if isinstance(event, dict) and "Action" in event else None


def read_cargo(data: bytes) -> Report | None:
    """`cargo test`: a section for each binary, `test name ... ok` for each test. Line numbers of doc tests move."""
    cases: list[tuple[str, CaseResult]] = []
    section, failure, texts = "", "", dict[str, list[str]]()
    for line in data.decode(errors="replace").splitlines():
        if header := _CARGO_SECTION.match(line):
            section, failure = header["path"] or f"doc {header['crate']}", ""
        elif found := _CARGO_TEST.match(line):
            statuses: Mapping[str, Status] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
            cases.append((_cargo_id(section, found["name"]), CaseResult(statuses[found["status"]])))
        elif block := _CARGO_FAILURE.match(line):
            failure = _cargo_id(section, block["name"])
        elif line == "failures:":
            failure = ""
        elif failure:
            texts.setdefault(failure, []).append(line)
    if not cases:
        return None
    return collect((name, CaseResult(case.status, "\n".join(texts.get(name, ()))[:MAX_TEXT])) for name, case in cases)


def _cargo_id(section: str, name: str) -> str:
    return f"{section}::{_CARGO_LINE.sub('', name)}"


def read_unittest(data: bytes, *, stopped: bool = False) -> Report | None:
    """`python -m unittest -v`; the blocks of failures at the end win over the progress lines.

    A suite that was stopped has the progress lines only.
    """
    lines = data.decode(errors="replace").splitlines()
    if not stopped and not any(line.startswith("Ran ") and " test" in line for line in lines):
        return None
    return collect([*_unittest_progress(lines), *_unittest_blocks(lines)])


def _unittest_progress(lines: list[str]) -> Iterator[tuple[str, CaseResult]]:
    current = ""
    for line in lines:
        if line.startswith(("=====", "-----")):
            return
        start = _UNITTEST_START.match(line)  # a subtest's line is indented; its block at the end has the result
        if start:
            current = _unittest_id(start["method"], start["owner"])
        ended = _UNITTEST_END.search(line)
        if ended and current:
            yield current, CaseResult(_UNITTEST_STATUS.get(ended["status"], "skipped"))
            current = ""


def _unittest_blocks(lines: list[str]) -> Iterator[tuple[str, CaseResult]]:
    name, status, text = "", "failed", list[str]()
    for line in [*lines, "====="]:
        if line.startswith("====="):
            if name:
                message = "\n".join(text).strip("-\n ")[:MAX_TEXT]
                yield name, CaseResult("error" if status == "ERROR" else "failed", message)
            name, text = "", []
        elif block := _UNITTEST_BLOCK.match(line):
            name, status = _unittest_id(block["method"], block["owner"]), block["kind"]
        elif name:
            text.append(line)


def _unittest_id(method: str, owner: str) -> str:
    """`module.Class.method`, whether or not this Python repeats the method in the brackets (3.11 and later do)."""
    return owner if owner.endswith(f".{method}") else f"{owner}.{method}"


_TAP_LINE = re.compile(
    r"^(?P<failed>not )?ok\b(?: +(?P<number>\d+))?(?: +-)? *(?P<name>.*?)"
    r"(?:# *(?:(?P<directive>SKIP|TODO)\b|time=).*?)?(?P<opens>\{)?$",
    re.IGNORECASE,
)
_TAP_INDENT = "    "
_TAP_SUMMARY = re.compile(r"# (?:tests|pass|fail|ok|duration|skip|todo|time|Subtest:)")


@dataclass(slots=True)
class _TapPoint:
    """A line of TAP with the lines of text below it, and its subtests."""

    line: re.Match[str]
    title: str = ""
    text: str = ""
    inside: list["_TapPoint"] = field(default_factory=list)

    @property
    def name(self) -> str:
        own = self.line["name"].strip() or self.line["number"] or ""
        return " > ".join(filter(None, (self.title, own)))


def read_tap(data: bytes) -> Report | None:
    """TAP as tape, AVA, QUnit and node-tap print it, with tape's `# name` of the test in front.

    Of nested tests (node-tap, whose outermost are the files) the second level is reported.
    """
    numbers: dict[str, int] = {}
    cases: list[tuple[str, CaseResult]] = []
    points = list(_tap_points(data.decode(errors="replace").splitlines()))
    for point in islice(_tap_leaves(points), MAX_TESTS):
        numbers[point.name] = numbers.get(point.name, 0) + 1
        name = point.name if numbers[point.name] == 1 else f"{point.name} ({numbers[point.name]})"
        status: Status = "skipped" if point.line["directive"] else "failed" if point.line["failed"] else "passed"
        cases.append((name, CaseResult(status, point.text if status == "failed" else "")))
    return collect(cases) if cases else None


def _tap_leaves(points: Iterable[_TapPoint]) -> Iterator[_TapPoint]:
    """The second level if there is one; a file that fails although its tests pass is a failure of its own."""
    for point in points:
        for inner in point.inside:
            inner.title = point.name
            yield inner
        if not point.inside or (point.line["failed"] and not any(inner.line["failed"] for inner in point.inside)):
            yield point


def _tap_points(lines: Iterable[str]) -> Iterator[_TapPoint]:
    title, nested = "", False
    inside: list[_TapPoint] = []
    opened: _TapPoint | None = None  # its subtests follow in braces, instead of standing before it
    last: _TapPoint | None = None
    deeper = ""
    for line in lines:
        nested = nested or line.lstrip().startswith("# Subtest:")
        if nested and line.startswith(_TAP_INDENT) and (found := _TAP_LINE.match(line.removeprefix(_TAP_INDENT))):
            last = _TapPoint(found, text=deeper)
            inside.append(last)
            deeper = ""
        elif nested and line.startswith(2 * _TAP_INDENT):
            deeper += line + "\n" if len(deeper) < MAX_TEXT else ""
        elif found := _TAP_LINE.match(line):
            last = _TapPoint(found, title, inside=[] if found["opens"] else inside)
            inside = []
            opened = last if found["opens"] else None
            yield last
        elif line == "}" and opened is not None:
            opened.inside, inside, opened = inside, [], None
        elif line.startswith("# ") and not _TAP_SUMMARY.match(line):
            title = line[2:].strip()
        elif last is not None and line.startswith("  ") and len(last.text) < MAX_TEXT:
            last.text += line + "\n"


_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_UVU_DOTS = "•✘ "
_UVU_COUNT = re.compile(r"\(\d+ / \d+\)$")
_UVU_FAILURE = re.compile(r"^ +FAIL +(?P<name>.+)$")
_UVU_SKIPPED = re.compile(r"(?m)^ +Skipped: +(\d{1,9})$")


def read_uvu(data: bytes) -> Report | None:
    """uvu names the tests that fail, and counts the others of each file and suite."""
    text = _COLOUR.sub("", data.decode(errors="replace"))
    cases: list[tuple[str, CaseResult]] = []
    file, failure = "", ""
    texts: dict[str, str] = {}
    for line in text.partition("\n  Total: ")[0].splitlines():
        if _UVU_COUNT.search(line):
            before = line.rpartition("(")[0]
            named = before.rstrip(_UVU_DOTS)
            suite = " > ".join(filter(None, (file, named.strip())))
            passed = before.count("•", len(named))
            cases += [(f"{suite} > {at + 1}", CaseResult("passed")) for at in range(passed)]
            failure = ""
        elif found := _UVU_FAILURE.match(line):
            failure = f"{file} > {found['name'].strip()}"
            texts[failure] = ""
        elif line and not line.startswith(" "):
            file = line.strip()
        elif failure and len(texts[failure]) < MAX_TEXT:
            texts[failure] += line + "\n"
    skipped = _UVU_SKIPPED.search(text)
    cases += [(name, CaseResult("failed", reason)) for name, reason in texts.items()]
    cases += [
        (f"skipped {at + 1}", CaseResult("skipped")) for at in range(min(int(skipped[1]) if skipped else 0, MAX_TESTS))
    ]
    return collect(cases[:MAX_TESTS]) if cases and "\n  Total: " in text else None
