"""Directories for a moment's work, which the next process removes where this one is killed in the middle."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "agent-fix-scratch-"
"""Nobody else's directory is named so: what is swept is judged by its name, its owner and its lock."""
SETTLED_SECONDS = 60.0
"""A directory is made before it is locked: one as young as this is let alone."""


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A new directory for this process alone; while it is open, its lock says that somebody lives who needs it."""
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def sweep_scratch(now: float | None = None) -> int:
    """Remove what processes left that were killed; returns how many. The kernel let go of their locks."""
    before = (time.time() if now is None else now) - SETTLED_SECONDS
    return sum(_swept(found, before) for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _swept(directory: Path, before: float) -> bool:
    """Never through a link, and only what is ours: the place is everybody's."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.getuid() or status.st_ctime > before:
                return False
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
