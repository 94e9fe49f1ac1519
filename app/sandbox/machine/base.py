"""The port to a machine whose programs are started from outside, and that receives files.

machine.start(argv) ─► Program: read() … write() … ended() | kill() ─► release()

Implemented with E2B's library and with a container engine's command line.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import BinaryIO, Protocol

ACCOUNT = "agent"
PLACE = "/var/lib/agent-fix"
"""The directory of our own files inside, which only root may read."""
AGAIN = "Run the same command again to continue from the last checkpoint in a new sandbox."


class MachineProgram(Protocol):
    """A running program in the machine. Without a reader it waits, so its output cannot fill our memory."""

    async def read(self) -> bytes:
        """The next stdout output; empty at its end, or if the machine is lost."""
        ...

    async def write(self, content: bytes) -> None:
        """Write to its stdin. Raises SandboxError if it no longer runs."""
        ...

    async def ended(self) -> None:
        """Returns when it ends, or never if nobody reads. Raises SandboxError if it was lost or failed."""
        ...

    async def kill(self) -> None:
        """Kill only it, not what it started. Raises SandboxError if the machine is lost."""
        ...

    async def release(self) -> None:
        """Stop reading, ended or not, and free its resources on this machine. Idempotent."""
        ...


class Machine(Protocol):
    """Everything here runs as the machine's root."""

    @property
    def call_seconds(self) -> float:
        """Seconds that a small call may take."""
        ...

    @property
    def namespaces(self) -> bool:
        """True if its root may give each command a process namespace."""
        ...

    @property
    def filters(self) -> Mapping[str, bytes]:
        """System call filters for its commands, by processor; empty if its kernel is its own."""
        ...

    @property
    def text(self) -> bool:
        """True if its programs can only print text: other bytes are sent as lines of base64."""
        ...

    @property
    def limits_commands(self) -> bool:
        """True if memory must be limited for each command: not if the whole machine has that limit."""
        ...

    async def start(self, argv: Sequence[str]) -> MachineProgram:
        """Raises SandboxError if the machine is lost or does not answer in time."""
        ...

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        """Write a file as root."""
        ...

    def kept_alive(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """While this is entered, for `seconds` at most or longer, the machine's time does not run out."""
        ...

    async def suspend(self) -> None:
        """Stop it, but keep its files for the next `open`; does nothing if it is gone."""
        ...

    async def remove(self) -> None:
        """End it for good, with its files. Idempotent."""
        ...


@asynccontextmanager
async def started(machine: Machine, argv: Sequence[str]) -> AsyncIterator[MachineProgram]:
    """Start a program, and release it at the end."""
    program = await machine.start(argv)
    try:
        yield program
    finally:
        await program.release()


class EndlessLineError(ValueError):
    """A line is longer than any valid one."""


class LineBuffer:
    """Splits a program's output into lines; `longest` is the maximum length of a line, without its end."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this chunk. Raises EndlessLineError for one that is too long, ended or not."""
        first, *others = piece.split(b"\n")
        self._rest += first
        lines: list[bytes] = []
        if others:
            lines = [bytes(self._rest), *others[:-1]]
            self._rest = bytearray(others[-1])
        if any(len(line) > self._longest for line in (*lines, self._rest)):
            raise EndlessLineError("a line without an end")
        return lines
