"""A job's sandbox in a container: runs commands over its files, which stay when it is stopped."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from app.core.errors import SandboxError
from app.sandbox.base import MODEL_SOCKET, CompletedCommand, SandboxLimits
from app.sandbox.command import Executor, SandboxCommand
from app.sandbox.container.engine import ContainerEngine, EngineClient, MissingContainerError, stop_client
from app.sandbox.machine.base import MachineProgram
from app.sandbox.machine.execution import MachineCommands
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.seccomp import ARCHITECTURES, program
from app.sandbox.setup.plan import WORK_ENVIRONMENT

CHUNK = 128 * 1024
MAX_STDERR = 4096
"""Bytes of stderr that are kept for an error."""
FEED_SECONDS = 600.0
MAX_OUTPUT = 1024**2
WRITE = 'mkdir -p -- "${1%/*}" && cat > "$1"'


class ContainerProgram:
    """An `app.sandbox.machine.base.MachineProgram`. Its stdin ends when this client is gone."""

    def __init__(self, engine: ContainerEngine, client: EngineClient) -> None:
        self._engine = engine
        self._client = client
        self._stderr = bytearray()
        self._reading_stderr = asyncio.create_task(self._read_stderr())

    async def read(self) -> bytes:
        return await self._client.stdout.read(CHUNK)

    async def write(self, content: bytes) -> None:
        try:
            self._client.stdin.write(content)
            await self._client.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise SandboxError("The command in the sandbox has ended.") from error

    async def feed(self, content: bytes | BinaryIO) -> None:
        """All of it, and the end of stdin."""
        if isinstance(content, bytes):
            await self.write(content)
        else:
            while chunk := await asyncio.to_thread(content.read, CHUNK):
                await self.write(chunk)
        self._client.stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._client.stdin.wait_closed()

    async def ended(self) -> None:
        code = await self._client.process.wait()
        await self._reading_stderr
        if code:
            raise self._engine.failure("executing a command", self._stderr.decode(errors="replace"))

    async def kill(self) -> None:
        await stop_client(self._client.process)

    async def release(self) -> None:
        await stop_client(self._client.process)
        self._reading_stderr.cancel()
        await asyncio.wait({self._reading_stderr})

    async def _read_stderr(self) -> None:
        while chunk := await self._client.stderr.read(CHUNK):
            self._stderr = (self._stderr + chunk)[-MAX_STDERR:]


class ContainerMachine:
    """An `app.sandbox.machine.base.Machine`; a container's root may not create namespaces."""

    namespaces = False
    limits_commands = False
    text = False
    filters: Mapping[str, bytes] = MappingProxyType({name: program(name) for name in ARCHITECTURES})

    def __init__(self, engine: ContainerEngine, name: str) -> None:
        self.engine = engine
        self.name = name

    @property
    def call_seconds(self) -> float:
        return self.engine.seconds

    async def start(self, argv: Sequence[str]) -> ContainerProgram:
        client = await self.engine.start_client("exec", "--interactive", "--user", "0", self.name, *argv)
        return ContainerProgram(self.engine, client)

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        await self.feed(["sh", "-c", WRITE, "sh", path], content)

    async def feed(self, argv: Sequence[str], content: bytes | BinaryIO) -> str:
        """The output of a program that reads `content`. Raises SandboxError if it fails or does not end in time."""
        output = bytearray()
        clock = asyncio.timeout(FEED_SECONDS)
        program = await self.start(argv)
        try:
            async with clock:
                reading = asyncio.create_task(drain(program, output))
                try:
                    with suppress(SandboxError):  # its end reports the error
                        await program.feed(content)
                    await reading
                finally:
                    reading.cancel()
                await program.ended()
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise SandboxError(f"Sending files to the sandbox took longer than {FEED_SECONDS:.0f} s.") from error
        finally:
            await program.release()
        return output.decode(errors="replace")


async def drain(program: MachineProgram, output: bytearray) -> None:
    while chunk := await program.read():
        output += chunk[: MAX_OUTPUT - len(output)]


logger = logging.getLogger(__name__)


class ContainerSandbox(Executor):
    """Its state is in the engine; opening the same key returns it, until it is destroyed."""

    isolated = True

    def __init__(
        self,
        machine: ContainerMachine,
        key: str,
        limits: SandboxLimits,
        environment: Mapping[str, str],
        model_socket: Path | None = None,
    ) -> None:
        self.key = key
        self.left_out: tuple[str, ...] = ()
        self._machine = machine
        self._commands = MachineCommands(machine, limits, environment)
        self._raw_call = SocketTunnel(machine, MODEL_SOCKET, model_socket) if model_socket is not None else None

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if self._raw_call is not None:
            await self._raw_call.follow()
        return await self.prepare(command.with_defaults(dict(WORK_ENVIRONMENT)))

    async def prepare(self, command: SandboxCommand) -> CompletedCommand:
        """As `execute`, without the variables that keep package clients offline, and without a socket."""
        return await self._commands.execute(command)

    async def close(self) -> None:
        """A stopped container waits for the next `open` and costs only disk space."""
        if self._commands.closed:
            return
        await self._end_all()
        try:
            await self._machine.engine.stop(self._machine.name)
        except MissingContainerError:
            return
        except SandboxError as error:
            logger.warning("the sandbox %s may still run: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._commands.closed:
            await self._end_all()
        await self._machine.engine.remove(self._machine.name)

    async def _end_all(self) -> None:
        await self._commands.end_all()
        if self._raw_call is not None:
            await self._raw_call.close()
