"""The input of a rule (a commit's manifests, this machine's tools) and its output."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from app.core.patch import Tree
from app.core.text import words
from app.core.yaml_and_toml import toml_table

_MAX_MANIFEST_SIZE = 8 * 1024**2
# Manifests below these belong to samples and fixtures, not to the project.
NOT_THE_PROJECT = words("""
    doc docs example examples fixtures node_modules sample samples test testdata tests third_party vendor
""")

ABSENT = " cannot be had here, and is left out"
"""What ends a line of a set-up's output that begins with a dependency's name."""


@dataclass(frozen=True, slots=True)
class InstallStep:
    """What has to be installed for one ecosystem in one directory.

    `client` is the downloader (`pip`, `npm`, `cargo`, `go`), `tools` the programs whose versions the result depends
    on, `manifests` the files that decided it (all files if code of the project may be executed), `facts` anything else
    the result depends on. `neutral` means that no code that the project chooses is executed, so that the result is
    valid for every project with the same needs. `short` is what a person would write; empty for `commands` as they are.
    """

    client: str
    commands: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    directories: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    neutral: bool = False
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetupChoice:
    """What one candidate decides about a set-up; what is empty is decided by the manifests.

    `requirements` are pip's arguments, quoted for a shell. `python` is an interpreter that the sandbox shows at the
    same path. `before` is a date (ISO 8601): packages are resolved as they were then. `pytest` says that it will run
    the tests, whoever they are written for. `node` is a major version that npm brings (`22`), or a program of this
    machine that the sandbox shows at the same path.
    """

    requirements: tuple[str, ...] = ()
    python: str = ""
    before: str = ""
    pytest: bool = False
    node: str = ""


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
