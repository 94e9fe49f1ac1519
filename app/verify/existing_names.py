"""Tells what the base already has, to distinguish something broken from something missing."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from app.core.tree import Tree
from app.sandbox.base import WORKSPACE
from app.verify.test_paths import is_test_path

MAX_SEARCHED = 2_000
MAX_FILE = 512 * 1024
_SOURCES = frozenset({".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".go", ".rs"})
_DEFINING = (
    r"(?:(?:def|class|function\*?|const|let|var|func|fn|type|interface|struct|enum|macro_rules!)\s+"
    r"|\bproc_macro_derive\(\s*){name}\b"
)
_ASSIGNING = r"^\s*(?:module\.)?(?:exports\.)?{name}\s*(?:[:=]|,$)"


@dataclass(frozen=True)
class ExistingNames:
    """Questions about a commit's own, non-test files."""

    tree: Tree

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self.tree.entries())

    @cached_property
    def _stems(self) -> frozenset[str]:
        """Every file without its suffix, and every directory, by each end of its path: `src/a/b.py` is also `a/b`."""
        stems: set[str] = set()
        for path in self._paths:
            whole = PurePosixPath(path)
            for one in (whole.with_suffix(""), *whole.parents):
                parts = one.parts
                stems.update("/".join(parts[start:]) for start in range(len(parts)))
        return frozenset(stems)

    def source(self, path: str) -> bool:
        """True for a file of the base that is not a test."""
        path = _relative(path)
        return path in self._paths and not is_test_path(path)

    def file(self, path: str) -> bool:
        return _relative(path) in self._paths

    def module(self, dotted: str) -> bool:
        """True for a Python module or package of the base, wherever its sources start."""
        return dotted.replace(".", "/") in self._stems

    def script(self, specifier: str) -> bool:
        """True for a JavaScript import of a file in the base, with or without its suffix; False for packages."""
        name = _relative(specifier)
        if not specifier.startswith((".", "/", WORKSPACE)):
            return False
        parts = [part for part in name.split("/") if part not in (".", "..")]
        return "/".join(parts) in self._stems or str(PurePosixPath(*parts).with_suffix("")) in self._stems

    def defines(self, name: str) -> bool:
        """True if some source file of the base defines this name."""
        if not name.isidentifier():
            return False
        pattern = re.compile(f"{_DEFINING}|{_ASSIGNING}".format(name=re.escape(name)).encode(), re.MULTILINE)
        return any(pattern.search(content) for content in self._contents)

    @cached_property
    def _contents(self) -> list[bytes]:
        sources = [
            path
            for path, entry in self.tree.entries().items()
            if PurePosixPath(path).suffix in _SOURCES and entry.size <= MAX_FILE and not is_test_path(path)
        ]
        return list(self.tree.read_many(sources[:MAX_SEARCHED]).values())


def _relative(path: str) -> str:
    return path.removeprefix("file://").removeprefix(f"{WORKSPACE}/").removeprefix("./")
