"""Bounds the stored results of set-ups: those unused for longest are removed, never one that a sandbox uses."""

import fcntl
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.disk_quota import disk_use
from app.sandbox.host_directories import remove_tree

MAX_BYTES = 20 * 1024**3
"""Of all results together. What is in use counts, and stays."""
GONE = ".gone-"
_NOT_FINISHED = frozenset({".lock", ".building"})


@dataclass(slots=True)
class LayerLease:
    """While it is open, in whatever process, nobody removes the layer. The kernel closes it for a killed process."""

    descriptor: int

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def take_lease(layer: Path) -> LayerLease | None:
    """A lease, which also notes the use; None if there is no such layer. Blocks for no longer than a renaming."""
    try:
        lease = LayerLease(os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    fcntl.flock(lease.descriptor, fcntl.LOCK_SH)
    if not _is_at(layer, lease):
        lease.close()
        return None
    os.utime(lease.descriptor)
    return lease


def prune(directory: Path, most: int = MAX_BYTES) -> int:
    """Remove the layers that exceed `most` bytes, counted from the last used one; returns how many. Blocking."""
    for left in directory.glob(f"{GONE}*"):
        remove_tree(left)
    used = {path: path.stat().st_mtime_ns for path in directory.iterdir() if path.suffix not in _NOT_FINISHED}
    total, removed = 0, 0
    for layer in sorted(used, key=lambda path: used[path], reverse=True):
        total += disk_use([layer])[0]
        removed += total > most and _remove(layer)
    return removed


def _remove(layer: Path) -> bool:
    """False if it is in use."""
    with suppress(FileNotFoundError, BlockingIOError):
        lease = LayerLease(os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        gone = layer.with_name(f"{GONE}{secrets.token_hex(8)}")
        try:
            fcntl.flock(lease.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            layer.rename(gone)
        finally:
            lease.close()
        remove_tree(gone)
        return True
    return False


def _is_at(layer: Path, lease: LayerLease) -> bool:
    """False if it was removed between opening and locking."""
    try:
        return os.path.samestat(layer.stat(), os.fstat(lease.descriptor))
    except FileNotFoundError:
        return False
