"""`--sandbox srt`: each command behind Anthropic's sandbox-runtime, over the job's directories of this machine.

On macOS its walls are sandbox-exec's, on Linux bubblewrap's. It is the sandbox for a Mac; what it cannot do there
stands in docs/how-to/choose-a-sandbox.md.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from app.core.errors import SandboxError
from app.core.scratch import scratch
from app.sandbox.base import (
    ENV,
    FILLED,
    HOME,
    LISTING,
    WORKSPACE,
    DoctorCheck,
    OnOutput,
    Sandbox,
    SandboxSpec,
    SetupPlan,
)
from app.sandbox.base_listing import write_base_listing
from app.sandbox.bubblewrap.profile import ROOT_UID, SYSTEM_PATH
from app.sandbox.child_process import ProcessSpec
from app.sandbox.command import SandboxCommand
from app.sandbox.egress.forwarder import Forwarder
from app.sandbox.egress.proxy import EgressProxy
from app.sandbox.host_directories import HostDirectory, plain_path
from app.sandbox.path_mapping import MARK, PLACE, MappedLaunch, PathMappedSandbox, end_left
from app.sandbox.setup.layers import machine_proxy
from app.sandbox.setup.toolchains import Toolchains, find_toolchains
from app.sandbox.srt.checks import CANARY, SrtProbeContext, checks, essential
from app.sandbox.srt.install import SrtInstallation, find_srt
from app.sandbox.srt.policy import SrtReach, script, settings, surroundings_of_srt

ETC = (
    *("alternatives", "ca-certificates/extracted", "crypto-policies", "pki", "ssl/certs", "ssl/openssl.cnf"),
    *("group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf"),
    *("passwd", "protocols", "services", "shells"),
)
"""What of Linux's /etc is shown; it holds no secret, but the names of this machine's accounts."""
MAX_PRIVATE = 100
TOP_LEVEL = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")


class SrtSandbox(PathMappedSandbox):
    """It comes from `SrtProvider.open` only, which proves that it holds."""

    isolated = True

    def __init__(self, place: HostDirectory, spec: SandboxSpec, srt: SrtInstallation, toolchains: Toolchains) -> None:
        path = ":".join((*toolchains.path, srt.path))
        super().__init__(place, spec, path, srt.stand_ins)
        self._srt = srt
        self._shown = (*(str(mount.source) for mount in toolchains.mounts), *_system(srt), *srt.readable)
        self._proxy: EgressProxy | None = None
        self._port: int | None = None

    @contextmanager
    def launched(self, command: SandboxCommand) -> Iterator[MappedLaunch]:
        with scratch("srt") as made:
            outside = made.resolve()  # on a Mac the temporary directory is reached by a link
            begun, temporary = outside / "begun" / "yes", outside / "tmp"
            _make_places(outside, (begun.parent, temporary), self.place.owner)
            told, program = outside / "settings.json", outside / "command.sh"
            reach = self._reach((program, temporary), begun.parent)
            told.write_text(json.dumps(settings(self._srt.platform, reach, self._srt.programs)), "utf-8")
            program.write_bytes(
                script(self._srt.platform, command, self.spec.limits, begun, proxied=self._port is not None)
            )
            marks = {name: command.env[name] for name in (MARK, PLACE)}
            argv = [*_as(self.place.owner), *self._srt.command, "--settings", str(told)]
            order = ProcessSpec(
                command,
                argv=[*argv, "--", "/bin/sh", str(program)],
                env=surroundings_of_srt(self._srt.path, temporary, marks),
                cwd=outside,
                keep=self.spec.limits.output,
            )
            yield MappedLaunch(order, begun)

    @asynccontextmanager
    async def reaching(self, setup: SetupPlan, upstream: Mapping[str, str]) -> AsyncIterator[None]:
        """While it lasts, commands reach the package hosts of the set-up, and may write to /env."""
        proxy = machine_proxy(upstream)
        with scratch("egress") as private:
            socket = private / "egress.sock"
            async with EgressProxy(socket, setup.hosts, upstream=proxy.url, no_proxy=proxy.no_proxy) as self._proxy:
                server = await asyncio.start_server(Forwarder(str(socket)).forward, "127.0.0.1", 0)
                try:
                    self._port = server.sockets[0].getsockname()[1]
                    yield
                finally:
                    self._port = None
                    server.close()

    def explanation(self) -> str:
        return self._proxy.explanation if self._proxy is not None else ""

    def _reach(self, own: Iterable[Path], begun: Path) -> SrtReach:
        # No directory that holds a writable one: on Linux it would be laid over that, and close it.
        tree, setup = self.hosts[WORKSPACE], self.spec.setup or SetupPlan()
        writable = [str(self.hosts[inside]) for inside in (WORKSPACE, HOME, "/tmp")]  # noqa: S108
        env, filled = str(self.hosts[ENV]), str(self.hosts[FILLED])
        setting_up = self._port is not None
        made = [str(tree / path) for path in setup.directories if plain_path(tree, path) is not None]
        return SrtReach(
            readable=[*self._shown, *map(str, own), filled, *(setup.readable if setting_up else [env])],
            writable=[*writable, str(begun), *([env] if setting_up else [])],
            writable_exceptions=[] if setting_up else made,
            hidden=[str(self.place.root)],
            port=self._port,
        )


class SrtProvider:
    """Work trees below `root`; `environment` is the host's, for finding programs and toolchains."""

    name = "srt"

    def __init__(self, root: Path, *, environment: Mapping[str, str]) -> None:
        self._root = root.resolve()
        self._environment = dict(environment)
        self._found: asyncio.Future[tuple[SrtInstallation, Toolchains]] | None = None

    async def check(self) -> tuple[DoctorCheck, ...]:
        try:
            srt, toolchains = await self._survey()
        except SandboxError as error:
            return (DoctorCheck("start", ok=False, detail=error.message, repair=error.hint),)
        private = await asyncio.to_thread(_private, self._environment.get("HOME", ""), self._root)
        program = DoctorCheck("srt", ok=True, detail=f"version {srt.version}")
        return (
            program,
            *await checks(self.launch, SrtProbeContext(self._root, srt.platform, _python(toolchains), private)),
        )

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Refuses with SandboxError where an essential property does not hold: never a silent fall-back."""
        sandbox = await self.launch(spec)
        async with AsyncExitStack() as unproven:
            unproven.push_async_callback(sandbox.close)
            await essential(sandbox, self._root)
            if spec.setup is not None and spec.setup.commands:
                async with sandbox.reaching(spec.setup, self._environment):
                    await sandbox.set_up(spec.setup, on_output)
            unproven.pop_all()  # it is the caller's from here on
        return sandbox

    async def launch(self, spec: SandboxSpec) -> SrtSandbox:
        """Open without the proof and the set-up."""
        if spec.tools is not None or spec.model_socket is not None:
            raise SandboxError(
                "Another coding agent has no way to its model out of srt.", hint="Use --sandbox bubblewrap or docker."
            )
        srt, toolchains = await self._survey()
        place = HostDirectory(self._root, spec.key, ROOT_UID if _root() else None)
        await asyncio.to_thread(end_left, place)
        await asyncio.to_thread(_prepare, place, spec, srt)
        return SrtSandbox(place, spec, srt, toolchains)

    async def _survey(self) -> tuple[SrtInstallation, Toolchains]:
        """What this machine offers; made once."""
        if self._found is None:
            self._found = asyncio.ensure_future(asyncio.to_thread(self._look))
        return await asyncio.shield(self._found)

    def _look(self) -> tuple[SrtInstallation, Toolchains]:
        srt, found = find_srt(self._environment), find_toolchains(self._environment, (self._root,))
        if not _root():
            return srt, found
        shown = tuple(mount for mount in found.mounts if _barred(mount.source) is None)
        path = tuple(place for place in found.path if _barred(Path(place)) is None)
        return srt, Toolchains(shown, path, found.left_out)


def _root() -> bool:
    return os.geteuid() == 0


def _as(owner: int | None) -> list[str]:
    """srt leaves root its rights inside, so as root all of it is another user's."""
    if owner is None:
        return []
    program = shutil.which("setpriv", path=":".join(SYSTEM_PATH))
    if program is None:
        raise SandboxError("As root, srt needs the program setpriv.", hint="Install the package util-linux.")
    return [program, "--reuid", str(owner), "--regid", str(owner), "--clear-groups", "--bounding-set=-all", "--"]


def _make_places(outside: Path, places: Iterable[Path], owner: int | None) -> None:
    """What srt and the command write to; as root they are another user's, in a directory that stays root's."""
    for place in places:
        place.mkdir()
        if owner is not None:
            os.chown(place, owner, owner)
    if owner is not None:
        outside.chmod(0o711)


def _prepare(place: HostDirectory, spec: SandboxSpec, srt: SrtInstallation) -> None:
    """As root, the directories above a job's own let the other user through, and show nothing of themselves."""
    place.prepare(spec.begin_work)
    write_base_listing(place, srt.stand_ins.get(LISTING[0], LISTING[0]))
    place.own(place.directory / "env")
    (place.directory / CANARY).write_text("out of sight\n", "utf-8")
    if place.owner is None:
        return
    place.directory.chmod(0o711)
    place.root.chmod(0o711)
    barred = _barred(place.root)
    if barred is not None:
        raise SandboxError(
            f"As root, srt's commands are those of user {place.owner}, who cannot enter {barred}.",
            hint="Run agent-fix as an ordinary user, or choose a state directory that others may enter: --state DIR.",
        )


def _barred(path: Path) -> Path | None:
    """The directory on the way there, or itself, that nobody but its owner may enter."""
    return next((place for place in (*reversed(path.parents), path) if not place.stat().st_mode & 0o001), None)


def _system(srt: SrtInstallation) -> list[str]:
    """What of Linux's own directories is shown; on a Mac they are not hidden."""
    if srt.platform == "darwin":
        return []
    top = [f"/{name}" for name in TOP_LEVEL if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    return [*top, *(f"/etc/{name}" for name in ETC if Path("/etc", name).exists())]


def _private(home: str, root: Path) -> tuple[str, ...]:
    """What lies in the home directory, but for the way to our own state: of that a job sees where it leads itself."""
    if not home:
        return ()
    with suppress(OSError):
        found = sorted(path for path in Path(home).resolve().iterdir() if not root.is_relative_to(path))
        return (f"{home}/.ssh", *map(str, found[:MAX_PRIVATE]))
    return (f"{home}/.ssh",)


def _python(toolchains: Toolchains) -> str:
    """An interpreter that commands can start; empty where there is none."""
    return shutil.which("python3", path=":".join((*toolchains.path, *SYSTEM_PATH))) or ""
