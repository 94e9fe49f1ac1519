"""Temporary directories that a later process removes if their owner is killed."""

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
    """Yield a new directory for this process alone. Its lock, held while it is open, shows that the owner is alive."""
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def sweep_scratch(now: float | None = None) -> int:
    """Remove the directories of killed processes, whose locks the kernel released; return how many."""
    before = (time.time() if now is None else now) - SETTLED_SECONDS
    return sum(_is_removed(found, before) for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _is_removed(directory: Path, before: float) -> bool:
    """Remove one directory if it is old and unlocked.

    Never follows a link and removes only our own files, because the parent is shared with other users.
    """
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
