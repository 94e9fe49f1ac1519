"""Classifies a file by its path: source, test, documentation, or third-party code."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from app.repo.syntax import language_of

_TEST_FOLDERS = frozenset(
    "test tests testing __tests__ __mocks__ spec specs testdata testcases fixture fixtures e2e".split()  # noqa: SIM905
)
_TEST_NAME = re.compile(
    r"test_.*|conftest\.py|.*_tests?\.[a-z]+|.*[.-](test|spec)(-d)?\.[a-z]+|.*Tests?\.(java|kt|cs|scala)|.*_spec\.rb|tests?\.[a-z]+"
)
_UNLIKELY_FOLDERS = frozenset(
    "doc docs documentation example examples tutorial tutorials gallery galleries sample samples demo demos"  # noqa: SIM905
    " benchmark benchmarks bench asv_bench script scripts tool tools vendor vendored _vendor third_party third-party"
    " thirdparty node_modules extern external externals dist build locale locales static".split()
)
_UNLIKELY_NAME = re.compile(
    r".*\.min\..*|.*\.d\.[cm]?ts|.*\.pyi|(setup|setupext|noxfile|versioneer|fabfile)\.py|.*\.config\.[cm]?[jt]s"
    r"|(gulp|grunt)file\.js|build\.rs"
)
"""Minified code, declarations, and what only builds the project."""
_OTHER_CODE = frozenset(
    "php cs kt kts swift scala m mm pyx pxd vue svelte lua pl pm ex exs erl hs ml clj dart r jl zig f90 groovy".split()  # noqa: SIM905
)
"""Suffixes of languages that we have no grammar of: words only, but a place for a fix all the same."""
_ROOT_STEMS = frozenset(("__init__", "__main__", "index", "mod", "main", "lib"))


@lru_cache(maxsize=100_000)
def is_test(path: str) -> bool:
    *folders, name = path.split("/")
    if is_test_name(name):
        return True
    test_folders = _TEST_FOLDERS.intersection(map(str.lower, folders))
    if name.endswith(".py"):
        test_folders -= {"test", "testing"}  # in Python the singular is often a package of test helpers
    return bool(test_folders)


def is_test_name(path: str) -> bool:
    return _TEST_NAME.fullmatch(path.rpartition("/")[2]) is not None


@lru_cache(maxsize=100_000)
def is_unlikely_place(path: str) -> bool:
    """True if a fix rarely goes there: documentation, examples, tools, declarations, vendored or generated code."""
    *folders, name = path.lower().split("/")
    return bool(_UNLIKELY_NAME.fullmatch(name)) or not (_UNLIKELY_FOLDERS | _TEST_FOLDERS).isdisjoint(folders)


def is_code(path: str) -> bool:
    return language_of(path) is not None or path.rpartition(".")[2].lower() in _OTHER_CODE


def is_source(path: str) -> bool:
    return is_code(path) and not is_test(path)


def stem(path: str) -> str:
    """The name a file is known by: `http/__init__.py` is http, `.travis.yml` is itself."""
    pure = PurePosixPath(path)
    name = pure.name if pure.name.startswith(".") else pure.name.partition(".")[0]
    return pure.parent.name if name in _ROOT_STEMS and pure.parent.name else name


def module_names(path: str) -> Iterator[str]:
    """The dotted names that a source file may have, longest first: `src/a/b.py` is a.b, and b."""
    pure = PurePosixPath(path)
    parts = [*pure.parent.parts, pure.name.partition(".")[0]]
    if parts[-1] in _ROOT_STEMS:
        parts.pop()
    parts = [part for part in parts if part not in {"src", "lib"}] or parts
    for start in range(len(parts)):
        yield ".".join(parts[start:])
