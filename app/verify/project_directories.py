"""The directories of a tree that may hold a project of their own, and suites that are run in one."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.core.patch import LINK, Tree
from app.core.yaml_and_toml import toml_table
from app.verify.frameworks import FrameworkName, SuiteCommand

MAX_DEPTH = 2
MAX_READ = 512 * 1024
_MARKERS = frozenset(
    {"pyproject.toml", "setup.py", "setup.cfg", "package.json", "go.mod", "Cargo.toml", "pom.xml", "build.gradle"}
    | {"build.gradle.kts", "mix.exs", "composer.json", "Gemfile", "go.work"}
)
_NOT_OURS = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_?party|3rdparty|extern(?:al)?|deps|submodules|\.?venv|site-packages|examples"
    r"|(?:googletest|gtest|googlemock|catch2?|doctest)(?:-[\w.]+)?)/",
    re.IGNORECASE,
)
"""Directories with other projects' files, and samples."""


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

    def toml(self, path: str) -> dict[str, Any]:
        """A file's tables; empty if it is missing or broken."""
        try:
            return toml_table(self.text(path))
        except ValueError:
            return {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The files directly in this directory."""
        return frozenset(path for path in self.files if "/" not in path)


def project_directories(tree: Tree) -> list[ProjectDirectory]:
    """The top of the tree, and the directories near it with a manifest of their own."""
    sizes = {
        path: entry.size for path, entry in tree.entries().items() if entry.mode != LINK and not _NOT_OURS.search(path)
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


def within(
    place: ProjectDirectory, framework: FrameworkName, command: str, narrowed: str | None = None, modules: str = ""
) -> SuiteCommand:
    """A suite of the directory. Chosen tests are appended to `narrowed`, or else to the command itself."""
    start, chosen = prefix(place.directory), command if narrowed is None else narrowed
    return SuiteCommand(
        command=f"{start}{command}",
        framework=framework,
        narrowed=f"{start}{chosen}" if chosen else "",
        directory=place.directory,
        modules=modules,
    )


def package_of(place: ProjectDirectory) -> dict[str, Any]:
    try:
        document = json.loads(place.read("package.json") or b"{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
