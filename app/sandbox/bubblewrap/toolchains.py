"""Finds toolchains outside /usr (pyenv, nvm, rustup, a Go download): the directories to show, and their PATH."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.base import SYSTEM_PATH
from app.sandbox.bubblewrap.command import WRITABLE, Mount

ASK_SECONDS = 30.0
_PROGRAM = re.compile(r"python(3\.\d+)")
_PREFIX = ("-I", "-c", "import sys; print(sys.base_prefix)")
_NODES = (
    ("NVM_DIR", ".nvm", "versions/node/v*"),
    ("FNM_DIR", ".local/share/fnm", "node-versions/v*/installation"),
    ("VOLTA_HOME", ".volta", "tools/image/node/*"),
    ("MISE_DATA_DIR", ".local/share/mise", "installs/node/*"),
    ("ASDF_DATA_DIR", ".asdf", "installs/nodejs/*"),
    ("N_PREFIX", ".n", "n/versions/node/*"),
)
"""Version managers of Node: the variable that says where each is, else a directory of the home, and its Nodes."""
NEWEST_PYTHON = 15
"""Minor versions of Python 3 below this are searched for, because some agents need a newer one than we do."""


@dataclass(frozen=True, slots=True)
class Toolchains:
    """Directories to show read-only, at their own path, and the directories of programs among them."""

    mounts: tuple[Mount, ...]
    path: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Sentences about toolchains that were found and are not shown."""


@dataclass(frozen=True, slots=True)
class _FoundToolchain:
    name: str
    prefix: Path
    on_path: bool = True


def find_toolchains(environment: Mapping[str, str], private: Sequence[Path]) -> Toolchains:
    """Search the host's PATH. `private` are directories that must never be shown, such as our own state."""
    mounts: dict[Path, Mount] = {}
    path = []
    left_out = []
    guarded = [*private, *([Path(environment["HOME"])] if environment.get("HOME") else [])]
    for found in _search(environment):
        reason = _too_broad(found.prefix, guarded)
        if reason:
            left_out.append(f"{found.name} in {found.prefix} is not shown inside: {reason}")
            continue
        if found.on_path:
            path.append(f"{found.prefix}/bin")
        if not found.prefix.is_relative_to("/usr"):  # all of which is shown anyway
            mounts[found.prefix] = Mount(found.prefix, str(found.prefix))
    outer = [
        mount for path, mount in mounts.items() if not any(path != top and path.is_relative_to(top) for top in mounts)
    ]
    return Toolchains(tuple(outer), tuple(dict.fromkeys(path)), tuple(left_out))


def _search(environment: Mapping[str, str]) -> Iterator[_FoundToolchain]:
    python = Path(sys.base_prefix).resolve()
    if not python.is_relative_to("/usr"):
        yield _FoundToolchain("Python", python)
    programs = [
        *((f"Python 3.{minor}", f"python3.{minor}", _PREFIX) for minor in _newer()),
        ("Node", "node", ("-p", "process.execPath")),
        ("Rust", "rustc", ("--print", "sysroot")),
        ("Go", "go", ("env", "GOROOT")),
    ]
    # All at once: a version manager's shim takes half a second to report a missing version.
    with ThreadPoolExecutor(len(programs)) as pool:
        prefixes = list(pool.map(lambda one: _prefix(one[1], one[2], environment), programs))
    for (name, _, _), prefix in zip(programs, prefixes, strict=True):
        if prefix is not None:
            yield _FoundToolchain(name, prefix)
    for version, program in installed_pythons(environment).items():
        prefix = program.parent.parent
        if not prefix.is_relative_to("/usr"):
            yield _FoundToolchain(f"Python {version}", prefix, on_path=False)
    for version, program in installed_nodes(environment).items():
        yield _FoundToolchain(f"Node {version}", program.parent.parent, on_path=False)


def installed_pythons(environment: Mapping[str, str]) -> dict[str, Path]:
    """Interpreters for projects by version (`3.8`): of the system, of pyenv, and those that uv has downloaded."""
    home = Path(environment.get("HOME", "/nonexistent"))
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    downloaded = Path(environment.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    found: dict[str, Path] = {}
    for top, pattern in (
        (pyenv, "3.*/bin/python3.?*"),
        (downloaded, "cpython-3.*/bin/python3.?*"),
        (Path("/usr"), "bin/python3.?*"),
    ):
        for program in sorted(top.glob(pattern)):
            if named := _PROGRAM.fullmatch(program.name):
                found.setdefault(named[1], program.resolve())
    return dict(sorted(found.items(), key=lambda item: int(item[0][2:])))


def installed_nodes(environment: Mapping[str, str]) -> dict[str, Path]:
    """Nodes for projects by major version (`22`), of each the newest: those of nvm, fnm, volta, mise, asdf and n."""
    home = Path(environment.get("HOME", "/nonexistent"))
    found: dict[str, tuple[list[int], Path]] = {}
    for variable, default, pattern in _NODES:
        top = Path(environment.get(variable) or home / default)
        for program in top.glob(f"{pattern}/bin/node"):
            place = str(program.relative_to(top))
            if (named := re.search(r"/v?(\d+)\.(\d+)\.(\d+)/", place)) and program.is_file():
                version = [int(number) for number in named.groups()]
                found[named[1]] = max(found.get(named[1], ([0], program)), (version, program))
    return {major: program for major, (_, program) in sorted(found.items(), key=lambda item: int(item[0]))}


def newer_pythons(environment: Mapping[str, str]) -> dict[int, Path]:
    """Interpreters that a sandbox shows besides our own, by their minor version."""
    question = ("-I", "-c", "import sys; print(sys._base_executable)")
    answers = {minor: _ask(f"python3.{minor}", question, environment) for minor in _newer()}
    return {minor: path for minor, path in answers.items() if path is not None}


def _newer() -> range:
    return range(sys.version_info.minor + 1, NEWEST_PYTHON)


def _prefix(program: str, question: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Where a program is installed that is in none of the system's own directories."""
    path = _ask(program, question, environment)
    if path is None:
        return None
    answer = path.resolve()
    prefix = answer.parent.parent if answer.is_file() else answer
    return prefix if prefix.is_dir() and f"{prefix}/bin" not in SYSTEM_PATH else None


def _ask(program: str, question: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """A path that a program reports about itself, because version managers use shims."""
    path = environment.get("PATH") or ":".join(SYSTEM_PATH)
    at = shutil.which(program, path=path)
    if at is None:
        return None
    try:
        answer = subprocess.run(
            [at, *question],
            env=dict(environment),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(answer.stdout.strip()) if answer.stdout.startswith("/") else None


def _too_broad(prefix: Path, guarded: Sequence[Path]) -> str:
    """Why a directory may not be shown: one with a home or our state would show far more than a toolchain."""
    for directory in guarded:
        for place in (directory.resolve(), directory.resolve() / ".local"):
            if place.is_relative_to(prefix):
                return f"it holds {place}"
    for inside in (*WRITABLE, "/env", "/etc", "/proc", "/dev", "/run"):
        if prefix.is_relative_to(inside):
            return f"{inside} is the sandbox's own"
    return ""
