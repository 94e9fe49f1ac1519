"""Builds a set-up's result once per key and shares it: /env and directories such as `node_modules`.

caches/setup/<key>/env          /env               built in a separate sandbox over a temporary copy of the tree,
caches/setup/<key>/tree/<path>  /workspace/<path>  whose only way out is the egress proxy's unix socket

Commands may write there; what they write goes to a layer of their own, and the shared result never changes.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.base import ENV, WORKSPACE, OnOutput, SandboxSpec
from app.sandbox.bubblewrap.command import HostMachine, Mount
from app.sandbox.host_directories import HostDirectory, copy_tree, disk_use, make_mount_point, plain_path, remove_tree
from app.sandbox.setup.layer_build import LEFT_OUT, LayerBuild, incomplete, read_left_out

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


LOCK_SECONDS = 0.1
MAX_COPIED = 1024**3
"""Bytes of a directory that is copied for a sandbox; a larger one is shown read-only."""


@dataclass(frozen=True, slots=True)
class SetupLayer:
    """A finished result; `paths` are those of SetupPlan.directories that were created."""

    directory: Path
    paths: tuple[str, ...]
    lease: LayerLease
    """To be closed when nothing runs over the layer any more."""
    target: str = ENV

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parts of the set-up that failed while another part succeeded."""
        return read_left_out(self.directory / LEFT_OUT)

    def place(self, site: HostDirectory, *, overlays: bool) -> None:
        """Create the mount points in a job's tree, before anything runs in it.

        Files, and on a machine without overlays directories that are not too large, are copied for this sandbox.
        """
        for path, copy in self._copies(site):
            source = self.directory / "tree" / path
            make_mount_point(site.tree, path, source, site.owner)
            if not copy.exists() and (source.is_file() or not overlays) and disk_use([source])[0] <= MAX_COPIED:
                copy_tree(source, copy)

    def mounts(self, site: HostDirectory) -> list[Mount]:
        """Mounts for the current tree: a directory is skipped if the agent put a link in its place."""
        shown = [Mount(self.directory / "env", self.target, restored=self.target == ENV)]
        for path, copy in self._copies(site):
            source, point = self.directory / "tree" / path, plain_path(site.tree, path)
            if point is not None and point.is_dir() == source.is_dir():
                copied = copy.exists()
                shown.append(Mount(copy if copied else source, f"{WORKSPACE}/{path}", copied, restored=not copied))
        return shown

    def _copies(self, site: HostDirectory) -> Iterator[tuple[str, Path]]:
        """Every path with the place of this sandbox's own copy, should it need one."""
        return ((path, site.directory / f"copy-{number}") for number, path in enumerate(self.paths))


async def ensure_layer(
    machine: HostMachine,
    spec: SandboxSpec,
    caches: Path,
    *,
    environment: Mapping[str, str],
    on_output: OnOutput | None = None,
    target: str = ENV,
) -> SetupLayer | None:
    """The layer for `spec.setup`, built if there is none yet; None if there is nothing to prepare.

    `environment` is this machine's, which may name a proxy.
    Raises SetupError with the command, its exit code and the end of its output.
    """
    setup = spec.setup
    if setup is None or not setup.commands:
        return None
    name = hashlib.sha256((setup.key or repr(setup)).encode()).hexdigest()[:32]
    place = caches / "setup" / name
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (found := _finished(place, spec.key)) is None:
        async with exclusive_lock(place.with_suffix(".lock")):
            while (found := _finished(place, spec.key)) is None:
                await LayerBuild(machine, spec, setup, place, environment, on_output, target).run()
        await asyncio.to_thread(prune, place.parent)
    place, lease = found
    paths = tuple(path for path in setup.directories if plain_path(place / "tree", path))
    return SetupLayer(place, paths, lease, target)


def _finished(place: Path, key: str) -> tuple[Path, LayerLease] | None:
    """The complete result, or this job's partly failed one."""
    for found in (place, incomplete(place, key)):
        if (lease := take_lease(found)) is not None:
            return found, lease
    return None


@asynccontextmanager
async def exclusive_lock(lock: Path) -> AsyncIterator[None]:
    """One builder per key at a time on this machine. Polls, because a waiting flock could not be cancelled."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)
