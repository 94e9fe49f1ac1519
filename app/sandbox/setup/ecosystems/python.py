"""Python: a virtual environment at `/env` with the project, its test requirements, and pytest if its tests use it."""

import os
import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from app.sandbox.base import ENV, WORKSPACE
from app.sandbox.setup.declared.python_metadata import (
    BY_PLACE,
    LOCKS,
    PYTEST_SETTINGS,
    constraints,
    editable,
    files_read_at_install,
    inner_root,
    is_dev_name,
    is_test_name,
    normalised,
    own_extras,
    read_ini,
    read_metadata,
    uv_reads_more,
    workspace_roots,
)
from app.sandbox.setup.ecosystems.base import ABSENT, InstallStep, SetupChoice, program
from app.sandbox.setup.manifests import ManifestFiles, project_roots, table

PYTHON_MANIFESTS = (
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "Pipfile",
    "tox.ini",
    *PYTEST_SETTINGS,
    *LOCKS,
)
PYTHON_ENVIRONMENT = (
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_PREFER_BINARY", "1"),
    ("PIP_PROGRESS_BAR", "off"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("UV_COMPILE_BYTECODE", "1"),  # what commands write there is thrown away: each would compile it again
    ("UV_LINK_MODE", "copy"),
    ("UV_NO_PROGRESS", "1"),
    ("UV_PYTHON_DOWNLOADS", "never"),
    ("POETRY_VIRTUALENVS_CREATE", "false"),
    ("UV_PROJECT_ENVIRONMENT", ENV),
    ("VIRTUAL_ENV", ENV),
)
# -I: a project may have a top-level `pip`, `email` or `types` of its own, and the tree is the working directory.
_PIP = f"{ENV}/bin/python -I -m pip install"
_UV_PLACE = "/tmp/uv"  # noqa: S108  # inside, while the set-up lasts: no part of its result
_UV = f"{_UV_PLACE}/bin/uv pip install --python {ENV}/bin/python"
_GET_UV = f"{_PIP} --quiet --target {_UV_PLACE} uv || echo 'uv cannot be had here: pip is used'"
_CONSTRAINTS = f"{ENV}/constraints.txt"
_REQUIREMENTS = re.compile(r"(?:requirements[-_./](?P<after>[\w.-]+?)|(?P<before>[\w.-]+?)[-_.]requirements)\.txt")
_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_tests?|tests?)\.py")
_PYTEST = re.compile(r"'?pytest(?![\w.-])")
_IMPORTS_PYTEST = re.compile(r"^\s*(?:import|from)\s+pytest\b", re.MULTILINE)
_PLAIN_TEST = re.compile(r"^(?:async\s+)?def\s+test", re.MULTILINE)
_UNITTEST = re.compile(r"^\s*(?:import|from)\s+unittest\b", re.MULTILINE)
_PLAIN_REQUIREMENT = re.compile(r"\s*[A-Za-z][\w.-]*(?:\[[\w,.-]+\])?\s*(?:[<>=!~][^:{]*)?")
_LOCAL = re.compile(r"^\s*(?:-e\b|--editable\b|\.|/|[^#\s]*\s*@?\s*file:)", re.MULTILINE)
"""A line of a requirements file that names a directory."""
_LOCAL_PROJECT = re.compile(r"-e '?(?P<place>\.[^'\[\]]*)(?:\[(?P<extras>[^\]]*)\])?'?")
_INCLUDED = re.compile(r"^\s*-(?:r|c)\s*(\S+)", re.MULTILINE)
_TEST_FILES_READ = 60
_EXTENSIONS = re.compile(
    r"\bext[-_]modules\b|\bExtension\(|\bcythonize\(|\bcffi_modules\b|\bmaturin\b|\bsetuptools-rust\b"
)
_EDITABLE_SINCE = "2023-01-15"


def python_install_steps(files: ManifestFiles, python: Path, choice: SetupChoice) -> list[InstallStep]:
    """One environment for all of a repository's Python projects."""
    roots = project_roots(files, [name for name in PYTHON_MANIFESTS if name not in {"tox.ini", *PYTEST_SETTINGS}])
    roots = (*roots, *filter(None, [inner_root(files)]), *workspace_roots(files))
    wanted = list(choice.requirements) or [
        item for root in roots or ("",) for item in default_pip_arguments(files, root)
    ]
    wanted = _merged(wanted)
    if (choice.pytest or uses_pytest(files)) and not any(_PYTEST.match(item) for item in wanted):
        wanted.append("pytest")
    if not wanted:
        return []
    pins = [pin for root in roots for pin in constraints(files, root)]
    old = choice.before and choice.before < _EDITABLE_SINCE
    read = None if old else _files_read(files, roots, wanted)
    return [
        InstallStep(
            "pip",
            commands=(
                create_environment(Path(choice.python) if choice.python else python),
                _GET_UV,
                *_install(wanted, pins, choice.before, copies=read is None),
                *_linked(files, roots, wanted),
            ),
            tools=("python",),
            manifests=tuple(files) if read is None else read,
            environment=(*PYTHON_ENVIRONMENT, *(pair for root in roots for pair in version_environment(files, root))),
            facts=_layout(files, modules=any(item.startswith("-e") for item in wanted)),
            notes=_compiled(files),
            short=_short(wanted, choice.before),
            neutral=not (uv_reads_more(files) or any(item.startswith("-") for item in wanted)),
        )
    ]


def _python(text: str, *words: str) -> str:
    """The command that runs a program in the environment."""
    return shlex.join([f"{ENV}/bin/python", "-I", "-c", text, *words])


def _compiled(files: ManifestFiles) -> tuple[str, ...]:
    """A note for a project with extension modules."""
    declared = "".join(files.text(name) for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if not _EXTENSIONS.search(declared):
        return ()
    return ("its extension modules are compiled from the base: a change of their sources needs a `build:` line",)


def create_environment(python: Path) -> str:
    return f"{shlex.quote(str(python))} -I -m venv {ENV}"


def is_environment_creation(command: str) -> bool:
    return command.endswith(f" -I -m venv {ENV}")


def has_python(files: ManifestFiles) -> bool:
    """True if a configured set-up needs a virtual environment."""
    return any(path.endswith(".py") for path in files)


def uses_pytest(files: ManifestFiles) -> bool:
    """True if the tests are written for pytest, by configuration or by their content."""
    if any(name in files for name in PYTEST_SETTINGS) or any(
        path.rpartition("/")[2] == "conftest.py" for path in files
    ):
        return True
    if table(files.toml("pyproject.toml"), "tool", "pytest"):
        return True
    if "tool:pytest" in read_ini(files.text("setup.cfg")) or "pytest" in read_ini(files.text("tox.ini")):
        return True
    tests = [path for path in files if _TEST_FILE.fullmatch(path)][:_TEST_FILES_READ]
    return any(
        _IMPORTS_PYTEST.search(text) or (_PLAIN_TEST.search(text) and not _UNITTEST.search(text))
        for text in files.texts(tests)
    )


def default_pip_arguments(files: ManifestFiles, root: str) -> list[str]:
    """pip's arguments for one project: it and its test requirements, else its development requirements."""
    metadata = read_metadata(files, root)
    extras: list[str] = []
    chosen = _tox_requirements(files, root)
    for wanted in (is_test_name, is_dev_name):
        extras = [name for name in metadata.extras if wanted(name)]
        groups = [item for name, items in metadata.groups.items() if wanted(name) for item in items]
        listed = [path for path in _requirement_files(files, root) if wanted(_requirement_name(path[len(root) :]))]
        # Of several with the same purpose (`tests`, `tests-min`, `tests-dev`), the one with the shortest name.
        listed = sorted(listed, key=lambda path: (len(path), path))[:1]
        if extras or groups or listed:
            own = [found for item in groups if (found := own_extras(metadata, item))]
            extras += [name for found in own for name in found]
            others = [item for item in groups if own_extras(metadata, item) is None]
            chosen = [*(f"-r {shlex.quote(path)}" for path in listed), *_quoted(others)]
            break
    everyday = f"{root}requirements.txt"
    listing = [f"-r {shlex.quote(everyday)}"] if files.text(everyday).strip() else []
    project = [editable(root, extras)] if metadata.installable else _quoted(metadata.requirements)
    return [*project, *listing, *chosen]


def _quoted(requirements: Iterable[str]) -> list[str]:
    """Requirements as quoted words; whatever looks like an option is dropped."""
    return [shlex.quote(item.strip()) for item in requirements if item.strip()[:1].isalnum()]


def _requirement_files(files: ManifestFiles, root: str) -> list[str]:
    names = [path for path in files if path.startswith(root) and path.endswith(".txt") and "requirements" in path]
    return sorted(path for path in names if _requirement_name(path[len(root) :]))


def _requirement_name(path: str) -> str:
    """`dev` for `requirements-dev.txt`, `dev-requirements.txt` and `requirements/dev.txt`, else empty."""
    found = _REQUIREMENTS.fullmatch(path)
    return (found["after"] or found["before"]) if found else ""


def _tox_requirements(files: ManifestFiles, root: str) -> list[str]:
    """The plain requirements of tox's main environment, if nothing else names the test requirements."""
    lines = read_ini(files.text(f"{root}tox.ini")).get("testenv", {}).get("deps", "").splitlines()
    return _quoted(line for line in lines if _PLAIN_REQUIREMENT.fullmatch(line))


def _merged(wanted: Iterable[str]) -> list[str]:
    """Each argument once, and all extras of one project in one."""
    found: dict[str, list[str]] = {}
    for item in dict.fromkeys(wanted):
        local = _LOCAL_PROJECT.fullmatch(item)
        names = found.setdefault(local["place"] if local else item, [])
        names += [name.strip() for name in (local["extras"] or "").split(",") if name.strip()] if local else []
    return [editable(_root(item), names) if item.startswith(".") else item for item, names in found.items()]


def _install(wanted: list[str], pins: list[str], before: str, *, copies: bool) -> tuple[str, ...]:
    """All in one call, so that the resolver sees all.

    Pins are of the time they were written, and may not fit this interpreter: then the same without them, without what
    cannot be had, and in the end without the requirement files that are nobody's declared dependencies. Old build
    back-ends know no editable install; the project is then copied, and linked to the tree afterwards. Without `copies`
    the result is for other commits too, and no file of the tree may be in it.
    """
    # Back-ends of that time may not know editable installs; the first ones that do are close enough.
    dated = (
        f" --exclude-newer {before} --exclude-newer-package setuptools={max(before, _EDITABLE_SINCE)}" if before else ""
    )
    dated += f" --exclude-newer-package wheel={max(before, _EDITABLE_SINCE)}" if before else ""
    command = f"{_UV}{dated} {' '.join(wanted)}"
    attempts = [f"{command} -c {_CONSTRAINTS}"] if pins else []
    attempts.append(command)
    copied = [item.removeprefix("-e ") for item in wanted]
    if copies and copied != wanted:
        attempts.append(f"{_UV}{dated} {' '.join(copied)}")
    files = [item.removeprefix("-r ") for item in wanted if item.startswith("-r ")]
    others = [item for item in wanted if not item.startswith(("-r ", "-c "))]
    if any(not item.startswith(("-e ", "-c ")) for item in wanted):
        attempts.append(f"{_python(program('python_leave_out.py'), ABSENT)} {_UV}{dated} -- {' '.join(wanted)}")
    if files and others:
        attempts.append(f"{_UV}{dated} {' '.join(others)}")
    attempts.append(f"{_PIP} --use-pep517 {' '.join(wanted)}")
    install = " || ".join(attempts)
    if not pins:
        return (install,)
    lines = " ".join(shlex.quote(pin) for pin in pins)
    return (f"printf '%s\\n' {lines} > {_CONSTRAINTS}", install)


def _short(wanted: list[str], before: str) -> tuple[str, ...]:
    packages = " ".join(wanted)
    if before:  # pip has no such option
        return ("pip install uv", f"uv pip install --exclude-newer {before} {packages}")
    return (f"pip install {packages}",)


def _files_read(files: ManifestFiles, roots: Collection[str], wanted: Iterable[str]) -> tuple[str, ...] | None:
    """The files that decide the result; None if code or files from anywhere become a part of it."""
    listed = _listed(files, wanted)
    found = [f"{root}{name}" for root in roots for name in PYTHON_MANIFESTS]
    found += [*listed, *(path for root in roots for path in _requirement_files(files, root))]
    if uv_reads_more(files) or any(_LOCAL.search(files.text(path)) for path in listed):
        return None
    for item in wanted:
        place = _LOCAL_PROJECT.fullmatch(item)
        read = files_read_at_install(files, _root(place["place"])) if place else None
        if read is None and (item.startswith("-e") or BY_PLACE.search(item)):
            return None
        found += read or ()
    return tuple(found)


def _listed(files: ManifestFiles, wanted: Iterable[str]) -> list[str]:
    """The requirement files that are named, and those that these name."""
    found = [path for item in wanted if item.startswith(("-r ", "-c ")) for path in shlex.split(item)[1:]]
    for path in found:
        inside = (str(PurePosixPath(path).parent / named) for named in _INCLUDED.findall(files.text(path)))
        found += [name for each in inside if (name := os.path.normpath(each)) not in found]
    return found


def _root(place: str) -> str:
    return "" if place == "." else place.removeprefix("./").rstrip("/") + "/"


def _linked(files: ManifestFiles, roots: Collection[str], wanted: list[str]) -> tuple[str, ...]:
    """Check that the project is imported from the tree; if it was copied, put the tree in the copy's place."""
    commands = []
    for root in roots or ("",):
        place = f"./{root.rstrip('/')}" if root else "."
        if not any(item.startswith((f"-e {place}", f"-e '{place}")) for item in wanted):
            continue
        name = read_metadata(files, root).name
        for source, module in _modules(files, root, name)[:1]:
            where = f"{WORKSPACE}/{source}".rstrip("/")
            commands.append(f"cd /tmp && {_python(program('python_link.py'), module, where)}")
    return tuple(commands)


def _modules(files: ManifestFiles, root: str, name: str) -> list[tuple[str, str]]:
    """Where a project's own package or module is: the directory to import from, and its name."""
    found = []
    for source in (f"{root}src/", root, f"{root}lib/"):
        tops = [path[len(source) :] for path in files if path.startswith(source)]
        modules = {path.split("/")[0] for path in tops if path.count("/") == 1 and path.endswith("/__init__.py")}
        modules |= {path.removesuffix(".py") for path in tops if "/" not in path and path.endswith(".py")}
        same = [module for module in modules if normalised(module) == name and module.isidentifier()]
        found += [(source, module) for module in same]
        if not same and source.endswith("src/") and len(modules) == 1:
            found += [(source, module) for module in modules if module.isidentifier()]
    return found


def _layout(files: ManifestFiles, *, modules: bool) -> tuple[str, ...]:
    """An editable install remembers where top-level packages and modules are."""
    paths = [PurePosixPath(path) for path in files if path.endswith(".py")]
    found = {str(path.parent) for path in paths if path.name == "__init__.py" and len(path.parts) <= 3}
    if modules:
        found |= {"/".join(path.parts[: 2 if path.parts[0] == "src" else 1]) for path in paths}
    return tuple(sorted(found))


_FROM_GIT = re.compile(
    r"setuptools[-_]scm|use_scm_version|hatch[-_]vcs|versioningit|\bpbr\b|poetry-dynamic-versioning|vcs-versioning"
)
_CHANGELOG = re.compile(r"(?:CHANGELOG|CHANGES|HISTORY|NEWS|RELEASES?)(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_HEADING = re.compile(r"^[#=\[\s*v]*(?:[\w.-]+\s+|[Vv]ersion\s+)?\[?v?(\d+\.\d+(?:\.\d+)?)\b", re.MULTILINE)
# Plugins that a project's own tests install more often set lower bounds on it than upper ones.
_UNKNOWN = "999.0.0"
_CHANGELOGS_READ = 5


def version_environment(files: ManifestFiles, root: str) -> tuple[tuple[str, str], ...]:
    """Variables that replace git tags; the changelog's newest version is close enough for dependants' bounds."""
    declared = "".join(files.text(f"{root}{name}") for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if not _FROM_GIT.search(declared):
        return ()
    version = _newest(files, root)
    return (
        ("PBR_VERSION", version),
        ("PDM_BUILD_SCM_VERSION", version),
        ("POETRY_DYNAMIC_VERSIONING_BYPASS", version),
        ("SETUPTOOLS_SCM_PRETEND_VERSION", version),
    )


def _newest(files: ManifestFiles, root: str) -> str:
    """The first version in a changelog's heading, searched near the top of the tree first."""
    named = [path for path in files if path.startswith(root) and _CHANGELOG.fullmatch(path.rpartition("/")[2])]
    nearest = sorted(named, key=lambda path: (path.count("/"), path))[:_CHANGELOGS_READ]
    return next((found[1] for text in map(files.text, nearest) if (found := _HEADING.search(text))), _UNKNOWN)
