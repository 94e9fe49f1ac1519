"""Finds the command that runs a repository's tests: the configured one, or one that its files suggest."""

import re
import shlex
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from app.core.tree import Tree
from app.core.yaml_and_toml import toml_table
from app.sandbox.setup.ecosystems.base import ManifestFiles, table, texts
from app.sandbox.setup.ecosystems.python_metadata import inner_root
from app.verify.configured_command import node_suite, recognise
from app.verify.frameworks import SuiteCommand
from app.verify.project_directories import ProjectDirectory, prefix, project_directories
from app.verify.test_paths import is_test_file, is_test_path

MAX_LOOKED_INTO = 200
SHOWN = 3
_PATTERN = re.compile(r"[\s\"'](?:\./)?([\w.-]+/\*)/[\w.*{[-]")
"""`packages/*/test` and the like."""
_PYTEST_FILES = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py"})
_MANIFESTS = ("setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile")
_NAMES_PYTEST = re.compile(r"\bpytest\b")
_USES_PYTEST = re.compile(rb"^\s*(?:import|from) pytest\b", re.MULTILINE)
_PLAIN_TEST = re.compile(rb"^(?:async )?def test_", re.MULTILINE)
_PLAIN_CLASS = re.compile(rb"^class Test\w*(?:\(\s*\))?:", re.MULTILINE)
_USES_UNITTEST = re.compile(rb"^\s*(?:import unittest|from unittest\b|from django\.test\b)|TestCase\)", re.MULTILINE)


def _python(place: ProjectDirectory) -> SuiteCommand | None:
    tests = [path for path in place.files if path.endswith(".py") and is_test_file(path)]
    contents = [place.read(path) for path in tests[:MAX_LOOKED_INTO]]
    if _speaks_for_pytest(place, contents) and tests:
        command = f"{prefix(place.directory)}python3 -m pytest"
        return SuiteCommand(command=command, framework="pytest", narrowed=command, directory=place.directory)
    if not any(_USES_UNITTEST.search(content) for content in contents):
        return None
    if "manage.py" in place.files and any(b"django" in content for content in contents):
        return _django(place)
    return _unittest(place, tests)


def _speaks_for_pytest(place: ProjectDirectory, contents: list[bytes]) -> bool:
    if any(PurePosixPath(path).name in _PYTEST_FILES for path in place.files):
        return True
    if _NAMES_PYTEST.search(repr(_toml(place, "pyproject.toml"))):
        return True
    requirements = [name for name in place.names if re.fullmatch(r".*requirements.*\.(?:txt|in)", name)]
    if any(_NAMES_PYTEST.search(place.text(name)) for name in (*_MANIFESTS, *requirements)):
        return True
    return any(
        _USES_PYTEST.search(content) or _PLAIN_TEST.search(content) or _PLAIN_CLASS.search(content)
        for content in contents
    )


def _toml(place: ProjectDirectory, name: str) -> dict[str, Any]:
    try:
        return toml_table(place.text(name))
    except ValueError:
        return {}


def _django(place: ProjectDirectory) -> SuiteCommand:
    command = f"{prefix(place.directory)}python3 manage.py test -v 2"
    return SuiteCommand(
        command=command, framework="unittest", narrowed=command, directory=place.directory, modules=place.directory
    )


def _unittest(place: ProjectDirectory, tests: list[str]) -> SuiteCommand:
    """`discover` enters packages only, so a `tests` directory that is not one must be its start."""
    start = _start(place, tests)
    pattern = "" if any(PurePosixPath(path).name.startswith("test") for path in tests) else ' -p "*_test.py"'
    base = prefix(place.directory)
    where = f" -s {shlex.quote(start)}" if start else ""
    modules = "/".join(part for part in (place.directory, start) if part)
    path = f"PYTHONPATH={shlex.quote(start)} " if start else ""
    return SuiteCommand(
        command=f"{base}python3 -m unittest discover -v{where}{pattern}",
        framework="unittest",
        narrowed=f"{base}{path}python3 -m unittest -v",
        directory=place.directory,
        modules=modules,
    )


def _start(place: ProjectDirectory, tests: list[str]) -> str:
    """The directory from which most tests can be discovered: the top, unless a parent of them is not a package."""
    votes: dict[str, int] = {}
    for path in tests:
        start = ""
        parents = [str(parent) for parent in PurePosixPath(path).parents][:-1]
        for parent in parents:  # from the test upwards, discovery starts at the first one that is not a package
            if f"{parent}/__init__.py" not in place.files:
                start = parent
                break
        votes[start] = votes.get(start, 0) + 1
    return max(sorted(votes), key=lambda start: votes[start]) if votes else ""


# Ecosystems whose results are only known by the exit code: a file that identifies them, and their test command.
_BY_EXIT_CODE = (
    ("gradlew", "./gradlew test"),
    ("build.gradle", "gradle test"),
    ("build.gradle.kts", "gradle test"),
    (".rspec", "bundle exec rspec"),
    ("Rakefile", "bundle exec rake test"),
    ("mix.exs", "mix test"),
    ("phpunit.xml", "vendor/bin/phpunit"),
    ("phpunit.xml.dist", "vendor/bin/phpunit"),
    ("pubspec.yaml", "dart test"),
    ("Package.swift", "swift test"),
)
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def find_suite(tree: Tree, configured: str | None = None) -> SuiteCommand | None:
    """The configured `test:` command wins. Otherwise the ecosystem with most tests, nearest to the top; its `note`
    names the others. None if there is none."""
    detected = _detected(tree)
    if configured and configured.strip():
        return recognise(tree, configured.strip(), detected)
    return detected


def _detected(tree: Tree) -> SuiteCommand | None:
    inner = inner_root(ManifestFiles(tree))
    places = [place for place in project_directories(tree) if place.directory or not inner]
    found = [(place, suite) for place in places for suite in _suites(place)]
    if not found:
        return None
    found.sort(key=lambda item: (item[0].depth, -_tests(item[0], item[1])))
    (place, main), *others = found
    left_out = [suite for _, suite in others if not _covered(place, main, suite)]
    if not left_out:
        return main
    names = ", ".join(f"`{suite.command}`" for suite in left_out[:SHOWN])
    more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
    return replace(main, note=f"Also found, but not run: {names}{more}. Set `test:` in the configuration to choose.")


def _covered(place: ProjectDirectory, main: SuiteCommand, other: SuiteCommand) -> bool:
    """pytest, Maven, jest and vitest at the top include the projects below it, a workspace of cargo what it does not
    exclude, and any script of a package the files that it names by a pattern."""
    if main.framework != other.framework or main.directory:
        return False
    if any(PurePosixPath(other.directory).match(pattern) for pattern in _PATTERN.findall(place.text("package.json"))):
        return True
    if main.framework == "cargo":
        excluded = texts(table(_toml(place, "Cargo.toml"), "workspace").get("exclude"))
        return "--workspace" in main.command and other.directory not in excluded
    return main.framework in {"pytest", "maven", "jest", "vitest"}


def _suites(place: ProjectDirectory) -> list[SuiteCommand]:
    found = [_python(place), node_suite(place), _go(place), _cargo(place), _maven(place)]
    suites = [suite for suite in found if suite is not None]
    if not suites and (other := _by_exit_code(place) or _make(place)):
        suites.append(other)
    return suites


def _tests(place: ProjectDirectory, suite: SuiteCommand) -> int:
    """The number of test files that belong to a suite."""
    suffixes = {
        "pytest": {".py"},
        "unittest": {".py"},
        "go": {".go"},
        "cargo": {".rs"},
        "maven": {".java", ".kt"},
        "other": {PurePosixPath(path).suffix for path in place.files},
    }.get(suite.framework, {".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", ".mts", ".cts"})
    return sum(1 for path in place.files if PurePosixPath(path).suffix in suffixes and is_test_file(path))


def _go(place: ProjectDirectory) -> SuiteCommand | None:
    if "go.mod" not in place.files or not any(path.endswith("_test.go") for path in place.files):
        return None
    start = prefix(place.directory)
    return SuiteCommand(
        command=f"{start}go test ./...", framework="go", narrowed=f"{start}go test", directory=place.directory
    )


def _cargo(place: ProjectDirectory) -> SuiteCommand | None:
    if "Cargo.toml" not in place.files:
        return None
    sources = (path for path in place.files if path.endswith(".rs"))
    if not any(is_test_path(path) or b"#[test]" in place.read(path) for path in sources):
        return None
    start = prefix(place.directory)
    workspace = " --workspace" if "workspace" in _toml(place, "Cargo.toml") else ""
    command = f"{start}cargo test --no-fail-fast{workspace}"
    return SuiteCommand(command=command, framework="cargo", narrowed=command, directory=place.directory)


def _maven(place: ProjectDirectory) -> SuiteCommand | None:
    if "pom.xml" not in place.files or not any("src/test/" in path for path in place.files):
        return None
    command = f"{prefix(place.directory)}mvn --batch-mode --offline --fail-at-end test"
    narrowed = f"{command} -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false"
    return SuiteCommand(command=command, framework="maven", narrowed=narrowed, directory=place.directory)


def _by_exit_code(place: ProjectDirectory) -> SuiteCommand | None:
    tests = any(is_test_path(path) for path in place.files)
    for marker, command in _BY_EXIT_CODE:
        if marker in place.files and tests:
            return SuiteCommand(command=prefix(place.directory) + command, directory=place.directory)
    return None


def _make(place: ProjectDirectory) -> SuiteCommand | None:
    for name in _MAKEFILES:
        lines = place.text(name).splitlines()
        if any(line.split("#")[0].startswith(("test:", "test :")) for line in lines):
            return SuiteCommand(command=f"{prefix(place.directory)}make test", directory=place.directory)
    return None
