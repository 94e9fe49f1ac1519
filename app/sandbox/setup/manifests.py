"""The manifests of a commit: which there are, and what stands in them."""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from app.core.patch import Tree
from app.core.text import words
from app.core.yaml_and_toml import toml_table, yaml_table

_MAX_MANIFEST_SIZE = 8 * 1024**2
# Manifests below these belong to samples and fixtures, not to the project.
NOT_THE_PROJECT = words("""
    doc docs example examples fixtures node_modules sample samples test testdata tests third_party vendor
""")


class ManifestFiles:
    """The manifests of a commit; absent, oversized and broken files count as empty."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.entries = tree.entries()
        self.gitlinks = tree.gitlinks()

    def __contains__(self, path: str) -> bool:
        return path in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def text(self, path: str) -> str:
        entry = self.entries.get(path)
        if entry is None or entry.size > _MAX_MANIFEST_SIZE or entry.mode == "120000":
            return ""
        return self._tree.read(path).decode("utf-8-sig", "replace")

    def texts(self, paths: Iterable[str]) -> list[str]:
        """Several files in one read."""
        small = [path for path in paths if self.entries[path].size <= _MAX_MANIFEST_SIZE]
        return [content.decode("utf-8", "replace") for content in self._tree.read_many(small).values()]

    def named(self, names: Container[str]) -> tuple[str, ...]:
        """The files with one of these names, in any directory."""
        return tuple(path for path in self.entries if PurePosixPath(path).name in names)

    def toml(self, path: str) -> dict[str, Any]:
        try:
            return toml_table(self.text(path))
        except ValueError:
            return {}

    def json(self, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self.text(path) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def yaml(self, path: str) -> dict[str, Any]:
        """Every scalar as text; with aliases, parts may be the same object."""
        try:
            return yaml_table(self.text(path))
        except ValueError:
            return {}

    def digest(self, paths: Iterable[str]) -> str:
        """One hash over the contents of those of `paths` that exist."""
        named = sorted({path for path in paths if path in self.entries})
        lines = [f"{path}\0{self.entries[path].mode}\0{self.entries[path].oid}\n" for path in named]
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def project_roots(files: ManifestFiles, manifests: Iterable[str]) -> tuple[str, ...]:
    """Where a project's manifest is: `""` for the top, else each first-level directory (`"server/"`) that has one."""
    names = frozenset(manifests)
    if any(name in files for name in names):
        return ("",)
    found = (path.split("/") for path in files)
    tops = {parts[0] for parts in found if len(parts) == 2 and parts[1] in names}
    return tuple(f"{top}/" for top in sorted(tops) if top.lower() not in NOT_THE_PROJECT and not top.startswith("."))


def is_member(directory: str, pattern: str) -> bool:
    """Whether a workspace's pattern (`packages/*`) means a directory."""
    path, wanted = PurePosixPath(directory), PurePosixPath(pattern)
    if "**" in wanted.parts:
        return directory.startswith(pattern.partition("**")[0])
    return len(path.parts) == len(wanted.parts) and path.match(pattern)


def table(data: Any, *keys: str) -> dict[str, Any]:
    """A nested table of a manifest; empty if it is missing or something else."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def texts(value: Any) -> list[str]:
    """The strings of a list in a manifest, ignoring everything else."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
