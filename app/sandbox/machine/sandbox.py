"""A sandbox in a machine: sends each command to the supervisor inside, and makes a result of what comes back."""

import asyncio
import base64
import json
import logging
import math
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.core.errors import LostSandboxError, SandboxError
from app.sandbox.base import (
    MODEL_SOCKET,
    CompletedCommand,
    Executor,
    SandboxCommand,
    SandboxLimits,
)
from app.sandbox.child_process import FLOOD_NOTE, OUTPUT_CEILING
from app.sandbox.machine.base import ACCOUNT, AGAIN, PLACE, PROGRAM, LineBuffer, Machine, MachineProgram, limited
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.machine.supervisor import OutputCapture
from app.sandbox.setup.run_commands import NO_RESULT, SetupResult

logger = logging.getLogger(__name__)
MAX_INLINE = 64 * 1024
"""Bytes of an order that fit on a command line; larger ones are sent as a file."""
EXTRA_SECONDS = 30.0
"""Seconds beyond a command's own time limit, which is enforced inside, before the machine is given up."""
MAX_LINE_LENGTH = 128 * 1024
KILL = b"k"


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
    """A running command. `kill` may be called at any time; `carry_out` then returns soon.

    `network` is the machine's own network, whatever it reaches; without it the command has only a loopback interface.
    """

    machine: Machine
    command: SandboxCommand
    limits: SandboxLimits
    network: bool = True
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _end: ExecutionEnd | None = None
    _program: MachineProgram | None = None
    _killed: bool = False

    async def carry_out(self) -> CompletedCommand:
        """Raises SandboxError if the machine is lost or no longer answers."""
        apart = self.command.separate_stderr
        out = OutputCapture(self.limits.output)
        err = OutputCapture(self.limits.output) if apart else out
        try:
            async with self._running_program() as program:
                await self._read_with_limit(program, out, err)
        finally:
            self.over.set()
        end = self._end
        if end is None:
            raise LostSandboxError("The sandbox ended a command without a result.", hint=AGAIN)
        return CompletedCommand(
            exit_code=end.code,
            output=out.value() + (FLOOD_NOTE if end.flooded else b""),
            stderr=err.value() if apart else b"",
            seconds=end.seconds,
            timed_out=end.timed_out,
            dropped=end.dropped + out.dropped + (err.dropped if apart else 0),
        )

    async def kill(self) -> None:
        self._killed = True
        if self._program is not None and not self.over.is_set():
            await self._request_kill(self._program)

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
        if len(self.command.stdin) > MAX_INLINE // 2:
            stdin_file = f"{PLACE}/orders/{secrets.token_hex(8)}"
            await self.machine.upload(stdin_file, self.command.stdin)
        order = json.dumps(self._order(stdin_file)).encode()
        if len(order) <= MAX_INLINE:
            return f"inline:{base64.b64encode(order).decode()}"
        path = f"{PLACE}/orders/{secrets.token_hex(8)}"
        await self.machine.upload(path, order)
        return f"file:{path}"

    def _order(self, stdin_file: str) -> dict[str, Any]:
        """What to execute, and with which settings inside, as `supervisor.py` reads it."""
        command, limits, machine = self.command, self.limits, self.machine
        return {
            "argv": list(command.argv),
            "env": dict(command.env),
            "cwd": command.cwd,
            "account": ACCOUNT,
            "timeout": command.timeout,
            "keep": limits.output,
            "file_size": limits.file_size,
            "processes": limits.processes,
            "cpus": limits.cpus,
            "memory": limits.memory if machine.limits_commands else 0,
            "ceiling": OUTPUT_CEILING,
            "apart": command.separate_stderr,
            "stream": command.on_output is not None,
            "stdin": base64.b64encode(b"" if stdin_file else command.stdin).decode(),
            "stdin_file": stdin_file,
            "namespace": machine.namespaces,
            "network": self.network,
            "filters": {name: base64.b64encode(code).decode() for name, code in machine.filters.items()},
        }

    async def _read_with_limit(self, program: MachineProgram, out: OutputCapture, err: OutputCapture) -> None:
        limit = self.command.timeout + EXTRA_SECONDS
        late = LostSandboxError(f"The sandbox did not end a command within {limit:.0f} s.", hint=AGAIN)
        async with limited(limit, late):
            await self._read_messages(program, out, err)
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
                if self.command.on_output is not None:
                    self.command.on_output(content)

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
            if not self.over.is_set():
                await program.kill()


class MachineSandbox(Executor):
    """A job's sandbox in a machine. Its state is there; opening the same key returns it, until it is destroyed."""

    isolated = True

    def __init__(
        self,
        machine: Machine,
        key: str,
        limits: SandboxLimits,
        environment: Mapping[str, str],
        *,
        result: SetupResult = NO_RESULT,
        model_socket: Path | None = None,
        network: bool = True,
    ) -> None:
        """`environment` is for every command, and `network` as in MachineExecution."""
        self.key = key
        self.left_out, self.created = result.left_out, result.created
        self._machine = machine
        self._limits = limits
        self._environment = environment
        self._network = network
        self._tunnel = SocketTunnel(machine, MODEL_SOCKET, model_socket) if model_socket is not None else None
        self._running: set[MachineExecution] = set()

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        async with self._machine.kept_alive(command.timeout):
            if self._tunnel is not None:
                await self._tunnel.follow()
            self.refuse_if_closed()
            command = replace(command, env={**self._environment, **command.env})
            execution = MachineExecution(self._machine, command, self._limits, self._network)
            self._running.add(execution)
            try:
                return await execution.carry_out()
            finally:
                self._running.discard(execution)

    async def close(self) -> None:
        """A suspended machine waits for the next `open` and costs only disk space."""
        if self._closed:
            return
        await self._end_all()
        try:
            await self._machine.suspend()
        except SandboxError as error:
            logger.warning("the sandbox %s may still run: %s", self.key, error.message)

    async def destroy(self) -> None:
        if not self._closed:
            await self._end_all()
        await self._machine.remove()

    async def _end_all(self) -> None:
        """End all commands, and the tunnel; no new commands can start."""
        self._closed = True
        running = list(self._running)
        for execution in running:
            with suppress(SandboxError):  # a lost machine executes nothing
                await execution.kill()
        await asyncio.gather(*(execution.over.wait() for execution in running))
        if self._tunnel is not None:
            await self._tunnel.close()
