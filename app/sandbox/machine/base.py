"""The port to a machine that commands are started in from outside: programs in it, files into it.

    machine.start(argv) ─► Program: read() … write() … ended() | kill() ─► release()

E2B's library is one implementation of it, a container engine's command line the other.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol


class MachineProgram(Protocol):
    """A program under way in the machine. Who does not read makes it wait, so no flood of it fills our memory."""

    async def read(self) -> bytes:
        """What it says next on stdout; empty at its end, and where the machine is lost."""
        ...

    async def write(self, content: bytes) -> None:
        """To its stdin. SandboxError where it is not there any more."""
        ...

    async def ended(self) -> None:
        """Until it ends, or never where nobody reads. SandboxError where that is not well: lost, or no exit code 0."""
        ...

    async def kill(self) -> None:
        """It alone, not what it started. SandboxError where the machine is lost."""
        ...

    async def release(self) -> None:
        """Nobody reads any more, ended or not; what belongs to it on this machine goes. Safe to say twice."""
        ...


class Machine(Protocol):
    """Everything here is done as the machine's root."""

    @property
    def patience(self) -> float:
        """Seconds that a small call may take."""
        ...

    @property
    def namespaces(self) -> bool:
        """Whether its root may give each command a process namespace of its own."""
        ...

    @property
    def filters(self) -> Mapping[str, bytes]:
        """Programs that refuse system calls to its commands, by processor; empty where its kernel is its own."""
        ...

    @property
    def text(self) -> bool:
        """Whether its programs can say text only: other bytes are to be said in lines of base64."""
        ...

    @property
    def limits_commands(self) -> bool:
        """Whether memory is to be limited for each command: not where the whole machine has that limit already."""
        ...

    async def start(self, argv: Sequence[str]) -> MachineProgram:
        """SandboxError where the machine is lost or does not answer in time."""
        ...

    async def upload(self, path: str, content: bytes | BinaryIO) -> None:
        """A file of root's, as it is."""
        ...


@asynccontextmanager
async def started(machine: Machine, argv: Sequence[str]) -> AsyncIterator[MachineProgram]:
    """Released at the end, whatever comes."""
    program = await machine.start(argv)
    try:
        yield program
    finally:
        await program.release()
