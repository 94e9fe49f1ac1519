"""Calls Docker or Podman through their command lines, and starts programs in their containers.

Every call has a time limit, and one kind of error.

The command line knows contexts, Docker Desktop, remote hosts and `podman machine`; nothing here looks for a socket.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from app.core.errors import SandboxError
from app.sandbox.machine.base import AGAIN, limited
from app.sandbox.seccomp import ARCHITECTURES
from app.sandbox.seccomp import program as seccomp_program

logger = logging.getLogger(__name__)
SECONDS = 60.0
COMMIT_SECONDS = 600.0
LIMIT = 256 * 1024
TITLES: Mapping[str, str] = {"docker": "Docker", "podman": "Podman"}
OLDEST: Mapping[str, tuple[int, int]] = {"docker": (20, 10), "podman": (4, 0)}
"""The first version that has all options used here."""
INSTALL: Mapping[str, str] = {
    "docker": "Install Docker Engine or Docker Desktop, or use another sandbox.",
    "podman": "Install Podman (your distribution's package, or Podman Desktop), or use another sandbox.",
}
START: Mapping[str, str] = {
    "docker": "Start it (`sudo systemctl start docker`, or Docker Desktop), and check that `docker info` works for "
    "this user: on Linux the user must be in the group `docker`, or Docker must be installed rootless.",
    "podman": "Check that `podman info` works for this user; on macOS and Windows, run `podman machine start` first.",
}
REMOVE: Mapping[str, tuple[str, ...]] = {
    "docker": ("rm", "--force", "--volumes"),
    "podman": ("rm", "--force", "--volumes", "--time", "0"),
}
CHUNK = 128 * 1024
MAX_STDERR = 4096
"""Bytes of stderr that are kept for an error."""
FEED_SECONDS = 600.0
MAX_OUTPUT = 1024**2
WRITE = 'mkdir -p -- "${1%/*}" && cat > "$1"'
_MISSING = ("no such", "not found", "no container with", "image not known", "unable to find image")


class MissingContainerError(SandboxError):
    """The requested container or image does not exist."""


class EngineClient(NamedTuple):
    """A running process of the command line, and its streams."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """`environment` is this machine's: the command line finds its contexts and sockets by it. `place` is its working
    directory, if it exists, because Podman's monitor may leave a file there."""

    name: str
    environment: Mapping[str, str] = field(repr=False)
    place: Path
    seconds: float = SECONDS

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def program(self) -> str:
        """Raises SandboxError if it is not installed."""
        found = shutil.which(self.name, path=self.environment.get("PATH", ""))
        if found is None:
            raise SandboxError(f"{self.title} is not installed: there is no `{self.name}`.", hint=INSTALL[self.name])
        return found

    async def start_client(self, *arguments: str) -> EngineClient:
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            env=dict(self.environment),
            cwd=self.place if self.place.is_dir() else "/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LIMIT,
            start_new_session=True,  # Ctrl-C is for us, and we end what must be ended
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise SandboxError(f"{self.title} was started without its streams.")
        return EngineClient(process, process.stdin, process.stdout, process.stderr)

    async def run(self, *arguments: str, action: str, seconds: float = 0.0) -> str:
        """Its output. Raises SandboxError if it fails, MissingContainerError if the container or image does not
        exist."""
        process = (await self.start_client(*arguments)).process
        limit = seconds or self.seconds
        late = SandboxError(f"{self.title} did not answer within {limit:.0f} s ({action}).", hint=AGAIN)
        try:
            async with limited(limit, late):
                out, err = await process.communicate()
        finally:
            await stop_client(process)
        if process.returncode:
            raise self.failure(action, err.decode(errors="replace"))
        return out.decode(errors="replace").strip()

    def failure(self, action: str, stderr: str) -> SandboxError:
        """Our own error, from what the command line wrote to stderr."""
        message = stderr.strip()[-500:] or "no message"
        low = message.lower()
        if "permission denied" in low and "sock" in low:
            return SandboxError(f"{self.title} refuses this user ({action}): {message}", hint=START[self.name])
        if "cannot connect" in low or "is the docker daemon running" in low or "unable to connect to podman" in low:
            return SandboxError(f"{self.title} is not reachable ({action}): {message}", hint=START[self.name])
        kind = MissingContainerError if any(words in low for words in _MISSING) else SandboxError
        return kind(f"{self.title} failed ({action}): {message}", hint=AGAIN)

    async def version(self) -> str:
        """The version of the engine itself. Raises SandboxError if it cannot be reached."""
        versions = json.loads(await self.run("version", "--format", "{{json .}}", action="asking for its version"))
        for part in ("Server", "Client"):  # Podman on the same machine has no server
            version = (versions.get(part) or {}).get("Version")
            if version:
                return str(version)
        return "0"

    async def container(self, name: str) -> Mapping[str, Any] | None:
        """The engine's description of a container; None if there is none."""
        return await self._inspect("container", name, "looking for a sandbox")

    async def image(self, name: str) -> Mapping[str, Any] | None:
        return await self._inspect("image", name, "looking for an image")

    async def _inspect(self, kind: str, name: str, action: str) -> Mapping[str, Any] | None:
        try:
            output = await self.run(kind, "inspect", name, action=action)
        except MissingContainerError:
            return None
        found: Mapping[str, Any] = json.loads(output)[0]
        return found

    async def create(self, arguments: Sequence[str]) -> None:
        await self.run("create", *arguments, action="making a sandbox")

    async def start(self, name: str) -> None:
        await self.run("start", name, action="starting a sandbox")

    async def stop(self, name: str) -> None:
        """End everything in it at once. Idempotent, also if it is gone."""
        try:
            await self.run("kill", "--signal", "KILL", name, action="ending a sandbox")
        except SandboxError:
            description = await self.container(name)
            if description is not None and description["State"].get("Running"):
                raise

    async def remove(self, name: str) -> None:
        """Remove it with its processes and volumes. Idempotent."""
        with suppress(MissingContainerError):
            await self.run(*REMOVE[self.name], name, action="removing a sandbox")

    async def commit(self, name: str, image: str, changes: Sequence[str]) -> None:
        """Store its files as an image."""
        words = [word for change in changes for word in ("--change", change)]
        await self.run("commit", *words, name, image, action="keeping the set-up", seconds=COMMIT_SECONDS)

    async def remove_image(self, name: str) -> None:
        with suppress(MissingContainerError):
            await self.run("rmi", name, action="removing a kept set-up")

    async def containers(self, label: str) -> list[str]:
        """Names of those with the label, running or not."""
        output = await self.run(
            "ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}", action="looking for sandboxes"
        )
        return output.split()

    async def images(self, label: str) -> list[str]:
        """REPOSITORY:TAG of those with the label."""
        output = await self.run(
            *("images", "--filter", f"label={label}", "--format", "{{.Repository}}:{{.Tag}}"),
            action="looking for kept set-ups",
        )
        return output.split()


async def stop_client(process: asyncio.subprocess.Process) -> None:
    """End a client of the command line that is still running."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def discard(engine: ContainerEngine, name: str) -> None:
    """Remove a container after an error or at its end; failures are only logged."""
    try:
        await engine.remove(name)
    except SandboxError as error:
        logger.warning("the container %s could not be removed: %s", name, error.message)


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
    filters: Mapping[str, bytes] = MappingProxyType({name: seccomp_program(name) for name in ARCHITECTURES})

    def __init__(self, engine: ContainerEngine, name: str) -> None:
        self.engine = engine
        self.name = name

    def kept_alive(self, seconds: float) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def suspend(self) -> None:
        """A stopped container costs only disk space."""
        with suppress(MissingContainerError):
            await self.engine.stop(self.name)

    async def remove(self) -> None:
        await self.engine.remove(self.name)

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
        late = SandboxError(f"Sending files to the sandbox took longer than {FEED_SECONDS:.0f} s.")
        program = await self.start(argv)

        async def read_output() -> None:
            while chunk := await program.read():
                output.extend(chunk[: MAX_OUTPUT - len(output)])

        try:
            async with limited(FEED_SECONDS, late):
                reading = asyncio.create_task(read_output())
                try:
                    with suppress(SandboxError):  # its end reports the error
                        await program.feed(content)
                    await reading
                finally:
                    reading.cancel()
                await program.ended()
        finally:
            await program.release()
        return output.decode(errors="replace")
