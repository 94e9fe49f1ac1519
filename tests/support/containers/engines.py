"""Docker and Podman for tests: started once a process, with data and configuration of their own, and ended with it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import Sandbox, SandboxSpec
from app.sandbox.container.provider import ContainerProvider
from tests.support.containers.image import NoImageError, make_root

IMAGE = "agent-fix-tests:1"
SECONDS = 60.0
PODMAN = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
"""
STORAGE = """
[storage]
driver = "overlay"
graphroot = "{place}/root"
runroot = "{place}/run"
"""


class NoEngineError(Exception):
    """Why an engine cannot be had here."""


@dataclass(slots=True, eq=False)
class LocalEngine:
    """`environment` is what its command line finds it by. `daemon` is ours to end, where there is one."""

    name: str
    place: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    daemon: subprocess.Popen[bytes] | None = None
    loaded: bool = False

    def report(self, *words: str) -> str:
        done = subprocess.run(
            [self.name, *words], env=self.environment, cwd=self.place, capture_output=True, check=False, timeout=SECONDS
        )
        if done.returncode:
            raise NoEngineError(done.stderr.decode(errors="replace").strip()[-300:])
        return done.stdout.decode()

    def load(self) -> None:
        if self.loaded:
            return
        archive = self.place / "root.tar"
        try:
            make_root(archive)
        except NoImageError as error:
            raise NoEngineError(str(error)) from error
        self.report("import", str(archive), IMAGE)
        archive.unlink()
        self.loaded = True

    def try_out(self) -> None:
        """A container starts, with what every sandbox asks for."""
        self.report(
            "create", "--name", "agent-fix-trial", "--network", "none", *LIMITED, "--entrypoint", "sleep", IMAGE, "9"
        )
        try:
            self.report("start", "agent-fix-trial")
        finally:
            self.report("rm", "--force", "agent-fix-trial")

    def end(self) -> None:
        if self.loaded:
            _remove(self, self.place / "shared")
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(SECONDS)
        elif self.loaded:
            self.report("rmi", *(("--force", "--all") if self.name == "podman" else (IMAGE,)))
        subprocess.run(["rm", "-rf", "--", str(self.place)], check=True)


LIMITED = ("--memory", "64m", "--pids-limit", "64", "--ulimit", "nproc=64:64", "--ulimit", "nofile=1024:1024")
STARTED: list[LocalEngine] = []
SHARED: dict[str, Sandbox] = {}


def end_engines() -> None:
    """What this process started."""
    while STARTED:
        STARTED.pop().end()


def engine(name: str) -> LocalEngine:
    """Skips the test, and says why, where it cannot be had."""
    found = obtained(name)
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED with {name}: {found}")
    return found


@cache
def obtained(name: str) -> LocalEngine | str:
    """Started, or why it cannot be; one try for a process."""
    if shutil.which(name) is None:
        return "it is not installed"
    made = LocalEngine(name, Path(tempfile.mkdtemp(prefix="agent-fix-engine-")))
    STARTED.append(made)
    try:
        return _docker(made) if name == "docker" else _podman(made)
    except NoEngineError as error:
        return str(error)


def _docker(made: LocalEngine) -> LocalEngine:
    try:
        made.report("version")
    except NoEngineError:
        _start_daemon(made)
    made.load()
    made.try_out()
    return made


def _start_daemon(made: LocalEngine) -> None:
    daemon = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.geteuid() or daemon is None:
        raise NoEngineError("no engine is reachable, and only root with `dockerd` can start one")
    place = made.place
    made.environment["DOCKER_HOST"] = f"unix://{place}/d.sock"
    with (place / "log").open("wb") as log:
        made.daemon = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "TERM", daemon, "--data-root", f"{place}/data"),
                *("--exec-root", f"{place}/exec", "--pidfile", f"{place}/pid", "-H", f"unix://{place}/d.sock"),
                *("--bridge=none", "--iptables=false"),
            ],
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + SECONDS
    while made.daemon.poll() is None and time.monotonic() < deadline:
        try:
            made.report("version")
        except NoEngineError:
            time.sleep(0.1)
        else:
            return
    raise NoEngineError(f"dockerd does not start: {(place / 'log').read_text(errors='replace')[-300:]}")


def _podman(made: LocalEngine) -> LocalEngine:
    """With a runtime that works here: crun wants another kind of control groups than some machines have."""
    (made.place / "storage.conf").write_text(STORAGE.format(place=made.place))
    made.environment["CONTAINERS_STORAGE_CONF"] = str(made.place / "storage.conf")
    made.environment["CONTAINERS_CONF"] = str(made.place / "containers.conf")
    reason = "there is neither crun nor runc"
    for runtime in filter(shutil.which, ("crun", "runc")):
        (made.place / "containers.conf").write_text(PODMAN.format(runtime=runtime))
        try:
            made.load()
            made.try_out()
        except NoEngineError as error:
            reason = str(error)
        else:
            return made
    raise NoEngineError(reason)


def provider(local: LocalEngine, directory: Path, image: str = IMAGE) -> ContainerProvider:
    return ContainerProvider(
        local.name, scope=str(directory), caches=directory / "caches", environment=local.environment, image=image
    )


@contextmanager
def provided(name: str, directory: Path) -> Iterator[ContainerProvider]:
    """A provider of its own scope; what it kept is removed at the end."""
    local = engine(name)
    (directory / "jobs").mkdir()
    try:
        yield provider(local, directory)
    finally:
        forget(local, directory)


def forget(local: LocalEngine, directory: Path) -> None:
    """Remove the containers that were left, as by a runner that was parked, and the set-ups that were kept."""
    _remove(local, directory)
    for mark in (directory / "caches" / local.name / "set-ups").glob("*"):
        if mark.suffix != ".lock":
            local.report("rmi", f"agent-fix-setup:{mark.name}")


def containers(local: LocalEngine) -> list[str]:
    """Names of all containers that are ours, but for the shared one."""
    told = local.report("ps", "--all", "--filter", "label=agent-fix", "--format", '{{.Names}} {{.Label "agent-fix"}}')
    pairs = [line.split() for line in told.splitlines()]
    return [name for name, scope in pairs if scope != _scope(local.place / "shared")]


async def shared(name: str, spec: SandboxSpec) -> Sandbox:
    """One that tests have after each other, because a container takes a second; it is new where it was closed."""
    local = engine(name)
    sandbox = SHARED.get(name)
    try:
        if sandbox is not None:
            await sandbox.exec([])  # starts nothing
            return sandbox
    except SandboxError:
        await SHARED.pop(name).destroy()
    SHARED[name] = await provider(local, local.place / "shared").open(spec)
    return SHARED[name]


def _remove(local: LocalEngine, directory: Path) -> None:
    """All containers of that scope."""
    left = local.report("ps", "--all", "--quiet", "--filter", f"label=agent-fix={_scope(directory)}")
    if left:
        local.report("rm", "--force", *left.split())


def _scope(directory: Path) -> str:
    return hashlib.sha256(str(directory).encode()).hexdigest()[:32]
