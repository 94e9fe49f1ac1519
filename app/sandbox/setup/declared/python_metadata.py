"""Reads what a Python project's manifests declare, from any of the many places they may use, and tells projects whose
editable install executes and copies no file of the tree: such an environment is good for every commit with the same
manifests. What is not known here counts as code.
"""

import ast
import configparser
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.core.python_source import parse_python
from app.core.text import words
from app.sandbox.setup.manifests import NOT_THE_PROJECT, ManifestFiles, is_member, table, texts

_TEST_NAME = re.compile(r"(?:.*[-_.])?(?:tests?|testing|pytest|unittests?)(?:[-_.].*)?", re.IGNORECASE)
_DEV_NAME = re.compile(r"(?:dev|devel|develop|development)(?:[-_.].*)?", re.IGNORECASE)
_CARET = re.compile(r"\^\s*(\d+(?:\.\d+)*)\S*")
_NAME_AND_EXTRAS = re.compile(r"\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[(?P<extras>[\w\s,.-]*)\])?")
_TILDE = re.compile(r"~\s*(\d+)(?:\.(\d+))?\S*")


def is_test_name(name: str) -> bool:
    return _TEST_NAME.fullmatch(name) is not None


def is_dev_name(name: str) -> bool:
    return _DEV_NAME.fullmatch(name) is not None


def editable(root: str, extras: Iterable[str] = ()) -> str:
    """pip's argument for the project in the directory `root` (`""` or `"server/"`): `-e '.[docs,tests]'`."""
    place = f"./{root.rstrip('/')}" if root else "."
    names = ",".join(dict.fromkeys(extras))
    return f"-e {shlex.quote(f'{place}[{names}]' if names else place)}"


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, slots=True)
class PythonMetadata:
    """A declared project; `name` is normalised, and empty if only code defines it.

    `installable` means that there is a build back-end; a project without one is used from its directory, with
    `requirements` installed. `extras` are names only, `groups` lists of requirements by name.
    """

    name: str = ""
    installable: bool = False
    requirements: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_metadata(files: ManifestFiles, root: str) -> PythonMetadata:
    pyproject = files.toml(f"{root}pyproject.toml")
    cfg = read_ini(files.text(f"{root}setup.cfg"))
    setup = _setup_arguments(files.text(f"{root}setup.py"))
    poetry = table(pyproject, "tool", "poetry")
    extras = [*table(pyproject, "project", "optional-dependencies"), *table(poetry, "extras")]
    extras += [*cfg.get("options.extras_require", {}), *setup.get("extras_require", {})]
    name = table(pyproject, "project").get("name") or poetry.get("name") or table(cfg, "metadata").get("name")
    groups = _groups(pyproject, files.toml(f"{root}Pipfile"), setup)
    installable = _installable(files, root, pyproject, cfg)
    if not installable:  # then only the lists themselves can be installed
        optional = table(pyproject, "project", "optional-dependencies")
        groups |= {key: (*groups.get(key, ()), *texts(items)) for key, items in optional.items()}
    return PythonMetadata(
        name=normalised(str(name or "")),
        installable=installable,
        requirements=(*texts(table(pyproject, "project").get("dependencies")), *_poetry(table(poetry, "dependencies"))),
        extras=tuple(dict.fromkeys(extras)),
        groups=groups,
    )


def own_extras(metadata: PythonMetadata, requirement: str) -> list[str] | None:
    """The extras that a project requires of itself (`name[extra]` in its own groups), None for any other
    requirement."""
    found = _NAME_AND_EXTRAS.match(requirement)
    if not found or not metadata.name or normalised(found["name"]) != metadata.name:
        return None
    return [name.strip() for name in (found["extras"] or "").split(",") if name.strip()]


PYTEST_SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
"""What pytest prefers to pyproject.toml, tox.ini and setup.cfg."""
_PROJECT_FILES = words("""
    setup.py setup.cfg Pipfile tox.ini noxfile.py conftest.py requirements.txt package.json go.mod Cargo.toml pom.xml
""").union(PYTEST_SETTINGS)
_PROJECT_TOOLS = frozenset({"poetry", "uv", "pdm", "hatch", "flit", "setuptools", "tox", "pixi"})


def inner_root(files: ManifestFiles) -> str:
    """The directory (with a trailing slash) of the only project below a top whose pyproject.toml just has settings of
    tools such as linters, or of the one with most of the tests; else empty."""
    top = files.toml("pyproject.toml")
    if not top or top.keys() != {"tool"} or not _PROJECT_TOOLS.isdisjoint(table(top, "tool")):
        return ""
    if any(name in files for name in _PROJECT_FILES):
        return ""
    below = {path.partition("/")[0] for path in files if path.count("/") == 1} - NOT_THE_PROJECT
    found = [f"{name}/" for name in sorted(below) if read_metadata(files, f"{name}/").installable]
    tests = {root: sum(path.startswith(root) and "test" in path for path in files) for root in found}
    main = max(found, key=lambda root: tests[root], default="")
    return main if len(found) == 1 or (main and 2 * tests[main] > sum(tests.values())) else ""


def workspace_roots(files: ManifestFiles) -> tuple[str, ...]:
    """The directories (with a trailing slash) of the members of uv's workspace."""
    workspace = table(files.toml("pyproject.toml"), "tool", "uv", "workspace")
    wanted, others = texts(workspace.get("members")), texts(workspace.get("exclude"))
    below = [path.removesuffix("/pyproject.toml") for path in files if path.endswith("/pyproject.toml")]
    found = [name for name in below if any(is_member(name, each) for each in wanted)]
    return tuple(f"{name}/" for name in found if not any(is_member(name, each) for each in others))


def read_ini(text: str) -> dict[str, dict[str, str]]:
    """Sections of an INI file; empty if it is not one."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):  # AttributeError: an indented line below a key without a value
        return {}
    return {name: {key: value or "" for key, value in parser.items(name)} for name in parser.sections()}


def _installable(
    files: ManifestFiles, root: str, pyproject: Mapping[str, Any], cfg: Mapping[str, Mapping[str, str]]
) -> bool:
    if table(pyproject, "tool", "poetry").get("package-mode") is False:
        return False
    if table(pyproject, "tool", "uv").get("package") is False:
        return False
    return bool(
        "build-backend" in table(pyproject, "build-system")
        or "setup(" in files.text(f"{root}setup.py")
        or ("metadata" in cfg and "build-system" in pyproject)
        # Without a named back-end, the default one knows the src layout, and nothing else makes it importable.
        or ("project" in pyproject and any(path.startswith(f"{root}src/") and path.endswith(".py") for path in files))
    )


def _groups(
    pyproject: Mapping[str, Any], pipfile: Mapping[str, Any], setup: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Lists of development requirements by name, from every tool that has such lists."""
    tool = table(pyproject, "tool")
    found: dict[str, list[str]] = {name: _group(pyproject, name, ()) for name in table(pyproject, "dependency-groups")}
    for name, group in table(tool, "poetry", "group").items():
        found.setdefault(name, []).extend(_poetry(table(group, "dependencies")))
    found.setdefault("dev", []).extend(_poetry(table(tool, "poetry", "dev-dependencies")))
    found["dev"] += texts(table(tool, "uv").get("dev-dependencies"))
    for name, group in table(tool, "pdm", "dev-dependencies").items():
        found.setdefault(name, []).extend(texts(group))
    for name, environment in table(tool, "hatch", "envs").items():
        wanted = "test" if name in {"default", "hatch-test"} else name
        both = texts(table(environment).get("dependencies")) + texts(table(environment).get("extra-dependencies"))
        found.setdefault(wanted, []).extend(item for item in both if "{" not in item)
    found["dev"] += [*_poetry(table(pipfile, "packages")), *_poetry(table(pipfile, "dev-packages"))]
    found.setdefault("test", []).extend(setup.get("tests_require", []))
    return {name: tuple(items) for name, items in found.items() if items}


def _group(pyproject: Mapping[str, Any], name: str, within: tuple[str, ...]) -> list[str]:
    """One dependency group with the groups it includes; a cycle is cut, as installers would refuse it anyway."""
    items = table(pyproject, "dependency-groups").get(name, [])
    found = texts(items)
    for item in items if isinstance(items, list) else []:
        included = item.get("include-group") if isinstance(item, dict) else None
        if isinstance(included, str) and included not in (*within, name):
            found += _group(pyproject, included, (*within, name))
    return found


def _poetry(dependencies: Mapping[str, Any]) -> list[str]:
    """Requirements of Poetry's and Pipenv's tables; entries with a path, an address or a marker are left out."""
    found = []
    for name, wanted in dependencies.items():
        entry = wanted if isinstance(wanted, dict) else {"version": wanted}
        version = entry.get("version")
        if name == "python" or not isinstance(version, str) or entry.get("optional") or "markers" in entry:
            continue
        extras = ",".join(texts(entry.get("extras")))
        found.append(f"{name}{f'[{extras}]' if extras else ''}{_specifier(version)}")
    return found


def _specifier(version: str) -> str:
    """Poetry's caret and tilde as PEP 440 specifiers."""
    if caret := _CARET.fullmatch(version.strip()):
        parts = [int(part) for part in caret[1].split(".")]
        at = next((index for index, part in enumerate(parts) if part), len(parts) - 1)
        return f">={caret[1]},<{'.'.join(map(str, [*parts[:at], parts[at] + 1]))}"
    if tilde := _TILDE.fullmatch(version.strip()):
        upper = f"{tilde[1]}.{int(tilde[2]) + 1}" if tilde[2] else str(int(tilde[1]) + 1)
        return f">={version.strip().removeprefix('~').strip()},<{upper}"
    if version.strip() in {"*", ""}:
        return ""
    return version if version.lstrip()[0] in "<>=!~" else f"=={version.strip()}"


def _setup_arguments(source: str) -> dict[str, Any]:
    """The literal `extras_require` and `tests_require` of a setup.py, read without executing it."""
    tree = parse_python(source)
    if tree is None:
        return {}
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "setup"):
            continue
        for keyword in node.keywords:
            if keyword.arg == "extras_require" and isinstance(keyword.value, ast.Dict):
                names = [key.value for key in keyword.value.keys if isinstance(key, ast.Constant)]
                found["extras_require"] = [name for name in names if isinstance(name, str)]
            elif keyword.arg == "tests_require" and isinstance(keyword.value, ast.List):
                items = [item.value for item in keyword.value.elts if isinstance(item, ast.Constant)]
                found["tests_require"] = [item for item in items if isinstance(item, str)]
    return found


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


class _Backend(NamedTuple):
    """`editable` is the last major version without editable installs; a bound that admits it counts as code.
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
        words("""
            version path source build targets wheel packages include exclude artifacts only-include hooks vcs
            version-file metadata allow-direct-references raw-options
        """),
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
_UV_SETTINGS = words("""
    dev-dependencies default-groups required-version package managed exclude-newer build-backend constraint-dependencies
    override-dependencies resolution prerelease environments conflicts
""")
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
