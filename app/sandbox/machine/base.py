"""The port to a machine whose programs are started from outside, and that receives files.

machine.start(argv) ─► Program: read() … write() … ended() | kill() ─► release()

Implemented with E2B's library and with a container engine's command line.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol


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


@asynccontextmanager
async def started(machine: Machine, argv: Sequence[str]) -> AsyncIterator[MachineProgram]:
    """Start a program, and release it at the end."""
    program = await machine.start(argv)
    try:
        yield program
    finally:
        await program.release()
