"""Gates on tests: how they are found and executed, whether they are weaker, and whether nothing else changes."""

import configparser
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from app.core.text import listed
from app.core.verification import GateResult
from app.core.yaml_and_toml import toml_table
from app.sandbox.setup.declared.python_metadata import PYTEST_SETTINGS
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.paths_of_tests import is_test_file, is_test_path

_FILES = re.compile(
    r"^(?:conftest\.py|tox\.(?:ini|toml)|noxfile\.py|\.coveragerc|\.env(?:\..+)?"
    r"|(?:jest|vitest|vite|playwright|karma|ava|babel)\.(?:config|workspace)\.\w+|\.(?:mocharc|babelrc|nycrc|c8rc|swcrc|taprc)(?:\.\w+)?"
    r"|jest\.setup\.\w+|bunfig\.toml|\.rspec|[Rr]akefile|(?:GNU)?[Mm]akefile|[Jj]ustfile|Taskfile\.ya?ml"
    r"|build\.rs|rust-toolchain(?:\.toml)?|go\.work|jvm\.config|extensions\.xml)$"
)
_HOOK = re.compile(r"^\s*(?:async )?def (pytest_\w+)|^(collect_ignore\w*|pytest_plugins)\b", re.MULTILINE)
_MAIN = re.compile(r"^func TestMain\(", re.MULTILINE)
PACKAGE_KEYS = (
    *("jest", "mocha", "ava", "vitest", "tap", "nyc", "c8", "babel", "imports", "overrides", "resolutions", "type"),
)
_MAX_NAMED = 5


def how_tests_run(candidate: CandidatePatch) -> GateResult:
    """Warns of each file that configures tests, with the changed settings if they can be determined."""
    warned = [f"{displayed_path(delta.path)}: {finding}" for delta in candidate.deltas if (finding := _change(delta))]
    return gate("how tests are run", warned=warned)


def configures_tests(path: str) -> bool:
    """True if a file of this name configures how tests are found and executed."""
    file = PurePosixPath(path)
    return file.name in PYTEST_SETTINGS or _FILES.match(file.name) is not None or ".cargo" in file.parts[:-1]


def settings_of_tests(path: str, text: str) -> Any:
    """The part of package.json, pyproject.toml or setup.cfg that configures tests. None for any other file."""
    part = _PARTS.get(PurePosixPath(path).name)
    return None if part is None else part(text)


def _change(delta: ChangedPath) -> str:
    name = PurePosixPath(delta.path).name
    if name == "conftest.py":
        return _conftest(delta)
    if configures_tests(delta.path):
        return "changes how tests are run"
    before, after = delta.old_text, delta.text or ""
    part = _PARTS.get(name)
    if part is not None:
        return "changes how tests are run" if part(before) != part(after) else ""
    if name.endswith("_test.go") and _MAIN.search(after) and not _MAIN.search(before):
        return "adds a TestMain, which decides which tests run and how they end"
    return ""


def _conftest(delta: ChangedPath) -> str:
    before, after = (
        {first or second for first, second in _HOOK.findall(text)} for text in (delta.old_text, delta.text or "")
    )
    new = sorted(after - before)
    hooks = f", with {listed(new, _MAX_NAMED)}" if new else ""
    return f"{'a new one ' if delta.created else ''}changes how tests are run{hooks}"


def _package(text: str) -> Any:
    """The test settings; the text itself if it cannot be parsed."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    if not isinstance(document, dict):
        return text
    scripts = document.get("scripts")
    tests = {key: value for key, value in scripts.items() if "test" in key} if isinstance(scripts, dict) else {}
    return tests, [document.get(key) for key in PACKAGE_KEYS]


def _pyproject(text: str) -> Any:
    try:
        document = toml_table(text)
    except ValueError:
        return text
    tool, project = document.get("tool", {}), document.get("project", {})
    points = project.get("entry-points", {}) if isinstance(project, dict) else {}
    if not isinstance(tool, dict) or not isinstance(points, dict):
        return text
    return [tool.get(key) for key in ("pytest", "tox", "nox", "coverage")], points.get("pytest11")


def _sections(text: str) -> Any:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return text
    wanted = ("tool:pytest", "pytest", "aliases", "options.entry_points", "nosetests", "coverage:run")
    return {section: dict(parser[section]) for section in wanted if parser.has_section(section)}


_PARTS: dict[str, Callable[[str], Any]] = {
    "package.json": _package,
    "pyproject.toml": _pyproject,
    "setup.cfg": _sections,
}


def tests_alone(candidate: CandidatePatch) -> GateResult:
    """Blocks every change outside of tests and their supporting files."""
    others = [delta.path for delta in candidate.deltas if not is_test_path(delta.path)]
    blocked = [f"{displayed_path(path)}: is not a test; this task may only change tests" for path in others]
    return gate("tests alone", blocked=blocked)


_DEFINITION = re.compile(
    r"^\s*(?:async )?def (?P<python>test_?\w*)"
    r"|^func (?P<go>(?:Test|Fuzz|Example)\w*)\("
    r"|^\s*(?:it|test|describe)(?:\.each\(.*?\))?\(\s*(?P<quote>['\"`])(?P<script>.*?)(?P=quote)"
    r"|#\[(?:\w+::)?test\](?:\s*#\[.*\])*\s*(?:async )?fn (?P<rust>\w+)"
    r"|@(?:Parameterized)?Test\b[^{]*?\bvoid (?P<java>\w+)",
    re.MULTILINE,
)
_SKIP = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|skipif|xfail)\b|\bunittest\.(?:skip\w*|expectedFailure)\b|\bself\.skipTest\("
    r"|\b(?:it|test|describe)\.(?:skip|todo|failing)\b|\bx(?:it|describe|test)\(|\bt\.Skip(?:f|Now)?\("
    r"|#\[ignore|@(?:Disabled|Ignore)\b|\bpending\("
)
_ASSERTION = re.compile(
    r"\bassert\w*\b|\bexpect\w*\(|\bshould\b|\bpytest\.raises\b"
    r"|\brequire\.\w+\(t|\bt\.(?:Error|Fatal)f?\("
)


def weaker_tests(candidate: CandidatePatch) -> GateResult:
    """Warns of tests that are deleted, renamed, skipped or expected to fail, and of assertions that are changed."""
    warned = [
        f"{displayed_path(delta.path)}: {finding}"
        for delta in candidate.deltas
        if is_test_path(delta.path) and delta.old is not None and not configures_tests(delta.path)
        for finding in _weaker(delta)
    ]
    return gate("tests", warned=warned)


def _weaker(delta: ChangedPath) -> list[str]:
    before, after = delta.old_text, delta.text or ""
    if delta.new is None:
        count = len(_names_of_tests(before))
        return [f"deleted, with {count} test{'s' if count != 1 else ''}"] if is_test_file(delta.path) else ["deleted"]
    findings = []
    if gone := removed_tests(before, after):
        findings.append(f"tests removed or renamed: {', '.join(gone[:5])}{' …' if len(gone) > 5 else ''}")
    skips = len(_SKIP.findall(after)) - len(_SKIP.findall(before))
    if skips > 0:
        findings.append(f"{skips} more skipped or expected to fail")
    if changed := (_assertions(before) - _assertions(after)).total():
        findings.append(f"{changed} assertion{'s' if changed != 1 else ''} changed or removed")
    return findings


def removed_tests(before: str, after: str) -> tuple[str, ...]:
    """The names of tests that a file no longer has."""
    return tuple(sorted(_names_of_tests(before) - _names_of_tests(after)))


def _assertions(text: str) -> Counter[str]:
    """A new assertion elsewhere does not make up for a removed one."""
    return Counter(" ".join(line.split()) for line in text.splitlines() if _ASSERTION.search(line))


def _names_of_tests(text: str) -> set[str]:
    groups = ("python", "go", "script", "rust", "java")
    return {found[group] for found in _DEFINITION.finditer(text) for group in groups if found[group]}
