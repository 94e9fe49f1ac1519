"""Reads test results from frameworks' output: `go test -json`, cargo, unittest -v."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.core.verification import Status
from app.verify.reports import MAX_TESTS, MAX_TEXT, CaseResult, Report, collect

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


def read_go(data: bytes) -> Report | None:
    """`go test -json`: one event a line, mixed with lines that are not JSON when a build fails."""
    events = list(_go_events(data))
    if not events:
        return None
    texts: dict[str, str] = {}
    statuses: dict[str, Status] = {}
    actions: Mapping[str, Status] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for event in events:
        package, test, action = str(event.get("Package", "")), str(event.get("Test", "")), str(event.get("Action"))
        name = f"{package}::{test}" if test else package
        if action == "build-output":  # `ImportPath` is the package, or "package [package.test]"
            name = str(event.get("ImportPath", "")).split(" ")[0]
        if action in ("output", "build-output") and len(texts.get(name, "")) < MAX_TEXT:
            texts[name] = texts.get(name, "") + str(event.get("Output", ""))
        elif action in actions and (test or action == "fail"):
            statuses[name] = actions[action]
    return collect(_go_cases(statuses, texts))


def _go_cases(statuses: Mapping[str, Status], texts: Mapping[str, str]) -> Iterator[tuple[str, CaseResult]]:
    owners = {name.split("::")[0] for name, status in statuses.items() if "::" in name and status == "failed"}
    for name, status in statuses.items():
        if "::" in name:
            yield name, CaseResult(status, texts.get(name, "") if status == "failed" else "")
        elif name not in owners:  # the package failed without a failing test: it did not build, or it crashed
            yield name, CaseResult("error", texts.get(name, ""))


def go_output(data: bytes) -> bytes:
    """What the same tests would have printed without `-json`."""
    shown: list[str] = []
    for line in data.splitlines():
        event = _go_event(line)
        if event is None:
            shown.append(line.decode(errors="replace") + "\n")
        elif event.get("Action") in ("output", "build-output"):
            shown.append(str(event.get("Output", "")))
    return "".join(shown).encode()


def _go_events(data: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.splitlines()):
        event = _go_event(line)
        if event is not None and number <= MAX_TESTS * 10:
            yield event


def _go_event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
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


def read_unittest(data: bytes) -> Report | None:
    """`python -m unittest -v`; the blocks of failures at the end win over the progress lines.

    A suite that was interrupted has the progress lines only.
    """
    lines = data.decode(errors="replace").splitlines()
    if not any((line.startswith("Ran ") and " test" in line) or line == "KeyboardInterrupt" for line in lines):
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
                yield (
                    name,
                    CaseResult("error" if status == "ERROR" else "failed", "\n".join(text).strip("-\n ")[:MAX_TEXT]),
                )
            name, text = "", []
        elif block := _UNITTEST_BLOCK.match(line):
            name, status = _unittest_id(block["method"], block["owner"]), block["kind"]
        elif name:
            text.append(line)


def _unittest_id(method: str, owner: str) -> str:
    """`module.Class.method`, whether or not this Python repeats the method in the brackets (3.11 and later do)."""
    return owner if owner.endswith(f".{method}") else f"{owner}.{method}"


_TAP_LINE = re.compile(
    r"^(?P<failed>not )?ok\b(?: +(?P<number>\d+))?(?: +-)? *(?P<name>[^#\n]*)(?:# *(?P<directive>SKIP|TODO)\b.*)?",
    re.IGNORECASE,
)


def read_tap(data: bytes) -> Report | None:
    """TAP as tape and AVA print it: the lines at the left edge, with tape's `# name` of the test in front."""
    cases: list[tuple[str, CaseResult]] = []
    numbers: dict[str, int] = {}
    title, texts = "", dict[str, str]()
    last = ""
    for line in data.decode(errors="replace").splitlines():
        if line.startswith("# ") and not re.match(r"# (?:tests|pass|fail|ok|duration|skip|todo)\b", line):
            title = line[2:].strip()
        elif found := _TAP_LINE.match(line):
            plain_name = " > ".join(filter(None, (title, found["name"].strip() or found["number"] or "")))
            numbers[plain_name] = numbers.get(plain_name, 0) + 1
            last = plain_name if numbers[plain_name] == 1 else f"{plain_name} ({numbers[plain_name]})"
            directive = bool(found["directive"])
            status: Status = "skipped" if directive else "failed" if found["failed"] else "passed"
            cases.append((last, CaseResult(status)))
        elif last and line.startswith("  ") and len(texts.get(last, "")) < MAX_TEXT:
            texts[last] = texts.get(last, "") + line + "\n"
        if len(cases) >= MAX_TESTS:
            break
    if not cases:
        return None
    return collect(
        (name, CaseResult(case.status, texts.get(name, "") if case.status == "failed" else "")) for name, case in cases
    )
