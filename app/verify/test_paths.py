"""Decides which paths are tests, by the conventions of each language, without reading them."""

import re
from pathlib import PurePosixPath

_TEST_DIRECTORIES = frozenset({"tests", "__tests__", "testdata", "__snapshots__", "__mocks__"})
_TOP_DIRECTORIES = frozenset({"test", "testing", "spec", "specs", "e2e", "cypress"})
_SPEC_DIRECTORIES = frozenset({"test", "spec", "specs", "e2e"})
# `django/test/client.py` and `net/http/httptest` are products, so these languages do not get the singular names.
_STRICT_SUFFIXES = frozenset({".py", ".pyi", ".go", ".rs", ".java", ".kt"})
_SCRIPT = r"\.(?:[cm]?[jt]sx?)$"
_TEST_FILES = (
    re.compile(r"^(?:test_.*|.*_test|tests)\.py$"),
    re.compile(r"^.*[._-](?:test|spec)" + _SCRIPT),
    re.compile(r"^test(?:-.*)?" + _SCRIPT),
    re.compile(r"^.*_test\.(?:go|rb|exs|cc|cpp|c|dart)$"),
    re.compile(r"^.*_spec\.rb$"),
    re.compile(r"^(?:test_.*\.(?:c|cc|cpp|rb)|.*_unittest\.(?:cc|cpp))$"),
    re.compile(r"^(?:Test.+|.+Tests?|.+IT|.+Spec)\.(?:java|kt|scala|groovy|cs|php|swift)$"),
)
_SUPPORT_FILES = frozenset({"conftest.py"})
_SCRIPT_FILE = re.compile(_SCRIPT)


def is_test_path(path: str) -> bool:
    """True for test modules and their supporting files (conftest, fixtures, snapshots, data below `tests/`)."""
    return is_test_file(path) or PurePosixPath(path).name in _SUPPORT_FILES or _in_test_directory(path)


def is_test_file(path: str) -> bool:
    """True for a module that a test framework would execute by itself."""
    name = PurePosixPath(path).name
    if any(pattern.match(name) for pattern in _TEST_FILES):
        return True
    parts = PurePosixPath(path).parts[:-1]
    if _SCRIPT_FILE.search(name) and "__tests__" in parts:
        return True
    return name.endswith(".rs") and "tests" in parts


def _in_test_directory(path: str) -> bool:
    file = PurePosixPath(path)
    parts = file.parts[:-1]
    if not parts:
        return False
    if parts[0] in _TOP_DIRECTORIES or _TEST_DIRECTORIES.intersection(parts):
        return True
    if "src" in parts and "test" in parts[parts.index("src") :][1:2]:  # Maven and Gradle: src/test/…
        return True
    return file.suffix not in _STRICT_SUFFIXES and not _SPEC_DIRECTORIES.isdisjoint(parts)
