"""Reads the versions that a Python lock file pins, as constraints that any pip understands."""

import re
from typing import Any

from app.sandbox.setup.ecosystems.base import ManifestFiles, table

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]*")
_TABLES = {"uv.lock": "package", "poetry.lock": "package", "pdm.lock": "package", "pylock.toml": "packages"}
LOCKS = (*_TABLES, "Pipfile.lock")


def constraints(files: ManifestFiles, root: str) -> tuple[str, ...]:
    """`name==version` lines of the first lock file found; a name locked at several versions is left to the resolver."""
    for lock, key in _TABLES.items():
        if f"{root}{lock}" in files:
            return _pins(_locked(files.toml(f"{root}{lock}").get(key)))
    if f"{root}Pipfile.lock" in files:
        data = files.json(f"{root}Pipfile.lock")
        entries = {**table(data, "develop"), **table(data, "default")}
        found = [(name, str(table(entry).get("version", "")).removeprefix("==")) for name, entry in entries.items()]
        return _pins(found)
    return ()


def _locked(packages: Any) -> list[tuple[str, str]]:
    """Name and version of packages from an index (not from a path, an address or a repository)."""
    found = []
    for package in packages if isinstance(packages, list) else []:
        source = table(package, "source")
        if source and "registry" not in source and source.get("type") != "legacy":
            continue
        found.append((str(table(package).get("name", "")), str(table(package).get("version", ""))))
    return found


def _pins(pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    versions: dict[str, set[str]] = {}
    for name, version in pairs:
        if _NAME.fullmatch(name) and _VERSION.fullmatch(version):
            versions.setdefault(name.lower(), set()).add(version)
    return tuple(f"{name}=={min(found)}" for name, found in sorted(versions.items()) if len(found) == 1)
