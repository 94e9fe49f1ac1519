"""The suite of a Python project: pytest if anything indicates it, otherwise unittest."""

import re
import shlex
import tomllib
from pathlib import PurePosixPath

from app.verify.frameworks import SuiteCommand
from app.verify.project_directories import ProjectDirectory, prefix
from app.verify.test_paths import is_test_file

MAX_LOOKED_INTO = 200
_PYTEST_FILES = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py"})
_MANIFESTS = ("setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile")
_NAMES_PYTEST = re.compile(r"\bpytest\b")
_USES_PYTEST = re.compile(rb"^\s*(?:import|from) pytest\b", re.MULTILINE)
_PLAIN_TEST = re.compile(rb"^(?:async )?def test_", re.MULTILINE)
_PLAIN_CLASS = re.compile(rb"^class Test\w*(?:\(\s*\))?:", re.MULTILINE)
_USES_UNITTEST = re.compile(rb"^\s*(?:import unittest|from unittest\b|from django\.test\b)|TestCase\)", re.MULTILINE)


def suite(place: ProjectDirectory) -> SuiteCommand | None:
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
    if _in_pyproject(place.text("pyproject.toml")):
        return True
    requirements = [name for name in place.names if re.fullmatch(r".*requirements.*\.(?:txt|in)", name)]
    if any(_NAMES_PYTEST.search(place.text(name)) for name in (*_MANIFESTS, *requirements)):
        return True
    return any(
        _USES_PYTEST.search(content) or _PLAIN_TEST.search(content) or _PLAIN_CLASS.search(content)
        for content in contents
    )


def _in_pyproject(text: str) -> bool:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return _NAMES_PYTEST.search(repr(document)) is not None


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
