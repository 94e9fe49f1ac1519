"""One command in a cloud machine: the order that is sent, and the lines that come back, as what a sandbox promises."""

import asyncio
import base64
import binascii
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from e2b import AsyncSandbox
from e2b.sandbox_async.commands.command_handle import AsyncCommandHandle

from app.errors import SandboxError
from app.sandbox.base import Completed, Limits, OnOutput
from app.sandbox.capture import HeadTail
from app.sandbox.child import OUTPUT_CEILING
from app.sandbox.e2b.calls import AGAIN, SECONDS, bounded
from app.sandbox.e2b.cloud import Cloud

ACCOUNT = "agent"
PLACE = "/var/lib/agent-fix"
PROGRAM = f"{PLACE}/inside.py"
INLINE = 64 * 1024
"""Bytes of an order that travel on a command line; larger ones are sent as a file."""
GRACE = 30.0
"""What a command's own time limit, which is held inside, may be late for before the machine is given up."""
WAITING_LINES = 64


@dataclass(frozen=True, slots=True)
class Order:
    """What to execute, as whom it may concern inside."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Limits
    timeout: float
    stdin: bytes = b""
    separate_stderr: bool = False
    on_output: OnOutput | None = None

    def as_json(self, stdin_file: str) -> bytes:
        inline = b"" if stdin_file else self.stdin
        told: dict[str, Any] = {
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "account": ACCOUNT,
            "timeout": self.timeout,
            "keep": self.limits.output,
            "file_size": self.limits.file_size,
            "processes": self.limits.processes,
            "ceiling": OUTPUT_CEILING,
            "apart": self.separate_stderr,
            "stream": self.on_output is not None,
            "stdin": base64.b64encode(inline).decode(),
            "stdin_file": stdin_file,
        }
        return json.dumps(told).encode()


@dataclass(slots=True, eq=False)
class Execution:
    """An order under way. `kill` may be said at any time; `carry_out` then returns soon."""

    cloud: Cloud
    machine: AsyncSandbox
    order: Order
    _lines: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(WAITING_LINES))
    _rest: str = ""
    _end: dict[str, Any] | None = None
    _handle: "AsyncCommandHandle[None] | None" = None
    _killed: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self) -> Completed:
        """SandboxError where the machine is lost or answers nothing any more."""
        order = self.order
        out = HeadTail(order.limits.output)
        err = HeadTail(order.limits.output) if order.separate_stderr else out
        try:
            word = await self._send()
            handle = await self._start(word)
            self._handle = handle
            if self._killed:
                await self._say_kill(handle)
            await self._follow(handle, out, err)
        finally:
            self._over.set()
        return self._completed(out, err)

    async def _start(self, word: str) -> "AsyncCommandHandle[None]":
        """A start that nobody waits for any more is waited for all the same: only what is known can be ended."""
        seconds = min(SECONDS, self.cloud.seconds)
        running = self.machine.commands.run(
            f"exec python3 -I {PROGRAM} {word}",
            background=True,
            user="root",
            stdin=True,
            timeout=0,
            on_stdout=self._hear,
            retain_output=False,
        )
        starting = asyncio.ensure_future(bounded(running, "starting a command", seconds=seconds))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(SandboxError):
                await self._say_kill(await starting)
            raise

    async def kill(self) -> None:
        self._killed = True
        if self._handle is not None and not self._over.is_set():
            await self._say_kill(self._handle)

    async def over(self) -> None:
        await self._over.wait()

    async def _send(self) -> str:
        """The word on the command line that the order is found by."""
        stdin_file = ""
        if len(self.order.stdin) > INLINE // 2:
            stdin_file = f"{PLACE}/orders/{secrets.token_hex(8)}"
            await self.cloud.upload(self.machine, stdin_file, self.order.stdin)
        told = self.order.as_json(stdin_file)
        if len(told) <= INLINE:
            return f"inline:{base64.b64encode(told).decode()}"
        place = f"{PLACE}/orders/{secrets.token_hex(8)}"
        await self.cloud.upload(self.machine, place, told)
        return f"file:{place}"

    async def _hear(self, text: str) -> None:
        """Called by the SDK; who waits here makes the sandbox wait, so no flood fills our memory."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            await self._lines.put(line)

    async def _follow(self, handle: "AsyncCommandHandle[None]", out: HeadTail, err: HeadTail) -> None:
        ended = asyncio.ensure_future(handle.wait())
        reading = asyncio.ensure_future(self._read(out, err))
        try:
            await self._converse(handle, ended, reading)
        except BaseException:
            await asyncio.shield(self._put_down(handle, ended, reading))
            raise
        finally:
            for task in (ended, reading):
                task.cancel()
            await asyncio.wait({ended, reading})
            _ = ended.cancelled() or ended.exception()

    async def _converse(
        self, handle: "AsyncCommandHandle[None]", ended: "asyncio.Future[Any]", reading: "asyncio.Future[None]"
    ) -> None:
        limit = self.order.timeout + GRACE
        done, _ = await asyncio.wait({ended, reading}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise SandboxError(f"E2B did not end a command within {limit:.0f} s.", hint=AGAIN)
        if ended in done and not reading.done():
            await self._lines.put(None)
        await reading
        if self._end is None:
            await bounded(handle.wait(), "executing a command", seconds=self.cloud.seconds)
            raise SandboxError("The cloud sandbox ended a command without saying how.", hint=AGAIN)

    async def _put_down(
        self, handle: "AsyncCommandHandle[None]", ended: "asyncio.Future[Any]", reading: "asyncio.Future[None]"
    ) -> None:
        """End the command and wait until everything that it started is gone."""
        reading.cancel()
        draining = asyncio.ensure_future(self._drain())
        try:
            await self._say_kill(handle)
            await asyncio.wait({ended}, timeout=min(SECONDS, self.cloud.seconds))
        except SandboxError:  # the machine is lost, which is told by what brought us here
            return
        finally:
            draining.cancel()
            await asyncio.wait({draining})

    async def _drain(self) -> None:
        while True:
            await self._lines.get()

    async def _say_kill(self, handle: "AsyncCommandHandle[None]") -> None:
        seconds = min(SECONDS, self.cloud.seconds)
        try:
            await bounded(handle.send_stdin(b"k"), "ending a command", seconds=seconds)
        except SandboxError:
            if not self._over.is_set():
                await bounded(handle.kill(), "ending a command", seconds=seconds)

    async def _read(self, out: HeadTail, err: HeadTail) -> None:
        while (line := await self._lines.get()) is not None:
            kind, content = line[:1], line[1:]
            if kind == "x":
                self._end = json.loads(content)
                return
            try:
                chunk = base64.b64decode(content, validate=True)
            except binascii.Error as error:
                raise SandboxError("The cloud sandbox says what it should not.") from error
            (err if kind == "e" else out).add(chunk)
            if self.order.on_output is not None:
                self.order.on_output(chunk)

    def _completed(self, out: HeadTail, err: HeadTail) -> Completed:
        end = self._end or {}
        apart = self.order.separate_stderr
        note = f"\n[ended: the command wrote more than {OUTPUT_CEILING // 1024**3} GiB of output]\n".encode()
        return Completed(
            exit_code=int(end["code"]),
            output=out.value() + (note if end["flooded"] else b""),
            stderr=err.value() if apart else b"",
            seconds=float(end["seconds"]),
            timed_out=bool(end["timed_out"]),
            dropped=int(end["dropped"]) + out.dropped + (err.dropped if apart else 0),
        )
