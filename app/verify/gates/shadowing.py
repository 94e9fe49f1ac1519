"""Finds new files that would be loaded instead of modules of the language, the framework or a dependency."""

import re
import sys
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from app.core.patch import Tree
from app.core.verification import GateResult
from app.core.yaml_and_toml import toml_table
from app.sandbox.base import Sandbox
from app.sandbox.setup.manifests import table
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.paths_of_tests import is_test_file

_FRAMEWORKS = frozenset({"pytest", "_pytest", "pluggy", "nose", "nose2", "hypothesis", "xdist", "coverage"})
_STANDARD = frozenset(sys.stdlib_module_names) | {"asyncore", "asynchat", "distutils", "imp", "smtpd", "cgi", "pipes"}
_ALWAYS_LOADED = frozenset({"sitecustomize", "usercustomize"})
_IMPORT_ROOTS = frozenset({"", "src", "lib", "python"})
_FIXTURES = frozenset({"fixtures", "fixture", "__fixtures__", "testdata", "examples", "cases"})
_REQUIRING = re.compile(
    r"[\w.-]*(?:requirements|constraints)[\w.-]*\.(?:txt|in)$|pyproject\.toml$|(?:poetry|uv|pdm)\.lock$"
)
_MODULES = frozenset({".py", ".pyc", ".so", ".pyd"})
_NODE_SETTINGS = frozenset({".npmrc", ".yarnrc", ".yarnrc.yml", "bunfig.toml"})
_LOADS_CODE = re.compile(
    r"node[-_]options|script-shell|shell-emulator|yarn-?path|plugins:|preload|init-module", re.IGNORECASE
)
_TAKES_OVER = re.compile(r"\s*(?:runner|linker|rustc|rustflags|rustdocflags|\[(?:source|patch|env|alias|target))")
_REPLACES = re.compile(r"\s*(?:replace\s+)?(\S+)(?:\s+v\S+)?\s+=>\s+(\.{1,2}(?:/\S*)?|/\S*)\s*$")
# File finders only list directories: nothing that is installed there is imported.
_LIST = """
import pkgutil, sys
paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
print("\\n".join(module.name for module in pkgutil.iter_modules(paths)))
"""
_MAX_BYTES = 2 << 20
_MAX_DEPTH = 3
_IMPORTED_AS = {
    "attrs": ("attr", "attrs"),
    "beautifulsoup4": ("bs4",),
    "opencv-python": ("cv2",),
    "pillow": ("PIL",),
    "protobuf": ("google",),
    "pyjwt": ("jwt",),
    "pyopenssl": ("OpenSSL",),
    "python-dateutil": ("dateutil",),
    "python-dotenv": ("dotenv",),
    "pyyaml": ("yaml",),
    "scikit-learn": ("sklearn",),
    "setuptools": ("setuptools", "pkg_resources"),
}


def shadowing(candidate: CandidatePatch, installed: Collection[str] = ()) -> GateResult:
    """Blocks changes of what existing imports refer to.

    `installed` are the top-level modules of the sandbox's environment; those in requirements and lock files are added
    to them.
    """
    blocked: list[str] = []
    names: frozenset[str] | None = None
    for delta in candidate.deltas:
        if delta.new is None:
            continue
        reason = _loaded_by_itself(delta) or _node_or_cargo(delta) or _go(candidate, delta)
        module = "" if reason else _new_module(candidate, delta)
        if module:
            names = frozenset(installed) | required_modules(candidate.base) if names is None else names
            reason = _shadowed(module, names)
        if reason:
            blocked.append(f"{displayed_path(delta.path)}: {reason}")
    return gate("shadowing", blocked=blocked)


async def installed_modules(sandbox: Sandbox, python: str = "python3") -> frozenset[str]:
    """The top-level modules that are installed for a Python of the sandbox; empty if it does not answer."""
    found = await sandbox.exec([python, "-I", "-c", _LIST], timeout=60.0, cwd="/", separate_stderr=True)
    return frozenset(found.output.decode("utf-8", "replace").split()) if found.ok else frozenset()


def _loaded_by_itself(delta: ChangedPath) -> str:
    path = PurePosixPath(delta.path)
    if not delta.created:
        return ""
    if path.suffix == ".pth":
        return "Python executes it at every start"
    if path.suffix in _MODULES and not _ALWAYS_LOADED.isdisjoint((path.name.partition(".")[0], path.parent.name)):
        return "Python imports it at every start"
    if any(part.endswith((".dist-info", ".egg-info")) for part in path.parts[:-1]):
        return "would look like an installed distribution, and its plugins would be loaded"
    return ""


def _node_or_cargo(delta: ChangedPath) -> str:
    path = PurePosixPath(delta.path)
    parts = path.parts
    if "node_modules" in parts[:-1] and _FIXTURES.isdisjoint(parts[: parts.index("node_modules")]):
        return "would replace an installed package"
    if parts[-1] in _NODE_SETTINGS and any(_LOADS_CODE.search(line) for _, line in delta.added):
        return "loads code into every program"
    settings = path.parent.name == ".cargo" and path.name in ("config", "config.toml")
    if settings and any(_TAKES_OVER.match(line) for _, line in delta.added):
        return "changes how everything is built and run"
    return ""


def _go(candidate: CandidatePatch, delta: ChangedPath) -> str:
    path = PurePosixPath(delta.path)
    if path.name in ("go.mod", "go.work"):
        return _replaced(candidate.base, delta)
    if "vendor" not in path.parts[:-1] or path.suffix != ".go":
        return ""
    above = path.parts[: path.parts.index("vendor")]
    listed = "/".join((*above, "vendor", "modules.txt"))
    if "/".join((*above, "go.mod")) not in candidate.base.entries() or listed in candidate.patch.paths():
        return ""  # not a module, or a dependency that is updated together with its list
    return "would be built instead of a dependency"


def _replaced(base: Tree, delta: ChangedPath) -> str:
    """A dependency that now comes from a directory, unless it is one of this repository's own modules."""
    own: set[str] | None = None
    for _, line in delta.added:
        if found := _REPLACES.match(line):
            own = _own_modules(base) if own is None else own
            if found[1] not in own and not any(found[1].startswith(f"{module}/") for module in own):
                return f"has {found[1]} built from {found[2]}"
    return ""


def _own_modules(base: Tree) -> set[str]:
    paths = [path for path in base.entries() if PurePosixPath(path).name == "go.mod"]
    texts = (content.decode("utf-8", "replace") for content in base.read_many(paths[:100]).values())
    return {found[1] for text in texts if (found := re.search(r"^module\s+(\S+)", text, re.MULTILINE))}


def _new_module(candidate: CandidatePatch, delta: ChangedPath) -> str:
    """The top-level Python module or package of a file at the start of an import path; empty otherwise."""
    path = PurePosixPath(delta.path)
    if not delta.created or path.suffix not in _MODULES:
        return ""
    package = path.name.startswith("__init__.")
    root = path.parent.parent if package else path.parent
    name = path.parent.name if package else path.name.partition(".")[0]
    directory = "" if str(root) == "." else str(root)
    if not name or name == "__init__" or not _is_import_root(candidate, directory):
        return ""
    starts = tuple(f"{root}/{name}" if root else name for root in {*_IMPORT_ROOTS, directory})
    mine = tuple(f"{start}{end}" for start in starts for end in (".py", "/"))
    own = any(path.startswith(mine) for path in candidate.base.entries())
    return "" if own else name


def _is_import_root(candidate: CandidatePatch, directory: str) -> bool:
    """The usual directories, and those of tests, which a runner puts first."""
    if directory in _IMPORT_ROOTS:
        return True
    if f"{directory}/__init__.py" in candidate.modes:
        return False
    start = f"{directory}/"
    return any(
        is_test_file(path) for path in candidate.modes if path.startswith(start) and "/" not in path[len(start) :]
    )


def _shadowed(module: str, installed: Collection[str]) -> str:
    if module in _FRAMEWORKS:
        return "would be imported instead of the test framework"
    if module in _STANDARD:
        return f"would be imported instead of the standard library's `{module}`"
    return f"would be imported instead of the installed `{module}`" if module in installed else ""


def required_modules(base: Tree) -> frozenset[str]:
    """The top-level modules of the distributions that requirements, `pyproject.toml` and lock files name."""
    wanted = [
        path
        for path, entry in base.entries().items()
        if path.count("/") < _MAX_DEPTH and entry.size <= _MAX_BYTES and _REQUIRING.match(PurePosixPath(path).name)
    ]
    found: set[str] = set()
    for path, content in base.read_many(wanted).items():
        text = content.decode("utf-8", "replace")
        for name in _required_in_toml(text) if path.endswith((".toml", ".lock")) else _names(text.splitlines()):
            plain = re.sub(r"[-_.]+", "-", name).lower()
            found.update(_IMPORTED_AS.get(plain, (name.replace("-", "_"), plain.replace("-", "_"))))
    return frozenset(found)


def _names(lines: object) -> Iterator[str]:
    """The distributions of a list of requirements."""
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, str) and (found := re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)):
            yield found[1]


def _required_in_toml(text: str) -> Iterator[str]:
    try:
        document = toml_table(text)
    except ValueError:
        return
    project, poetry = table(document, "project"), table(document, "tool", "poetry")
    yield from _names(project.get("dependencies"))
    for groups in (table(project, "optional-dependencies"), table(document, "dependency-groups")):
        for group in groups.values():
            yield from _names(group)
    groups = table(poetry, "group")
    for group in (poetry, *(table(groups, name) for name in groups)):
        # Poetry's "python" is the version of Python itself.
        yield from {*table(group, "dependencies"), *table(group, "dev-dependencies")} - {"python"}
    packages = document.get("package")
    for package in packages if isinstance(packages, list) else ():
        local = isinstance(package, dict) and {"editable", "virtual"} & table(package, "source").keys()
        if isinstance(package, dict) and isinstance(package.get("name"), str) and not local:
            yield package["name"]
