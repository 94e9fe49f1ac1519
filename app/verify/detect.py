"""Finds the command that runs a repository's tests: the configured one, or one that its files suggest."""

import re
import shlex
from dataclasses import replace
from pathlib import PurePosixPath

from app.core.patch import Tree
from app.core.text import listed
from app.sandbox.setup.declared.python_metadata import PYTEST_SETTINGS, inner_root
from app.sandbox.setup.manifests import ManifestFiles, table, texts
from app.verify.frameworks import SuiteCommand
from app.verify.paths_of_tests import is_test_file, is_test_path
from app.verify.project_directories import ProjectDirectory, prefix, project_directories, within
from app.verify.recognise import WITHOUT_CHOSEN_TESTS, node_suite, recognise

MAX_LOOKED_INTO = 200
SHOWN = 3
_PATTERN = re.compile(r"[\s\"'](?:\./)?([\w.-]+/\*)/[\w.*{[-]")
"""`packages/*/test` and the like."""
_PYTEST_FILES = frozenset({*PYTEST_SETTINGS, "conftest.py"})
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
        return within(place, "pytest", "python3 -m pytest")
    if not any(_USES_UNITTEST.search(content) for content in contents):
        return None
    if "manage.py" in place.files and any(b"django" in content for content in contents):
        return within(place, "unittest", "python3 manage.py test -v 2", modules=place.directory)
    return _unittest(place, tests)


def _speaks_for_pytest(place: ProjectDirectory, contents: list[bytes]) -> bool:
    if any(PurePosixPath(path).name in _PYTEST_FILES for path in place.files):
        return True
    if _NAMES_PYTEST.search(repr(place.toml("pyproject.toml"))):
        return True
    requirements = [name for name in place.names if re.fullmatch(r".*requirements.*\.(?:txt|in)", name)]
    if any(_NAMES_PYTEST.search(place.text(name)) for name in (*_MANIFESTS, *requirements)):
        return True
    return any(
        _USES_PYTEST.search(content) or _PLAIN_TEST.search(content) or _PLAIN_CLASS.search(content)
        for content in contents
    )


def _unittest(place: ProjectDirectory, tests: list[str]) -> SuiteCommand:
    """`discover` enters packages only, so a `tests` directory that is not one must be its start."""
    start = _start(place, tests)
    pattern = "" if any(PurePosixPath(path).name.startswith("test") for path in tests) else ' -p "*_test.py"'
    where = f" -s {shlex.quote(start)}" if start else ""
    modules = "/".join(part for part in (place.directory, start) if part)
    path = f"PYTHONPATH={shlex.quote(start)} " if start else ""
    command = f"python3 -m unittest discover -v{where}{pattern}"
    return within(place, "unittest", command, f"{path}python3 -m unittest -v", modules)


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


_BY_MARKER = (
    ("gradlew", "./gradlew test"),
    ("build.gradle", "gradle test"),
    ("build.gradle.kts", "gradle test"),
    (".rspec", "rspec"),
    ("Rakefile", "rake test"),
    ("mix.exs", "mix test"),
    ("phpunit.xml", "phpunit"),
    ("phpunit.xml.dist", "phpunit"),
    ("pubspec.yaml", "dart test"),
    ("Package.swift", "swift test"),
)
"""A file that identifies an ecosystem, and its test command."""
_MAKE_TEST = re.compile(r"test[ \t]*::?(?![:=])")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


def find_suite(tree: Tree, configured: str | None = None) -> SuiteCommand | None:
    """The configured `test:` command wins. Otherwise the first of `find_suites`; its `note` names others that it does
    not include. None if there is none."""
    detected = next(iter(find_suites(tree)), None)
    if configured and configured.strip():
        return recognise(tree, configured.strip(), detected)
    return detected


def find_suites(tree: Tree) -> list[SuiteCommand]:
    """What the files suggest: the ecosystem with most tests, nearest to the top, comes first."""
    inner = inner_root(ManifestFiles(tree))
    places = [place for place in project_directories(tree) if place.directory or not inner]
    found = [(place, suite) for place in places for suite in _suites(place)]
    if not found:
        return []
    found.sort(key=lambda item: (item[0].depth, -_tests(item[0], item[1])))
    (place, main), *others = found
    left_out = [suite for _, suite in others if not _covered(place, main, suite)]
    more = [suite for suite in (_by_marker(place), _make(place)) if suite is not None and suite.command != main.command]
    if not left_out:
        return [main, *more]
    names = listed([f"`{suite.command}`" for suite in left_out], SHOWN)
    note = f"Also found, but not run: {names}. Set `test:` in the configuration to choose."
    return [replace(main, note=note), *left_out, *more]


def count_tests(tree: Tree, suite: SuiteCommand | None) -> int:
    """The number of files with tests that belong to a suite, by their names; 0 if nobody knows."""
    place = next((each for each in project_directories(tree) if suite and each.directory == suite.directory), None)
    return _tests(place, suite) if place and suite else 0


def _covered(place: ProjectDirectory, main: SuiteCommand, other: SuiteCommand) -> bool:
    """pytest, Maven, jest and vitest at the top include the projects below it, a workspace of cargo what it does not
    exclude, and any script of a package the files that it names by a pattern."""
    if main.framework != other.framework or main.directory:
        return False
    if any(PurePosixPath(other.directory).match(pattern) for pattern in _PATTERN.findall(place.text("package.json"))):
        return True
    if main.framework == "go":
        return f" ./{other.directory}/..." in main.command
    if main.framework == "cargo":
        excluded = texts(table(place.toml("Cargo.toml"), "workspace").get("exclude"))
        return "--workspace" in main.command and other.directory not in excluded
    return main.framework in {"pytest", "maven", "jest", "vitest"}


def _suites(place: ProjectDirectory) -> list[SuiteCommand]:
    found = [_python(place), node_suite(place), _go(place), _cargo(place), _maven(place), _cmake(place)]
    suites = [suite for suite in found if suite is not None]
    if not suites and (other := _by_marker(place) or _make(place)):
        suites.append(other)
    return suites


_SUFFIXES = {"cmake": {".c", ".cc", ".cpp", ".cxx", ".cu", ".m", ".mm"}}


def _tests(place: ProjectDirectory, suite: SuiteCommand) -> int:
    """The number of test files that belong to a suite."""
    suffixes = {
        "pytest": {".py"},
        "unittest": {".py"},
        "go": {".go"},
        "cargo": {".rs"},
        "maven": {".java", ".kt"},
        "other": _SUFFIXES.get(suite.command.partition(" ")[0], {PurePosixPath(path).suffix for path in place.files}),
    }.get(suite.framework, {".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", ".mts", ".cts"})
    return sum(1 for path in place.files if PurePosixPath(path).suffix in suffixes and is_test_file(path))


def _go(place: ProjectDirectory) -> SuiteCommand | None:
    tests = [path for path in place.files if path.endswith("_test.go")]
    modules = [str(PurePosixPath(path).parent) for path in place.files if PurePosixPath(path).name == "go.mod"]
    if not tests or not (place.names & {"go.mod", "go.work"}):
        return None
    tested = sorted(
        {max((m for m in modules if _is_below(path, m)), key=len, default="") for path in tests} - {"", "."}
    )
    if "go.work" in place.names:
        used = re.findall(r"(?m)^\s*(?:use\s+)?(\./[\w./-]+|\.)\s*(?://.*)?$", place.text("go.work"))
        members = [module for module in tested if f"./{module}" in used]
        packages = " ".join(
            f"./{module}/..." if module else "./..." for module in [*([""] if "." in used else []), *members]
        )
        return within(place, "go", f"go test {packages or './...'}", "go test")
    if all(any(_is_below(path, module) for module in tested) for path in tests):  # none in the module at the top
        return within(place, "other", _GO_MODULES.format(places=shlex.join(tested)), narrowed="")
    return within(place, "go", "go test ./...", "go test")


def _is_below(path: str, directory: str) -> bool:
    return directory == "." or path.startswith(f"{directory}/")


_GO_MODULES = 'failed=; for each in {places}; do (cd "$each" && go test ./...) || failed=1; done; [ -z "$failed" ]'


def _cargo(place: ProjectDirectory) -> SuiteCommand | None:
    if "Cargo.toml" not in place.files:
        return None
    sources = (path for path in place.files if path.endswith(".rs"))
    if not any(is_test_path(path) or b"#[test]" in place.read(path) for path in sources):
        return None
    workspace = " --workspace" if "workspace" in place.toml("Cargo.toml") else ""
    return within(place, "cargo", f"cargo test --no-fail-fast{workspace}")


def _maven(place: ProjectDirectory) -> SuiteCommand | None:
    if "pom.xml" not in place.files or not any("src/test/" in path for path in place.files):
        return None
    command = "mvn --batch-mode --offline --fail-at-end test"
    return within(place, "maven", command, f"{command} {WITHOUT_CHOSEN_TESTS}")


def _cmake(place: ProjectDirectory) -> SuiteCommand | None:
    """Built and tested by CTest, with the options that switch tests on."""
    lists = [path for path in place.files if PurePosixPath(path).name == "CMakeLists.txt"]
    texts = [place.text(path) for path in lists[:MAX_LOOKED_INTO]] if "CMakeLists.txt" in place.names else []
    if not any(_CTEST.search(text) for text in texts):
        return None
    switched = dict.fromkeys(name for text in texts for name in _TEST_OPTION.findall(text))
    options = "".join(f" -D{name}=ON" for name in switched)
    build = "build" if not any(path.startswith("build/") for path in place.files) else "build-tests"
    made = f'cmake -S . -B {build}{options} && cmake --build {build} --parallel "$(nproc)"'
    return within(place, "other", f"{made} && (cd {build} && ctest)", narrowed="")


_CTEST = re.compile(r"(?im)^\s*(?:enable_testing|add_test|include\s*\(\s*CTest|\w+_discover_tests)\b")
_TEST_OPTION = re.compile(
    r"(?im)^\s*(?:cmake_dependent_)?option\s*\(\s*(\w*(?:BUILD|ENABLE|WITH|MAKE)\w*_TESTS?(?:ING)?)\b"
)


def _by_marker(place: ProjectDirectory) -> SuiteCommand | None:
    tests = any(is_test_path(path) for path in place.files)
    command = next((command for marker, command in _BY_MARKER if marker in place.names), "") if tests else ""
    if not command:
        return None
    if command in ("rspec", "rake test") and "Gemfile" in place.names:
        command = f"bundle exec {command}"
    if command == "phpunit" and "composer.json" in place.names:
        command = "vendor/bin/phpunit"
    found = recognise(place.tree, command, None)
    return replace(found, command=f"{prefix(place.directory)}{command}", directory=place.directory)


def _make(place: ProjectDirectory) -> SuiteCommand | None:
    for name in _MAKEFILES:
        lines = place.text(name).splitlines()
        if any(_MAKE_TEST.match(line) for line in lines):
            return within(place, "other", "make test", narrowed="")
    return None
