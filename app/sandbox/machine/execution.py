"""Runs one command in a machine: sends an order, and turns the lines that come back into a result."""

import asyncio
import base64
import json
import math
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.errors import LostSandboxError, SandboxError
from app.sandbox.base import CompletedCommand, SandboxLimits
from app.sandbox.child_process import OUTPUT_CEILING
from app.sandbox.command import SandboxCommand, cannot_execute
from app.sandbox.machine.base import Machine, MachineProgram
from app.sandbox.output_capture import LineBuffer, OutputCapture

ACCOUNT = "agent"
PLACE = "/var/lib/agent-fix"
PROGRAM = f"{PLACE}/supervisor.py"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
"""The program that is uploaded as PROGRAM."""
AGAIN = "Run the same command again to continue from the last checkpoint in a new sandbox."
MAX_INLINE = 64 * 1024
"""Bytes of an order that fit on a command line; larger ones are sent as a file."""
EXTRA_SECONDS = 30.0
"""Seconds beyond a command's own time limit, which is enforced inside, before the machine is given up."""
MAX_LINE_LENGTH = 128 * 1024
KILL = b"k"


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """What to execute, and with which settings inside."""

    command: SandboxCommand
    limits: SandboxLimits
    network: bool = True
    """True for the machine's own network, whatever it reaches; False for a separate one with a loopback only."""

    def as_json(self, stdin_file: str, machine: Machine) -> bytes:
        command = self.command
        inline = b"" if stdin_file else command.stdin
        order: dict[str, Any] = {
            "argv": list(command.argv),
            "env": dict(command.env),
            "cwd": command.cwd,
            "account": ACCOUNT,
            "timeout": command.timeout,
            "keep": self.limits.output,
            "file_size": self.limits.file_size,
            "processes": self.limits.processes,
            "cpus": self.limits.cpus,
            "memory": self.limits.memory if machine.limits_commands else 0,
            "ceiling": OUTPUT_CEILING,
            "apart": command.separate_stderr,
            "stream": command.on_output is not None,
            "stdin": base64.b64encode(inline).decode(),
            "stdin_file": stdin_file,
            "namespace": machine.namespaces,
            "network": self.network,
            "filters": {name: base64.b64encode(code).decode() for name, code in machine.filters.items()},
        }
        return json.dumps(order).encode()


@dataclass(frozen=True, slots=True)
class ExecutionEnd:
    """How a command ended, as reported by the machine."""

    code: int
    seconds: float
    timed_out: bool
    flooded: bool
    dropped: int

    @classmethod
    def parsed(cls, content: bytes) -> "ExecutionEnd":
        """Raises ValueError if it is anything else."""
        try:
            report = json.loads(content)
        except RecursionError as error:
            raise ValueError("too deep") from error
        match report:
            case {
                "code": int(code),
                "seconds": float(seconds),
                "timed_out": bool(timed_out),
                "flooded": bool(flooded),
                "dropped": int(dropped),
            } if 0 <= code < 256 and dropped >= 0 and math.isfinite(seconds):
                return cls(code, seconds, timed_out, flooded, dropped)
        raise ValueError("no end of a command")


def parse_messages(lines: LineBuffer, piece: bytes) -> list[ExecutionEnd | tuple[bytes, bytes]]:
    """The supervisor's messages: output by its kind, or the end. Raises SandboxError for anything else."""
    try:
        return [_parse_message(line) for line in lines.feed(piece)]
    except ValueError as error:
        raise LostSandboxError(f"The sandbox sent an invalid message: {error}.", hint=AGAIN) from error


def _parse_message(line: bytes) -> ExecutionEnd | tuple[bytes, bytes]:
    kind, content = line[:1], line[1:]
    if kind == b"x":
        return ExecutionEnd.parsed(content)
    if kind not in {b"o", b"e"}:
        raise ValueError("a line of unknown kind")
    return kind, base64.b64decode(content, validate=True)


@dataclass(slots=True, eq=False)
class MachineExecution:
    """A running order. `kill` may be called at any time; `carry_out` then returns soon."""

    machine: Machine
    order: ExecutionOrder
    _end: ExecutionEnd | None = None
    _program: MachineProgram | None = None
    _killed: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self) -> CompletedCommand:
        """Raises SandboxError if the machine is lost or no longer answers."""
        order = self.order
        out = OutputCapture(order.limits.output)
        err = OutputCapture(order.limits.output) if order.command.separate_stderr else out
        try:
            async with self._running_program() as program:
                await self._read_with_limit(program, out, err)
        finally:
            self._over.set()
        return self._completed(out, err)

    async def kill(self) -> None:
        self._killed = True
        if self._program is not None and not self._over.is_set():
            await self._request_kill(self._program)

    async def over(self) -> None:
        await self._over.wait()

    @asynccontextmanager
    async def _running_program(self) -> AsyncIterator[MachineProgram]:
        """However it is left, nothing that the command started still runs, as far as the machine can be reached."""
        program = await self._start(await self._send())
        self._program = program
        try:
            if self._killed:
                await self._request_kill(program)
            yield program
        finally:
            if self._end is None:
                await asyncio.shield(self._end_and_wait(program))
            await program.release()

    async def _start(self, word: str) -> MachineProgram:
        """Wait for a start even after a cancellation, because only a known program can be ended."""
        starting = asyncio.ensure_future(self.machine.start(["python3", "-I", PROGRAM, word]))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(SandboxError):
                program = await starting
                await self._end_and_wait(program)
                await program.release()
            raise

    async def _send(self) -> str:
        """The word on the command line that refers to the order."""
        stdin_file = ""
        if len(self.order.command.stdin) > MAX_INLINE // 2:
            stdin_file = f"{PLACE}/orders/{secrets.token_hex(8)}"
            await self.machine.upload(stdin_file, self.order.command.stdin)
        order = self.order.as_json(stdin_file, self.machine)
        if len(order) <= MAX_INLINE:
            return f"inline:{base64.b64encode(order).decode()}"
        path = f"{PLACE}/orders/{secrets.token_hex(8)}"
        await self.machine.upload(path, order)
        return f"file:{path}"

    async def _read_with_limit(self, program: MachineProgram, out: OutputCapture, err: OutputCapture) -> None:
        limit = self.order.command.timeout + EXTRA_SECONDS
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                await self._read_messages(program, out, err)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise LostSandboxError(f"The sandbox did not end a command within {limit:.0f} s.", hint=AGAIN) from error
        if self._end is None:
            try:
                await program.ended()  # raises the reason if it is known
            except SandboxError as error:
                raise LostSandboxError(error.message, hint=error.hint or AGAIN) from error

    async def _read_messages(self, program: MachineProgram, out: OutputCapture, err: OutputCapture) -> None:
        lines = LineBuffer(MAX_LINE_LENGTH)
        while chunk := await program.read():
            for message in parse_messages(lines, chunk):
                if isinstance(message, ExecutionEnd):
                    self._end = message
                    return
                kind, content = message
                (err if kind == b"e" else out).add(content)
                if self.order.command.on_output is not None:
                    self.order.command.on_output(content)

    async def _end_and_wait(self, program: MachineProgram) -> None:
        """End the command and wait until everything that it started is gone."""
        with suppress(SandboxError, TimeoutError):  # a lost machine executes nothing, and our caller reports that
            async with asyncio.timeout(self.machine.call_seconds):
                await self._request_kill(program)
                while await program.read():
                    pass

    async def _request_kill(self, program: MachineProgram) -> None:
        try:
            await program.write(KILL)
        except SandboxError:
            if not self._over.is_set():
                await program.kill()

    def _completed(self, out: OutputCapture, err: OutputCapture) -> CompletedCommand:
        end = self._end
        if end is None:
            raise LostSandboxError("The sandbox ended a command without a result.", hint=AGAIN)
        apart = self.order.command.separate_stderr
        note = f"\n[ended: the command wrote more than {OUTPUT_CEILING // 1024**3} GiB of output]\n".encode()
        return CompletedCommand(
            exit_code=end.code,
            output=out.value() + (note if end.flooded else b""),
            stderr=err.value() if apart else b"",
            seconds=end.seconds,
            timed_out=end.timed_out,
            dropped=end.dropped + out.dropped + (err.dropped if apart else 0),
        )


@dataclass(slots=True, eq=False)
class MachineCommands:
    """`environment` is for every command; `closed` is true after `end_all`. `network` as in an order."""

    machine: Machine
    limits: SandboxLimits
    environment: Mapping[str, str]
    closed: bool = False
    network: bool = True
    _running: set[MachineExecution] = field(default_factory=set)

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        if self.closed:
            raise SandboxError("The sandbox is closed.")
        if command.unusable:
            return cannot_execute(command.unusable)
        order = ExecutionOrder(command.with_defaults(self.environment), self.limits, self.network)
        execution = MachineExecution(self.machine, order)
        self._running.add(execution)
        try:
            return await execution.carry_out()
        finally:
            self._running.discard(execution)

    async def end_all(self) -> None:
        """End all commands; no new ones can start."""
        self.closed = True
        running = list(self._running)
        for execution in running:
            with suppress(SandboxError):  # a lost machine executes nothing
                await execution.kill()
        await asyncio.gather(*(execution.over() for execution in running))
