"""The default sandbox on Linux: bubblewrap around every command, over directories of this machine."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import (
    BASE_LISTING,
    ENV,
    FORWARDER,
    HOME,
    MODEL_SOCKET,
    TOOLS,
    WORKSPACE,
    CompletedCommand,
    DoctorCheck,
    OnOutput,
    Sandbox,
    SandboxSpec,
)
from app.sandbox.base_listing import write_base_listing
from app.sandbox.bubblewrap.cgroup import sweep
from app.sandbox.bubblewrap.command import BubblewrapCommand
from app.sandbox.bubblewrap.host_survey import HostSurvey, survey_host
from app.sandbox.bubblewrap.orphans import end_orphans
from app.sandbox.bubblewrap.profile import Mount
from app.sandbox.bubblewrap.repair import host_conditions, start_repair
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.host_directories import HostDirectory
from app.sandbox.probe import ProbeContext, checks, essential
from app.sandbox.setup.layer_build import FORWARDER_PROGRAM
from app.sandbox.setup.layers import SetupLayer, ensure_layer, machine_proxy
from app.sandbox.setup.plan import WORK_ENVIRONMENT


class BubblewrapSandbox(Executor):
    """A job's sandbox. Its state is on disk only, so a lost one is restored by opening its key again."""

    isolated = True

    def __init__(
        self, host_directory: HostDirectory, commands: BubblewrapCommand, layers: Sequence[SetupLayer]
    ) -> None:
        self._host_directory = host_directory
        self._commands = commands
        self._layers = layers
        self.left_out = tuple(chain.from_iterable(layer.left_out for layer in layers if layer.target == ENV))

    @property
    def key(self) -> str:
        return self._host_directory.key

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return await self._commands.execute(command)

    async def close(self) -> None:
        await self._commands.close()
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
        self._surveyed: asyncio.Future[HostSurvey] | None = None

    async def check(self) -> tuple[DoctorCheck, ...]:
        try:
            surveyed = await self.survey()
        except SandboxError as error:
            return (
                DoctorCheck("start", ok=False, detail=error.message, repair=start_repair(host_conditions(), error)),
            )
        home = self._environment.get("HOME", "")
        private = (str(self._root), str(self._caches), *((f"{home}/.ssh", f"{home}/.config") if home else ()))
        context = ProbeContext(surveyed.machine.python, private, frozenset(dict(WORK_ENVIRONMENT)))
        proofs = await checks(self.launch, context)
        tools = "; ".join(surveyed.left_out)
        return (
            *proofs,
            DoctorCheck("toolchains", ok=True, detail=tools or ":".join(surveyed.machine.path) or "those in /usr"),
        )

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Raises SandboxError if an essential property does not hold; there is no silent fallback."""
        async with AsyncExitStack() as unproven:
            sandbox = await self.launch(spec, on_output=on_output)
            unproven.push_async_callback(sandbox.close)
            await essential(sandbox)
            unproven.pop_all()  # proven: the caller closes it from here on
        return sandbox

    async def launch(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Open without the check of its properties; for the doctor."""
        machine = (await self.survey()).machine
        host_directory = HostDirectory(self._root, spec.key, machine.owner)
        upstream = machine_proxy(self._environment)
        ensure = partial(ensure_layer, machine, caches=self._caches, upstream=upstream, on_output=on_output)
        layer = await ensure(spec)
        tools = await ensure(replace(spec, setup=spec.tools, fill=_fill_nothing), target=TOOLS) if spec.tools else None
        await asyncio.to_thread(_prepare, host_directory, spec, layer, overlays=machine.overlays)
        environment = {**dict(spec.setup.environment if spec.setup else ()), **dict(WORK_ENVIRONMENT)}
        commands = BubblewrapCommand(
            machine,
            lambda: [*_mounts(host_directory, layer), *_agent_mounts(host_directory, tools, spec.model_socket)],
            spec.limits,
            environment,
            changes=host_directory.directory / "changes",
        )
        return BubblewrapSandbox(host_directory, commands, [one for one in (layer, tools) if one is not None])

    async def survey(self) -> HostSurvey:
        """This machine's survey; made once."""
        if self._surveyed is None:
            self._surveyed = asyncio.ensure_future(asyncio.to_thread(self._survey))
        return await asyncio.shield(self._surveyed)

    def _survey(self) -> HostSurvey:
        sweep()
        surveyed = survey_host(self._caches, self._environment, (self._root, self._caches))
        end_orphans(surveyed.machine)
        return surveyed


def _fill_nothing(tree: Path) -> None:
    """An agent's programs need no project."""


def _prepare(host_directory: HostDirectory, spec: SandboxSpec, layer: SetupLayer | None, *, overlays: bool) -> None:
    """The listing must be made before the set-up's directories cover the tree."""
    host_directory.prepare(spec.begin_work)
    write_base_listing(host_directory)
    if layer is not None:
        layer.place(host_directory, overlays=overlays)


def _agent_mounts(
    host_directory: HostDirectory, tools: SetupLayer | None, model_socket: Path | None
) -> Iterator[Mount]:
    """Mounts for another coding agent: its programs, and its socket while that is open."""
    if tools is not None:
        yield from tools.mounts(host_directory)
    if model_socket is not None and model_socket.exists():
        yield from (Mount(model_socket, MODEL_SOCKET), Mount(FORWARDER_PROGRAM, FORWARDER))


def _mounts(host_directory: HostDirectory, layer: SetupLayer | None) -> list[Mount]:
    mounts = [
        Mount(host_directory.tree, WORKSPACE, writable=True),
        Mount(host_directory.directory / "home", HOME, writable=True),
        Mount(host_directory.directory / "tmp", "/tmp", writable=True),  # noqa: S108 - a path inside the sandbox
    ]
    if host_directory.base_listing.exists():
        mounts.append(Mount(host_directory.base_listing, BASE_LISTING))
    return [*mounts, *(layer.mounts(host_directory) if layer else ())]
