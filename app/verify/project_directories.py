"""Finds the directories of a repository in which a project may start, each seen as if it were the top."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from app.core.tree import Tree

MAX_DEPTH = 2
MAX_READ = 512 * 1024
_MARKERS = frozenset(
    {"pyproject.toml", "setup.py", "setup.cfg", "package.json", "go.mod", "Cargo.toml", "pom.xml", "build.gradle"}
)
_NOT_OURS = frozenset({"node_modules", "vendor", "third_party", ".venv", "venv", "site-packages", "examples"})


@dataclass(frozen=True)
class ProjectDirectory:
    """A directory (empty for the top) and the files below it, by their path from there."""

    tree: Tree
    directory: str
    files: Mapping[str, int] = field(repr=False)
    """Size in bytes by path."""

    @property
    def depth(self) -> int:
        return self.directory.count("/") + 1 if self.directory else 0

    def read(self, path: str) -> bytes:
        """A file's bytes; empty if it is missing or far too long."""
        if self.files.get(path, MAX_READ + 1) > MAX_READ:
            return b""
        return self.tree.read(f"{self.directory}/{path}" if self.directory else path)

    def text(self, path: str) -> str:
        return self.read(path).decode(errors="replace")

    @cached_property
    def names(self) -> frozenset[str]:
        """The files directly in this directory."""
        return frozenset(path for path in self.files if "/" not in path)


def project_directories(tree: Tree) -> list[ProjectDirectory]:
    """The top of the tree, and the directories near it with a manifest of their own."""
    sizes = {
        path: entry.size
        for path, entry in tree.entries().items()
        if entry.mode != "120000" and _NOT_OURS.isdisjoint(path.split("/")[:-1])
    }
    directories = {""}
    for path in sizes:
        directory, _, name = path.rpartition("/")
        if name in _MARKERS and directory.count("/") < MAX_DEPTH:
            directories.add(directory)
    top = sizes
    if _MARKERS.isdisjoint(sizes):  # nothing starts at the top, so each directory below is a project of its own
        inner = tuple(f"{directory}/" for directory in directories if directory)
        top = {path: size for path, size in sizes.items() if not path.startswith(inner)}
    below = (
        ProjectDirectory(tree, directory, _below(sizes, directory)) for directory in sorted(directories) if directory
    )
    return [ProjectDirectory(tree, "", top), *below]


def _below(sizes: Mapping[str, int], directory: str) -> dict[str, int]:
    start = f"{directory}/"
    return {path.removeprefix(start): size for path, size in sizes.items() if path.startswith(start)}


def prefix(directory: str) -> str:
    """The prefix that runs a command in a directory."""
    return f"cd {shlex.quote(directory)} && " if directory else ""
