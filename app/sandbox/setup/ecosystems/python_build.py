"""Tells Python projects whose editable install executes and copies no file of the tree, and which files decide it.

Such an environment is good for every commit with the same of these files. Whatever is not known here counts as code.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from app.sandbox.setup.ecosystems.base import ManifestFiles, table, texts
from app.sandbox.setup.ecosystems.python_metadata import normalised


class _Backend(NamedTuple):
    """`editable` is the major version that all have exceeded that know no editable install (they copy instead).
    `settings` is a back-end's table below `tool`, `known` the keys there that neither execute nor copy anything, and
    `unread` those of which an editable install makes nothing."""

    requires: frozenset[str]
    editable: int
    settings: tuple[str, ...]
    known: frozenset[str]
    unread: frozenset[str] = frozenset()


_BACKENDS: Mapping[str, _Backend] = {
    "hatchling.build": _Backend(
        frozenset({"hatchling", "hatch-vcs", "hatch-fancy-pypi-readme"}),
        0,
        ("hatch",),
        frozenset(
            {"version", "path", "source", "build", "targets", "wheel", "packages", "include", "exclude", "artifacts"}
        )
        | {"only-include", "hooks", "vcs", "version-file", "metadata", "allow-direct-references", "raw-options"},
        frozenset({"envs", "sdist", "publish", "fancy-pypi-readme", "raw-options"}),
    ),
    "flit_core.buildapi": _Backend(
        frozenset({"flit-core"}), 3, ("flit",), frozenset({"module", "name", "sdist"}), frozenset({"sdist"})
    ),
    "poetry.core.masonry.api": _Backend(
        frozenset({"poetry-core"}),
        1,
        ("poetry",),
        frozenset({"name", "version", "description", "authors", "maintainers", "license", "readme", "homepage"})
        | {"repository", "documentation", "keywords", "classifiers", "packages", "include", "exclude"}
        | {"package-mode", "requires-poetry"},
        frozenset({"dependencies", "dev-dependencies", "group", "extras", "urls", "plugins", "scripts", "packages"}),
    ),
    "setuptools.build_meta": _Backend(
        frozenset({"setuptools", "setuptools-scm", "wheel"}),
        64,
        ("setuptools",),
        frozenset({"packages", "find", "where", "include", "exclude", "namespaces", "package-dir", "package-data"})
        | {"include-package-data", "zip-safe", "license-files", "dynamic", "py-modules", "version", "readme", "file"}
        | {"content-type", "dependencies", "optional-dependencies"},
        frozenset({"package-dir", "package-data"}),
    ),
    "uv_build": _Backend(
        frozenset({"uv-build"}),
        -1,
        ("uv", "build-backend"),
        frozenset({"module-name", "module-root", "namespace", "source-include", "source-exclude", "wheel-exclude"}),
    ),
}
_CODE_BESIDE = ("setup.py", "setup.cfg", "hatch.toml")
_UV_SETTINGS = frozenset(
    {"dev-dependencies", "default-groups", "required-version", "package", "managed", "exclude-newer"}
) | {
    "build-backend",
    "constraint-dependencies",
    "override-dependencies",
    "resolution",
    "prerelease",
    "environments",
    "conflicts",
}
_REQUIREMENT = re.compile(r"\s*([A-Za-z][\w.-]*)\s*((?:[<>!]=?\s*[\w.*]+\s*,?\s*)*)")
_UPPER = re.compile(r"<\D*(\d+)")
BY_PLACE = re.compile(r"@|\bfile:")
"""A requirement that is not had from an index by its name."""


def files_read_at_install(files: ManifestFiles, root: str) -> tuple[str, ...] | None:
    """What an editable install of the project in `root` depends on; None if that may be any file."""
    pyproject = files.toml(f"{root}pyproject.toml")
    build, project, tool = (table(pyproject, name) for name in ("build-system", "project", "tool"))
    backend = _BACKENDS.get(str(build.get("build-backend")))
    if backend is None or any(f"{root}{name}" in files for name in _CODE_BESIDE):
        return None
    requires = [_REQUIREMENT.fullmatch(text) for text in texts(build.get("requires"))]
    settings = table(tool, *backend.settings)
    version = table(settings, "version")
    if (
        "backend-path" in build
        or not all(found and _suits(backend, normalised(found[1]), found[2]) for found in requires)
        or not backend.known.issuperset(_keys(settings, backend.unread))
        or uv_reads_more(files, root)
        or BY_PLACE.search(repr([project.get("dependencies"), project.get("optional-dependencies")]))
        or version.get("source", "regex") not in {"regex", "vcs"}
        # a directory that a dependency is, and a file that a script is
        or not {"path", "reference", "file"}.isdisjoint(_keys(table(tool, "poetry"), ()))
        # flit imports a module whose version it cannot read
        or ("flit" in backend.settings and project.get("dynamic"))
    ):
        return None
    read = [version.get("path"), *_files(settings.get("dynamic"))]
    return (f"{root}pyproject.toml", *(f"{root}{path}" for path in read if path))


def uv_reads_more(files: ManifestFiles, root: str = "") -> bool:
    """Whether uv's settings may name further files of the tree, such as wheels that take a package's place."""
    settings = [table(files.toml(f"{place}pyproject.toml"), "tool", "uv") for place in {"", root}]
    return (
        "uv.toml" in files
        or any(not _UV_SETTINGS.issuperset(each) for each in settings)
        or BY_PLACE.search(repr(settings)) is not None
    )


def _suits(backend: _Backend, name: str, bounds: str) -> bool:
    """Whether that is the back-end or a known plugin of it, in a version that need not copy the project."""
    return name in backend.requires and all(int(upper) > backend.editable for upper in _UPPER.findall(bounds))


def _keys(settings: Mapping[str, Any], unread: Collection[str]) -> Iterator[str]:
    for key, value in settings.items():
        if key not in unread:
            yield key
            yield from _keys(value, unread) if isinstance(value, dict) else ()


def _files(dynamic: Any) -> Iterator[str]:
    """setuptools reads a version or a list of dependencies from these."""
    for value in dynamic.values() if isinstance(dynamic, dict) else ():
        named = value.get("file") if isinstance(value, dict) else None
        yield from [named] if isinstance(named, str) else texts(named)
