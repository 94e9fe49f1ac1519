"""Reads what test runners print, by its format: `go test`, cargo, unittest, TAP, CTest, Ruby's two, ExUnit, uvu."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from app.core.verification import Status
from app.verify.reports import MAX_TESTS, MAX_TEXT, CaseResult, Report, collect, json_line, shortened

_COLOUR = re.compile(rb"\x1b\[[\d;]*m")


def report_in_output(data: bytes, *, stopped: bool = False) -> Report | None:
    """The results in what a command printed; None if there are none. Of several formats the one with most tests.

    `stopped`: the suite was, so that a summary at the end may be missing.
    """
    data = _COLOUR.sub(b"", data)
    read_summarised: tuple[Callable[[bytes], Report | None], ...] = (
        read_go, read_go_text, read_cargo, read_tap, read_ctest, read_minitest, read_test_unit, read_exunit, read_uvu
    )  # fmt: skip
    found = [read_unittest(data, stopped=stopped), *(read(data) for read in read_summarised)]
    return max((each for each in found if each is not None), key=len, default=None)


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


_CARGO_SECTION = re.compile(r"^\s*(?:Running (?:unittests )?(?P<path>\S+)|Doc-tests (?P<crate>\S+))")
_CARGO_TEST = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<status>ok|FAILED|ignored)\b")
_CARGO_LINE = re.compile(r" \(line \d+\)")
_CARGO_FAILURE = re.compile(r"^---- (?P<name>.+?) stdout ----$")


def read_cargo(data: bytes) -> Report | None:
    """`cargo test`: a section for each binary, `test name ... ok` for each test. Line numbers of doc tests move."""
    cases: list[tuple[str, CaseResult]] = []
    section, failure, texts = "", "", dict[str, list[str]]()
    for line in _lines(data):
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


def read_unittest(data: bytes, *, stopped: bool = False) -> Report | None:
    """`python -m unittest -v`; the blocks of failures at the end win over the progress lines.

    A suite that was stopped has the progress lines only.
    """
    lines = _lines(data)
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
_TAP_HEADER = re.compile(rb"(?m)^(?:TAP version \d+|1\.\.\d+)")
"""Some words at the start of a line are `ok` in any output."""
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
    """TAP (versions 12 to 14) as tape, AVA, QUnit, node-tap, bats have it, with tape's `# name` of the test in front.

    Of nested tests (node-tap, whose outermost are the files) the second level is reported.
    """
    if not _TAP_HEADER.search(data):
        return None
    numbers: dict[str, int] = {}
    cases: list[tuple[str, CaseResult]] = []
    points = list(_tap_points(_lines(data)))
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
        elif last is not None and line.startswith("  ") and len(last.text) < MAX_TEXT and " 1.." not in line:
            last.text += line + "\n"


_UVU_DOTS = "•✘ "
_UVU_COUNT = re.compile(r"\(\d+ / \d+\)$")
_UVU_FAILURE = re.compile(r"^ +FAIL +(?P<name>.+)$")
_UVU_SKIPPED = re.compile(r"(?m)^ +Skipped: +(\d{1,9})$")


def read_uvu(data: bytes) -> Report | None:
    """uvu names the tests that fail, and counts the others of each file and suite."""
    text = data.decode(errors="replace")
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


_GO_TEST = re.compile(r"^ *--- (?P<status>PASS|FAIL|SKIP): (?P<name>\S+) \([\d.]+s\)$")
_GO_PACKAGE = re.compile(r"^(?P<status>ok|FAIL|\?) *\t(?P<package>\S+)(?:\t| \[)")


def read_go_text(data: bytes) -> Report | None:
    """`go test -v`: a line for each test, and then one for its package."""
    statuses: Mapping[str, Status] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    cases: list[tuple[str, CaseResult]] = []
    tests: list[tuple[str, Status]] = []
    for line in islice(_lines(data), MAX_TESTS):
        if found := _GO_TEST.match(line):
            tests.append((found["name"], statuses[found["status"]]))
        elif package := _GO_PACKAGE.match(line):
            cases += [(f"{package['package']}::{name}", CaseResult(status)) for name, status in tests]
            if package["status"] == "FAIL" and not any(status == "failed" for _, status in tests):
                cases.append((package["package"], CaseResult("error", line)))
            tests = []
    return collect(cases) if cases else None


_CTEST = re.compile(r"^ *\d+/\d+ Test +#\d+: (?P<name>.+?) \.{2,}(?P<how>[ *\w].*?) +[\d.]+ sec\b")


def read_ctest(data: bytes) -> Report | None:
    """A line of CTest for each test, with its output below it if that is asked for."""
    cases: list[tuple[str, CaseResult]] = []
    name, text = "", list[str]()
    for line in [*islice(_lines(data), MAX_TESTS), ""]:
        if found := _CTEST.match(line):
            name, how, text = found["name"], found["how"], []
            skipped = "Skipped" in how or "Disabled" in how
            status: Status = "passed" if "Passed" in how else "skipped" if skipped else "failed"
            cases.append((name, CaseResult(status)))
        elif re.match(r" *(?:Start +\d+:|\d+% tests passed)", line):
            name = ""
        elif name and cases[-1][1].failed and len(text) < MAX_TEXT // 10:
            text.append(line)
            cases[-1] = (name, CaseResult("failed", shortened("\n".join(text))))
    return collect(cases) if cases else None


_MINITEST = re.compile(r"^(?P<name>\S.*#.+) = \d+\.\d+ s = (?P<how>[.FESRI])$")
_MINITEST_BLOCK = re.compile(r"^ *\d+\) (?:Failure|Error|Skipped):$")
_RUBY: Mapping[str, Status] = {".": "passed", "F": "failed", "E": "error"}


def read_minitest(data: bytes) -> Report | None:
    """`-v`: a line for each test; the failures at the end."""
    lines = list(islice(_lines(data), MAX_TESTS))
    found = [each for line in lines if (each := _MINITEST.match(line))]
    texts: dict[str, str] = {}
    for at, line in enumerate(lines):
        if _MINITEST_BLOCK.match(line) and at + 1 < len(lines):
            end = next((n for n in range(at + 1, min(at + 100, len(lines))) if not lines[n]), at + 2)
            texts[re.sub(r"(?: \[.*\])?:$", "", lines[at + 1])] = shortened("\n".join(lines[at + 2 : end]))
    cases = ((each["name"], _RUBY.get(each["how"], "skipped")) for each in found)
    failed = ("failed", "error")
    return (
        collect((name, CaseResult(how, texts.get(name, "") if how in failed else "")) for name, how in cases)
        if found
        else None
    )


_TEST_UNIT = re.compile(r"^(?P<indent> *)(?P<name>\S.*?):(?: ?$|\t+(?P<rest>.*))")
_TEST_UNIT_END = re.compile(r": \([\d.]+\)$")
_TEST_UNIT_BLOCK = re.compile(r"^(?P<kind>Failure|Error|Omission|Pending): ")
_TEST_UNIT_STATUS: Mapping[str, Status] = {"Failure": "failed", "Error": "error"}


def read_test_unit(data: bytes) -> Report | None:
    """Ruby's test-unit with `-v`: suites by indentation; a test begins with a tab and ends with its time."""
    cases: list[tuple[str, CaseResult]] = []
    suites: list[tuple[int, str]] = []
    name, text = "", list[str]()
    status: Status = "passed"
    lines = list(islice(_lines(data), MAX_TESTS))
    for line in lines[lines.index("Started") + 1 :] if "Started" in lines else ():
        found = None if name else _TEST_UNIT.match(line)
        if found:
            suites = [each for each in suites if each[0] < len(found["indent"])]
            if found["rest"] is None:
                suites.append((len(found["indent"]), found["name"]))
                continue
            name, status, text = f"{' > '.join(each[1] for each in suites)}::{found['name']}", "passed", []
        elif block := _TEST_UNIT_BLOCK.match(line):
            status = _TEST_UNIT_STATUS.get(block["kind"], "skipped")
            text.append(line)
        elif text and not line.startswith("===="):
            text.append(line)
        if name and _TEST_UNIT_END.search(line):
            failed = status in ("failed", "error")
            cases.append((name, CaseResult(status, shortened("\n".join(text[:-1])) if failed else "")))
            name = ""
    return collect(cases) if cases else None


_EXUNIT_MODULE = re.compile(r"^(?P<module>[A-Z][\w.]*) \[(?P<file>[^\]]+\.exs)\]$")
_EXUNIT_TEST = re.compile(
    r"^ +\* (?P<name>(?:test|doctest|property) .*?) \((?P<how>[\d.]+ms|skipped|excluded|invalid)\)(?: \[L#\d+\])?$"
)
_EXUNIT_FAILURE = re.compile(r"^ +\d+\) (?P<name>.+) \((?P<module>[\w.]+)\)$")


def read_exunit(data: bytes) -> Report | None:
    """`mix test --trace`: a line for each test below its module's; what failed follows at once."""
    cases: list[tuple[str, CaseResult]] = []
    module, text = "", list[str]()
    for line in islice(_lines(data), MAX_TESTS):
        if found := _EXUNIT_MODULE.match(line):
            module, text = f"{found['file']}::{found['module']}", []
        elif found := _EXUNIT_TEST.match(line):
            ran = found["how"].endswith("ms") or found["how"] == "invalid"
            cases.append((f"{module} {found['name']}", CaseResult("passed" if ran else "skipped")))
            text = []
        elif cases and (found := _EXUNIT_FAILURE.match(line)) and cases[-1][0].endswith(f" {found['name']}"):
            text = [line]
        elif text and len(text) < MAX_TEXT // 10:
            text.append(line)
        if text:
            cases[-1] = (cases[-1][0], CaseResult("failed", shortened("\n".join(text))))
    return collect(cases) if cases else None


def _lines(data: bytes) -> list[str]:
    return data.decode(errors="replace").splitlines()
