"""Surveys this machine once per process for everything that sandboxes show."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.bubblewrap.binary import choose_bwrap
from app.sandbox.bubblewrap.etc import synthetic_etc
from app.sandbox.bubblewrap.profile import INSIDE_UID, ROOT_UID, SYSTEM_PATH, HostMachine, HostPrograms, Mount
from app.sandbox.setup.toolchains import find_toolchains

TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class HostSurvey:
    """The machine, and notes on what it has that a sandbox does not show."""

    machine: HostMachine
    left_out: tuple[str, ...]


def survey_host(caches: Path, environment: Mapping[str, str], private: tuple[Path, ...]) -> HostSurvey:
    """Blocking. `caches` receives the generated /etc; `environment` is the host's (PATH, HOME, version managers')."""
    privileged = os.geteuid() == 0
    caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    bwrap, overlays = choose_bwrap(caches)
    toolchains = find_toolchains(environment, private)
    machine = HostMachine(
        programs=HostPrograms(bwrap, _system("setpriv"), _system("prlimit"), _system("env")),
        privileged=privileged,
        links=tuple(
            (str(Path("/", name).readlink()), f"/{name}") for name in TOP_LEVEL if Path("/", name).is_symlink()
        ),
        mounts=(
            *(Mount(Path("/", name), f"/{name}") for name in TOP_LEVEL if _real_directory(Path("/", name))),
            *synthetic_etc(caches, ROOT_UID if privileged else INSIDE_UID),
            *toolchains.mounts,
        ),
        path=toolchains.path,
        python=_python(toolchains.path),
        overlays=overlays,
    )
    return HostSurvey(machine, toolchains.left_out)


def _system(program: str) -> str:
    at = shutil.which(program, path=":".join(SYSTEM_PATH))
    if at is None:
        raise SandboxError(
            f"The sandbox needs the program {program}.", hint="Install the packages util-linux and coreutils."
        )
    return at


def _python(path: tuple[str, ...]) -> str:
    """An interpreter that exists inside: this process's own base, or the system's."""
    own = Path(sys.base_prefix).resolve() / "bin"
    directories = [str(own)] if str(own) in path else []
    at = shutil.which("python3", path=":".join((*directories, *SYSTEM_PATH)))
    if at is None:
        raise SandboxError("There is no python3 that a sandbox could use.", hint="Install Python 3 below /usr.")
    return at


def _real_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
