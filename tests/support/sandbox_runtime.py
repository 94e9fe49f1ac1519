"""srt itself, fetched once a machine; a test that needs it is skipped, and says so, where it cannot be had."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from app.core.errors import SandboxError
from app.sandbox.srt.install import PACKAGE, find_srt
from app.sandbox.srt.provider import SrtProvider
from tests.support.emulate.provision import Unavailable, installed

CACHE = Path(__file__).parents[2] / ".cache" / "srt"
PACKAGES = (
    f"{PACKAGE}@0.0.78",
    "@pondwader/socks5-server@1.0.10",
    "commander@12.1.0",
    "node-forge@1.4.3",
    "zod@3.25.76",
)
"""What srt is built upon is pinned with it."""


def srt_environment() -> dict[str, str]:
    """An environment in which srt is found, along PATH."""
    found = obtained_srt()
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED with srt: {found}")
    return {"PATH": f"{found}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}


@cache
def obtained_srt() -> Path | str:
    """The directory of its program, or why there is none; one try for a process."""
    try:
        programs = installed(CACHE, PACKAGES, None) / ".bin"
        find_srt({"PATH": f"{programs}:{os.environ['PATH']}"})
    except Unavailable as unavailable:
        return str(unavailable)
    except SandboxError as error:
        return f"{error.message} {error.hint}"
    return programs


@contextmanager
def at_srt(directory: Path) -> Iterator[SrtProvider]:
    """Its jobs are below `directory / "jobs"`, a link to a home directory where, as root, another user may go."""
    environment = srt_environment()
    with tempfile.TemporaryDirectory(prefix="agent-fix-srt-") as place:
        jobs, secret = Path(place, "state", "jobs"), Path(place, "secret")
        jobs.mkdir(parents=True)
        secret.write_text("a file of the home directory\n")
        for parent in (Path(place), jobs.parent):
            parent.chmod(0o711)
        (directory / "jobs").symlink_to(jobs)
        yield SrtProvider(jobs, environment={**environment, "HOME": place})
