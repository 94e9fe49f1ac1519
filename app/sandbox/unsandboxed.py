"""`--sandbox none`: the same port without isolation; the sandbox's paths are mapped to the job's host directories.

If an argument, a variable or `cwd` starts with /workspace, /env, /tmp, /home/agent or /run/filled, or has one of these
after a space, quote, `=` or `:`, the job's own directory on the host replaces it. A program that builds such a path
itself sees the host's, as far as the sandbox allows.
"""

import asyncio
import os
import re
import secrets
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import (
    BASE_LISTING,
    CANNOT_EXECUTE,
    ENV,
    HOME,
    SYSTEM_PATH,
    WORK_ENVIRONMENT,
    WORKSPACE,
    CompletedCommand,
    DoctorCheck,
    Executor,
    OnOutput,
    Sandbox,
    SandboxCommand,
    SandboxSpec,
)
from app.sandbox.child_process import ChildProcess, end_all
from app.sandbox.host_directories import HostDirectory
from app.sandbox.layer_files import created
from app.sandbox.setup.run_commands import SetupResult, carry_out

PROC = Path("/proc")
SWEEPS = 40
MAX_RECHECKS = 8
"""How often processes without an environment are checked again, because they are just starting a program."""
PAUSE_SECONDS = 0.002


def end_marked(variable: str, value: str) -> None:
    """Kill this user's processes with the variable in their environment, and what those start meanwhile. Blocking."""
    word = os.fsencode(f"{variable}={value}")
    doubts = 0
    for _ in range(SWEEPS):
        killed, unclear = _sweep(word)
        if not killed:
            doubts += 1
        if not killed and (not unclear or doubts > MAX_RECHECKS):
            return
        time.sleep(PAUSE_SECONDS)


def _sweep(word: bytes) -> tuple[int, int]:
    """How many were killed, and for how many nothing could be determined."""
    killed = unclear = 0
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is another user's
            environment = (entry / "environ").read_bytes()
            if word in environment.split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
            elif not environment and entry.stat().st_uid == os.geteuid() and (entry / "exe").readlink():
                unclear += 1
    return killed, unclear


MARK = "AGENT_FIX_COMMAND"
"""A variable that finds everything that a command started, even in another session."""
PLACE = "AGENT_FIX_PLACE"
"""A variable that finds everything that was ever started for a key."""
NOT_FOUND = 127
SET_UP = "env.done"
"""A file next to the tree, written after its set-up: its result."""


class Unsandboxed(Executor):
    """One job's directories; runs each command as the caller, with a cleared environment."""

    isolated = False

    def __init__(self, host_directory: HostDirectory, spec: SandboxSpec, path: str, *, online: bool = False) -> None:
        """`path` is the host's PATH. Without `online`, variables keep package clients offline."""
        self.key = host_directory.key
        self._host_directory = host_directory
        directory = host_directory.path
        hosts = {
            WORKSPACE: host_directory.tree,
            ENV: directory / "env",
            HOME: directory / "home",
            "/tmp": directory / "tmp",  # noqa: S108 - a path in the sandbox
            BASE_LISTING: host_directory.base_listing,
        }
        self._hosts = {inside: str(host) for inside, host in hosts.items()}
        self._inside = re.compile(rf"(^|[\s'\"=:(<>|&;])({'|'.join(map(re.escape, hosts))})(?=$|[^\w.-])")
        self._output_limit = spec.limits.output
        self._running: set[ChildProcess] = set()
        self._environment = {
            "PATH": f"{hosts[ENV] / 'bin'}:{path}",
            "HOME": str(hosts[HOME]),
            "TMPDIR": str(directory / "tmp"),
            "LANG": "C.UTF-8",
            PLACE: str(directory),
            **{name: self._mapped(value) for name, value in spec.setup.environment},
            **({} if online else WORK_ENVIRONMENT),
        }

    @property
    def left_out(self) -> tuple[str, ...]:
        return SetupResult.read(self._host_directory.path / SET_UP).left_out

    @property
    def created(self) -> tuple[str, ...]:
        return SetupResult.read(self._host_directory.path / SET_UP).created

    def _mapped(self, text: str) -> str:
        """The text with the sandbox's paths replaced by the host's."""
        return self._inside.sub(lambda found: f"{found[1]}{self._hosts[found[2]]}", text)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        mark = secrets.token_hex(16)
        given = {name: self._mapped(value) for name, value in command.env.items()}
        child = ChildProcess(
            command,
            argv=[self._mapped(part) for part in command.argv],
            env={**self._environment, **given, MARK: mark},
            cwd=Path(self._mapped(command.cwd)),
            killer=_MarkedProcesses(mark),
            keep=self._output_limit,
        )
        self._running.add(child)
        try:
            return await child.run()
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
            return CompletedCommand(code, f"{error.filename}: {error.strerror}\n".encode())
        finally:
            self._running.discard(child)

    async def close(self) -> None:
        self._closed = True
        await end_all(self._running)

    async def destroy(self) -> None:
        await self.close()
        await asyncio.to_thread(self._host_directory.remove)


@dataclass(frozen=True, slots=True)
class _MarkedProcesses:
    """The command's process group, and processes that left it but still have the command's mark."""

    mark: str

    def kill(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        end_marked(MARK, self.mark)

    async def wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        self.kill(process)


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
        if sys.platform != "linux":
            raise SandboxError("--sandbox none works on Linux only.", hint="Use --sandbox docker or --sandbox e2b.")
        host_directory = HostDirectory(self._root, spec.key)
        if host_directory.tree.exists():  # a killed process of ours may have left processes here
            await asyncio.to_thread(end_marked, PLACE, str(host_directory.path))
        await asyncio.to_thread(host_directory.prepare, spec.begin_work)
        await asyncio.to_thread(host_directory.write_base_listing)
        if spec.setup.commands:
            await asyncio.to_thread(host_directory.own, host_directory.path / "env")
            await self._set_up(host_directory, spec, on_output)
        return Unsandboxed(host_directory, spec, self._path)

    async def _set_up(self, host_directory: HostDirectory, spec: SandboxSpec, on_output: OnOutput | None) -> None:
        """In the job's own tree, once per key: its result is bound to these paths and cannot be shared."""
        done_before = host_directory.path / SET_UP
        if done_before.exists():
            return
        sandbox = Unsandboxed(host_directory, spec, self._path, online=True)
        left_out = await carry_out(spec.setup, sandbox, on_output)
        listing = host_directory.base_listing.read_bytes()
        created_paths = await asyncio.to_thread(created, str(host_directory.tree), listing)
        SetupResult(left_out, tuple(created_paths)).write(done_before)
