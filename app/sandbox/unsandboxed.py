"""`--sandbox none`: the same port without any isolation, for people who request it explicitly."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.sandbox.base import DoctorCheck, OnOutput, Sandbox, SandboxSpec
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.child_process import ProcessSpec
from app.sandbox.command import SandboxCommand
from app.sandbox.host_directories import HostDirectory, write_base_listing
from app.sandbox.path_mapping import MappedLaunch, PathMappedSandbox, end_leftover_processes


class Unsandboxed(PathMappedSandbox):
    """Runs each command as the caller, with a cleared environment."""

    isolated = False

    @contextmanager
    def launch_command(self, command: SandboxCommand) -> Iterator[MappedLaunch]:
        yield MappedLaunch(
            ProcessSpec(
                command, argv=command.argv, env=command.env, cwd=Path(command.cwd), keep=self.spec.limits.output
            )
        )


class UnsandboxedProvider:
    """Work trees below `root`; `path` is the host's PATH."""

    name = "none"

    def __init__(self, root: Path, *, path: str = ":".join(SYSTEM_PATH)) -> None:
        self._root = root.resolve()
        self._path = path

    async def check(self) -> tuple[DoctorCheck, ...]:
        """Never all right: a job that uses this must say so."""
        detail = "commands run on this machine with your permissions, network and files"
        return (
            DoctorCheck(
                "isolation", ok=False, detail=detail, repair="Remove --sandbox none, and run agent-fix doctor."
            ),
        )

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        place = HostDirectory(self._root, spec.key)
        await asyncio.to_thread(end_leftover_processes, place)
        await asyncio.to_thread(place.prepare, spec.begin_work)
        sandbox = Unsandboxed(place, spec, self._path)
        await asyncio.to_thread(write_base_listing, place)
        if spec.setup is not None and spec.setup.commands:
            await asyncio.to_thread(place.own, place.directory / "env")
            await sandbox.set_up(spec.setup, on_output)
        return sandbox
