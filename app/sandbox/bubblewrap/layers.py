"""Builds a set-up's result once per key and shares it: /env, and what was created in the tree and at home.

caches/setup/<key>/env   /env         built in a separate sandbox over a temporary copy of the tree,
caches/setup/<key>/tree  /workspace   whose only way out is the egress proxy's unix socket
caches/setup/<key>/home  /home/agent

Tree and home lie below the sandbox's own, which keep what commands write; /env is as it was for each command. The
shared result never changes.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.core.errors import SandboxError
from app.core.scratch import scratch
from app.sandbox.base import ENV, FORWARDER, FORWARDER_PROGRAM, TOOLS, OnOutput, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.command import WRITABLE, BubblewrapCommand, HostMachine, Mount
from app.sandbox.egress.proxy import PORT, PROXY_ENVIRONMENT, SOCKET_INSIDE, EgressProxy, Upstream
from app.sandbox.host_directories import (
    HostDirectory,
    disk_use,
    exclusive_lock,
    make_mount_point,
    plain_path,
    remove_tree,
)
from app.sandbox.layer_files import HOME, TREE, keep, put
from app.sandbox.setup.run_commands import SetupResult, carry_out, to_repeat

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
        total += disk_use([layer]).size
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


RESULT = "result.json"
DISK_FACTOR = 2
"""How many times as much disk as a sandbox's files the result and what is made on the way may take."""
HIDDEN = ("/usr", "/etc", "/run", ENV, TOOLS)
"""Parts of a sandbox that no other path of the machine may cover."""


@dataclass(frozen=True, slots=True)
class SetupLayer:
    """A finished result."""

    directory: Path
    lease: LayerLease
    """To be closed when nothing runs over the layer any more."""
    target: str = ENV

    @property
    def result(self) -> SetupResult:
        return SetupResult.read(self.directory / RESULT)

    @property
    def mount(self) -> Mount:
        return Mount(self.directory / "env", self.target, restored=self.target == ENV)

    def below(self, part: str) -> Path | None:
        """The directory with what was created in the tree or at home, if there is anything."""
        directory = self.directory / part
        return directory if directory.is_dir() and any(directory.iterdir()) else None

    def copy_to(self, host_directory: HostDirectory) -> None:
        """Once, for a machine without overlays, before anything runs there. Raises SandboxError."""
        try:
            for part in (TREE, HOME):
                if below := self.below(part):
                    put(str(below), str(host_directory.path / part))
        except OSError as error:
            raise SandboxError(
                f"What the set-up has created could not be copied: {error}", hint="Check that the disk has space."
            ) from error


@dataclass(slots=True)
class LayerBuild:
    """One build of `setup`, which ends as the directory `layer`, or not at all."""

    machine: HostMachine
    spec: SandboxSpec
    setup: SetupPlan
    layer: Path
    environment: Mapping[str, str]
    """This machine's, which may name a proxy."""
    on_output: OnOutput | None = None
    target: str = ENV
    """Where the result will be mounted: programs remember the path that they were installed at."""
    left_out: list[str] = field(default_factory=list)
    """Sentences about parts that failed while others succeeded."""
    created: list[str] = field(default_factory=list)
    _host_directory: HostDirectory = field(init=False)

    def __post_init__(self) -> None:
        self._host_directory = HostDirectory(self.layer.parent, f"{self.layer.name}.building", self.machine.owner)

    async def run(self) -> None:
        """Leave the result at `layer`, or next to it for this job alone if a part failed."""
        await asyncio.to_thread(self._host_directory.remove)  # a builder that died left it
        try:
            await asyncio.to_thread(self._prepare)
            await self._execute()
            await asyncio.to_thread(self._collect)
            layer = incomplete(self.layer, self.spec.key) if to_repeat(self.left_out) else self.layer
            SetupResult(tuple(self.left_out), tuple(self.created)).write(self._result / RESULT)
            self._result.rename(layer)
        finally:
            await asyncio.to_thread(self._host_directory.remove)

    @property
    def _result(self) -> Path:
        return self._host_directory.path / "result"

    @property
    def _writable(self) -> tuple[tuple[str, Path], ...]:
        """The host directory of each writable directory inside."""
        directory = self._host_directory.path
        return tuple(zip(WRITABLE, (self._host_directory.tree, directory / "tmp", directory / "home"), strict=True))

    def _prepare(self) -> None:
        self._host_directory.prepare(self.spec.fill)
        self._host_directory.write_base_listing()
        self._result.mkdir(mode=0o755)
        self._host_directory.own(self._result / "env")
        for path in self.setup.readable:
            self._make_point(Path(path))

    async def _execute(self) -> None:
        with scratch("egress") as private:
            socket = private / "egress.sock"
            limits = replace(
                self.spec.limits, disk=DISK_FACTOR * self.spec.limits.disk, files=DISK_FACTOR * self.spec.limits.files
            )
            environment = {**PROXY_ENVIRONMENT, **dict(self.setup.environment)}
            box = BubblewrapCommand(self.machine, lambda: self._mounts(socket), limits, environment)
            upstream = Upstream.from_environment(self.environment, self.setup.hosts)
            proxy = EgressProxy(socket, self.setup.hosts, upstream=upstream, owner=self.machine.owner)
            try:
                async with proxy:
                    self.left_out += await carry_out(
                        self.setup,
                        box,
                        self.on_output,
                        explain=lambda: proxy.explanation,
                        starter=[self.machine.python, "-I", FORWARDER, SOCKET_INSIDE, str(PORT), "--"],
                    )
            finally:
                await box.close()

    def _mounts(self, socket: Path) -> list[Mount]:
        return [
            *(Mount(base, inside, writable=True) for inside, base in self._writable),
            Mount(self._result / "env", self.target, writable=True),
            Mount(socket, SOCKET_INSIDE),
            Mount(FORWARDER_PROGRAM, FORWARDER),
            *(Mount(Path(path), path) for path in self.setup.readable if self._showable(Path(path))),
        ]

    def _collect(self) -> None:
        """Move the result out of the temporary tree, in which nothing runs any more."""
        if self.target != ENV:
            return
        tree, _, home = (str(base) for _, base in self._writable)
        self.created, too_much = keep(tree, home, self._host_directory.base_listing.read_bytes(), str(self._result))
        self.left_out += [too_much] if too_much else []

    def _below_writable(self, path: Path) -> tuple[Path, str] | None:
        """A path inside as host directory and rest, if commands may write above it."""
        for inside, base in self._writable:
            if path.is_relative_to(inside):
                return base, str(path.relative_to(inside))
        return None

    def _make_point(self, path: Path) -> None:
        below = self._below_writable(path)
        if below is None or not path.exists():
            return
        base, relative = below
        steps = relative.split("/")
        for depth in range(1, len(steps)):
            make_mount_point(base, "/".join(steps[:depth]), base, self.machine.owner)
        make_mount_point(base, relative, path, self.machine.owner)

    def _showable(self, path: Path) -> bool:
        """False if a command has put a link at a mount point, or if it would cover a part of the sandbox."""
        below = self._below_writable(path)
        direct = below is None or plain_path(*below) is not None
        return direct and path.exists() and not any(path.is_relative_to(top) for top in HIDDEN)


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
    if not setup.commands:
        return None
    name = hashlib.sha256((setup.key or repr(setup)).encode()).hexdigest()[:32]
    layer = caches / "setup" / name
    layer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (found := _finished(layer, spec.key)) is None:
        async with exclusive_lock(layer.with_suffix(".lock")):
            while (found := _finished(layer, spec.key)) is None:
                await LayerBuild(machine, spec, setup, layer, environment, on_output, target).run()
        await asyncio.to_thread(prune, layer.parent)
    return SetupLayer(*found, target)


def _finished(layer: Path, key: str) -> tuple[Path, LayerLease] | None:
    """The complete result, or this job's partly failed one."""
    for found in (layer, incomplete(layer, key)):
        if (lease := take_lease(found)) is not None:
            return found, lease
    return None


def incomplete(layer: Path, key: str) -> Path:
    """The path of a job's own, partly failed result: the next job tries again."""
    return layer.with_name(f"{layer.name}.{key.partition('.')[0]}")
