"""A job's sandbox in the cloud: runs commands over one machine's files; paused or ended with it."""

import asyncio
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from e2b import AsyncSandbox

from app.core.errors import SandboxError
from app.sandbox.base import ENV, HOME, MODEL_SOCKET, CompletedCommand, SandboxLimits, SetupPlan
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.e2b.cloud import LIFETIME, SECONDS, E2BCloud, LostMachineError, bounded
from app.sandbox.machine.execution import MachineCommands
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.setup.plan import WORK_ENVIRONMENT

if TYPE_CHECKING:
    from e2b.sandbox_async.commands.command_handle import AsyncCommandHandle

WAITING = 16
"""Chunks of the library, of up to 4 MB each, that may wait to be read."""


@dataclass(slots=True)
class BufferedOutput:
    """Output that was not read yet; an empty chunk marks the end."""

    chunks: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    space: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WAITING))

    async def add(self, text: str) -> None:
        """Called by the library; waiting here makes the sandbox wait."""
        await self.space.acquire()
        self.chunks.put_nowait(text)

    async def read(self) -> str:
        word = await self.chunks.get()
        if word:
            self.space.release()
        else:
            self.chunks.put_nowait("")
        return word


class E2BProgram:
    """An `app.sandbox.machine.base.MachineProgram`."""

    def __init__(self, handle: "AsyncCommandHandle[None]", output: BufferedOutput, seconds: float) -> None:
        self._handle = handle
        self._output = output
        self._seconds = seconds
        self._end: asyncio.Future[Any] = asyncio.ensure_future(handle.wait())
        self._end.add_done_callback(lambda _: output.chunks.put_nowait(""))

    async def read(self) -> bytes:
        return (await self._output.read()).encode("utf-8", "replace")

    async def write(self, content: bytes) -> None:
        await bounded(self._handle.send_stdin(content), "writing to a command", seconds=self._seconds)

    async def ended(self) -> None:
        await asyncio.wait({self._end})
        await bounded(self._handle.wait(), "executing a command", seconds=self._seconds)

    async def kill(self) -> None:
        await bounded(self._handle.kill(), "ending a command", seconds=self._seconds)

    async def release(self) -> None:
        if not self._end.done():
            with suppress(SandboxError):
                await bounded(self._handle.disconnect(), "leaving a command", seconds=self._seconds)
        self._end.cancel()
        await asyncio.wait({self._end})
        _ = self._end.cancelled() or self._end.exception()  # marks the exception as retrieved


@dataclass(frozen=True, slots=True)
class E2BMachine:
    """An `app.sandbox.machine.base.Machine`."""

    cloud: E2BCloud
    sandbox: AsyncSandbox
    namespaces: bool = True
    filters: Mapping[str, bytes] = field(default_factory=dict)
    limits_commands: bool = True
    text: bool = True

    @property
    def call_seconds(self) -> float:
        return min(SECONDS, self.cloud.seconds)

    async def start(self, argv: Sequence[str]) -> E2BProgram:
        output = BufferedOutput()
        starting = self.sandbox.commands.run(
            f"exec {shlex.join(argv)}",
            background=True,
            user="root",
            stdin=True,
            timeout=0,
            on_stdout=output.add,
            retain_output=False,
        )
        handle = await bounded(starting, "starting a command", seconds=self.call_seconds)
        return E2BProgram(handle, output, self.call_seconds)

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        await self.cloud.upload(self.sandbox, path, content)


logger = logging.getLogger(__name__)


class E2BSandbox(Executor):
    """Its state is in the cloud; opening the same key returns it, until it is destroyed or its time runs out."""

    isolated = True

    def __init__(
        self,
        cloud: E2BCloud,
        machine: AsyncSandbox,
        key: str,
        limits: SandboxLimits,
        setup: SetupPlan | None = None,
        *,
        model_socket: Path | None = None,
        network: bool = False,
    ) -> None:
        """`network` is the machine's, for set-up commands; all others have only a loopback interface."""
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._cloud = cloud
        self._machine = machine
        environment = {
            "PATH": ":".join((f"{ENV}/bin", *SYSTEM_PATH)),
            "HOME": HOME,
            "TMPDIR": "/tmp",  # noqa: S108 - a path inside the sandbox
            "LANG": "C.UTF-8",
            **dict(setup.environment if setup else ()),
        }
        inside = E2BMachine(cloud, machine)
        self._commands = MachineCommands(inside, limits, environment, network=network)
        self._raw_call = SocketTunnel(inside, MODEL_SOCKET, model_socket) if model_socket is not None else None
        self._renewed = time.monotonic()

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return await self.execute_online(command.with_defaults(dict(WORK_ENVIRONMENT)))

    async def execute_online(self, command: SandboxCommand) -> CompletedCommand:
        """As `execute`, without the variables that keep package clients offline."""
        if self._commands.closed or command.unusable:
            return await self._commands.execute(command)
        await self._ensure_lifetime(command.timeout)
        if self._raw_call is not None:
            await self._raw_call.follow()
        staying = asyncio.create_task(self._renew_lifetime())
        try:
            return await self._commands.execute(command)
        finally:
            staying.cancel()
            await asyncio.wait({staying})

    async def close(self) -> None:
        """A paused machine waits for the next `open` and costs no machine time."""
        if self._commands.closed:
            return
        await self._end_all()
        try:
            await self._cloud.pause(self._machine)
        except LostMachineError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s runs until its time ends: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._commands.closed:
            await self._end_all()
        await self._cloud.kill(self._machine.sandbox_id)

    async def _end_all(self) -> None:
        await self._commands.end_all()
        if self._raw_call is not None:
            await self._raw_call.close()

    async def _ensure_lifetime(self, timeout: float) -> None:
        """Renew the machine's time to live, so that it outlasts the command."""
        age = time.monotonic() - self._renewed
        if age > self._cloud.renewal or age + timeout > LIFETIME:
            await self._cloud.extend_lifetime(self._machine)
            self._renewed = time.monotonic()

    async def _renew_lifetime(self) -> None:
        """Renew repeatedly, because other agents work for longer than the maximum time to live."""
        while True:
            await asyncio.sleep(self._cloud.renewal)
            with suppress(SandboxError):  # a command in a lost machine reports that itself
                await self._cloud.extend_lifetime(self._machine)
                self._renewed = time.monotonic()
