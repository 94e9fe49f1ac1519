"""The srt of this machine: where its program, its Node and what it starts are, and whether it is one that we know."""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.bubblewrap.binary import find_bwrap
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.srt.policy import Platform, SrtPrograms

PACKAGE = "@anthropic-ai/sandbox-runtime"
LEAST = (0, 0, 78)
"""The oldest version whose settings and behaviour were looked at."""
INSTALL = f"npm install -g {PACKAGE}"
HOMEBREW = ("/opt/homebrew/bin",)
GNU_FIND = "/usr/bin/find"
"""Where the contract has GNU's find; on a Mac that is BSD's, which cannot list a tree as we need it."""


@dataclass(frozen=True, slots=True)
class SrtInstallation:
    """`command` starts it. `readable` are its own files that its commands execute inside."""

    platform: Platform
    version: str
    command: tuple[str, ...]
    readable: tuple[str, ...]
    programs: SrtPrograms
    path: str
    stand_ins: Mapping[str, str]
    """Programs with another path here than the contract knows."""


def find_srt(environment: Mapping[str, str], platform: str = sys.platform) -> SrtInstallation:
    """Blocking. Raises SandboxError, with the repair, where it or something that it needs is missing."""
    if platform not in {"linux", "darwin"}:
        raise SandboxError("srt is used on Linux and macOS only.", hint="Use --sandbox docker or --sandbox e2b.")
    looked = environment.get("PATH") or ":".join(SYSTEM_PATH)
    found = shutil.which("srt", path=looked)
    if found is None:
        raise SandboxError("There is no program srt.", hint=f"{INSTALL}, or use another sandbox.")
    program = Path(found).resolve()
    home = program.parent.parent
    version = _version(home)
    mac = platform == "darwin"
    programs = SrtPrograms() if mac else _programs(looked)
    return SrtInstallation(
        platform="darwin" if mac else "linux",
        version=version,
        command=(_needed("node", looked, "Install Node.js 20.11 or newer."), str(program)),
        readable=(str(home / "vendor" / "seccomp"), *((programs.socat,) if programs.socat else ())),
        programs=programs,
        path=":".join((*HOMEBREW, *SYSTEM_PATH) if mac else SYSTEM_PATH),
        stand_ins={GNU_FIND: _needed("gfind", looked, "brew install findutils")} if mac else {},
    )


def _version(home: Path) -> str:
    """Of the package whose program it is; other programs are called srt too."""
    try:
        told = json.loads((home / "package.json").read_text("utf-8"))
        name, version = str(told["name"]), str(told["version"])
    except (OSError, ValueError, KeyError, TypeError):
        name, version = "", ""
    if name != PACKAGE:
        raise SandboxError(f"The program srt on PATH is not the one of {PACKAGE}.", hint=INSTALL)
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None or tuple(int(number) for number in numbers.groups()) < LEAST:
        least = ".".join(map(str, LEAST))
        raise SandboxError(f"srt {version} is older than {least}, which is needed.", hint=f"{INSTALL}@latest")
    return version


def _programs(looked: str) -> SrtPrograms:
    return SrtPrograms(
        bwrap=str(find_bwrap()),
        socat=_needed("socat", looked, "Install the package socat."),
        search=_needed("true", ":".join(SYSTEM_PATH), "Install the package coreutils."),
    )


def _needed(program: str, path: str, hint: str) -> str:
    at = shutil.which(program, path=path)
    if at is None:
        raise SandboxError(f"srt needs the program {program}.", hint=hint)
    return str(Path(at).resolve()) if program == "node" else at
