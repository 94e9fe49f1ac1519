"""A disk so small that a test can fill it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(place: Path, size: str = "2m") -> Iterator[Path]:
    """A file system in memory at `place`; the test is skipped, visibly, where mounting is not allowed."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small disk takes a privilege that is not there")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
