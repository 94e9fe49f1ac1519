"""Implements the machine port with E2B's library: its output callbacks are buffered until they are read."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from e2b import AsyncSandbox
from e2b.sandbox_async.commands.command_handle import AsyncCommandHandle

from app.core.errors import SandboxError
from app.sandbox.e2b.calls import SECONDS, bounded
from app.sandbox.e2b.cloud import E2BCloud

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
