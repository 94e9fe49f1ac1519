"""Decides which paths are tests, by the conventions of each language, and which of them are nearest to a change."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from app.core.patch import Patch, Tree

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


def is_text_path(path: str) -> bool:
    """True for documentation: prose that no program reads. A `.txt` may be a list of requirements."""
    return PurePosixPath(path).suffix.casefold() in {".md", ".rst", ".adoc"}


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


MAX_FILES = 40
MAX_LOOKED_INTO = 2_000
MAX_BYTES = 512 * 1024
_FAR = 5
_AFFIXES = re.compile(r"^(?:test_|test-)|(?:[._-](?:test|spec|tests))$|^Test(?=[A-Z])|(?<=[a-z])Tests?$")


def nearest(tree: Tree, patch: Patch, guards: Sequence[str] = ()) -> tuple[str, ...]:
    """Test files in order: changed, named after a changed module, guarding one, mentioning one, near one.

    `guards` are those known to exercise the changed files (`app.repo.index.survey`), nearest first.
    """
    changed = [change.path for change in patch.changes]
    gone = {change.path for change in patch.changes if change.deleted}
    files = {path for path, entry in tree.entries().items() if is_test_file(path) and entry.size <= MAX_BYTES}
    files |= {path for path in changed if is_test_file(path)}
    candidates = sorted(files - gone)[:MAX_LOOKED_INTO]
    modules = {_stem(path) for path in changed if not is_test_file(path)} - {"__init__", "index", "mod", "lib", "main"}
    directories = {PurePosixPath(path).parent for path in changed}
    mentioned = _mentioning(tree, candidates, modules)

    place = {path: position for position, path in enumerate(guards)}

    def distance(path: str) -> int:
        neighbouring = _is_near(PurePosixPath(path), directories)
        near = (path in changed, _stem(path) in modules, path in place, path in mentioned, neighbouring)
        return near.index(True) if any(near) else _FAR

    ranked = sorted((distance(path), place.get(path, len(place)), path) for path in candidates)
    return tuple(path for rank, _, path in ranked if rank < _FAR)[:MAX_FILES]


def _stem(path: str) -> str:
    """`tests/test_money.py`, `money.test.js` and `money_test.go` all give `money`."""
    return _AFFIXES.sub("", PurePosixPath(path).stem)


def _mentioning(tree: Tree, candidates: Iterable[str], modules: set[str]) -> set[str]:
    names = [re.escape(name) for name in sorted(modules) if len(name) > 2]
    if not names:
        return set()
    pattern = re.compile(rf"\b(?:{'|'.join(names)})\b".encode())
    return {path for path, content in tree.read_many(candidates).items() if pattern.search(content)}


def _is_near(file: PurePosixPath, directories: set[PurePosixPath]) -> bool:
    """In a changed directory, or in the `tests` directory of one."""
    own = file.parent.parent if file.parent.name in ("tests", "test", "__tests__") else file.parent
    return file.parent in directories or own in directories
