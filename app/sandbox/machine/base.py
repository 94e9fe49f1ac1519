"""The port to a machine whose programs are started from outside, and that receives files; and how one is prepared.

machine.start(argv) ─► Program: read() … write() … ended() | kill() ─► release()

Implemented with E2B's library and with a container engine's command line. The base tree is packed into an archive, and
small scripts of ours run as root inside.
"""

import asyncio
import base64
import json
import os
import shlex
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

from app.core.errors import LostSandboxError, SandboxError
from app.core.scratch import scratch
from app.sandbox.base import BASE_LISTING, ENV, HOME, LIST_COMMAND, WORKSPACE
from app.sandbox.host_directories import entries_below
from app.sandbox.setup.run_commands import SetupResult

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
async def limited(seconds: float, late: SandboxError) -> AsyncIterator[None]:
    """Raises `late` after that time, whatever is done meanwhile."""
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            yield
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise late from error


@asynccontextmanager
async def started(machine: Machine, argv: Sequence[str]) -> AsyncIterator[MachineProgram]:
    """Start a program, and release it at the end."""
    program = await machine.start(argv)
    try:
        yield program
    finally:
        await program.release()


class LineBuffer:
    """Splits a program's output into lines; `longest` is the maximum length of a line, without its end."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this chunk. Raises ValueError for one that is too long, ended or not."""
        first, *others = piece.split(b"\n")
        self._rest += first
        lines: list[bytes] = []
        if others:
            lines = [bytes(self._rest), *others[:-1]]
            self._rest = bytearray(others[-1])
        if any(len(line) > self._longest for line in (*lines, self._rest)):
            raise ValueError("a line without an end")
        return lines


PROGRAM = f"{PLACE}/supervisor.py"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
"""The program that is uploaded as PROGRAM."""
SECONDS = 300.0
MAX_OUTPUT = 4 * 1024**2
ARCHIVE = f"{PLACE}/tree.tar.gz"


@dataclass(frozen=True, slots=True)
class PackedTree:
    """`files` counts everything that is not a directory."""

    archive: BinaryIO
    files: int


@asynccontextmanager
async def packing_tree(fill: Callable[[Path], None]) -> AsyncIterator[PackedTree]:
    """No other host files can be included: links are packed as links."""
    with TemporaryFile() as archive:
        yield await asyncio.to_thread(_pack, fill, archive)


def _pack(fill: Callable[[Path], None], archive: BinaryIO) -> PackedTree:
    with scratch("packing") as tree:
        fill(tree)
        with tarfile.open(
            fileobj=archive,
            mode="w:gz",
            compresslevel=1,
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
        ) as tar:
            count = sum(_add(tar, entry, entry.path[len(f"{tree}/") :]) for entry in entries_below(tree))
    archive.seek(0)
    return PackedTree(archive, count)


def _add(tar: tarfile.TarFile, entry: os.DirEntry[str], name: str) -> bool:
    """Returns False for a directory. Written by hand, since `tar.add` looks up each owner and remembers all members."""
    facts = entry.stat(follow_symlinks=False)
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(facts.st_mode), int(facts.st_mtime)
    if stat.S_ISDIR(facts.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(facts.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(entry.path)  # noqa: PTH115 - of an entry
        tar.addfile(member)
    else:
        member.size = facts.st_size
        with open(entry.path, "rb") as content:  # noqa: PTH123 - of an entry
            tar.addfile(member, content)
    tar.members.clear()  # type: ignore[attr-defined]
    return member.type != tarfile.DIRTYPE


# The scripts. A machine is prepared (PREPARE), filled (UNPACK) and finished (FINISH). For a set-up, it is prepared,
# filled and opened (OPEN); the result is sealed (SEAL or COLLECT), and the rest removed (CLEAR, NOTHING_ELSE).

_LAYER = f"{PLACE}-layer"
"""What the set-up has created: root's, but the account may copy it."""
_LEFT_OUT, _CREATED = f"{PLACE}/left-out.json", f"{PLACE}/created.json"
RESULT = f"""
printf '[%s, %s]\n' "$(cat {_LEFT_OUT} 2> /dev/null || echo '[]')" "$(cat {_CREATED} 2> /dev/null || echo '[[], ""]')"
"""
"""Prints as JSON what failed in the set-up, and what `layer_files` says was created."""
_LAYER_FILES = f"python3 -I -c {shlex.quote((Path(__file__).parents[1] / 'layer_files.py').read_text('utf-8'))}"
_AS_ACCOUNT = f"setpriv --reuid=$(id -u {ACCOUNT}) --regid=$(id -g {ACCOUNT}) --clear-groups --no-new-privs --"

PREPARE = f"""
number=$1 supervisor=$2 files=$3
shift 3
umask 022
mkdir -p {PLACE}
printf %s "$supervisor" | base64 -d > {PROGRAM}
[ "$(id -u {ACCOUNT} 2> /dev/null)" = "$number" ] || {{
  for name in passwd group; do
    others=$(grep -v '^{ACCOUNT}:' /etc/$name)
    printf '%s\n' "$others" > /etc/$name
  done
  echo "{ACCOUNT}:x:$number:" >> /etc/group
  echo "{ACCOUNT}:x:$number:$number::{HOME}:/bin/bash" >> /etc/passwd
}}
mkdir -p {PLACE}/orders {ENV}
chmod 700 {PLACE}
rm -rf {WORKSPACE} {HOME}
mkdir {WORKSPACE} {HOME}
chown {ACCOUNT}: {WORKSPACE} {HOME}
"""
"""Takes `prepare_arguments`; of these, the target is left for the script that follows."""

UNPACK = f"""
cd {WORKSPACE}
{_AS_ACCOUNT} tar --extract --gzip --preserve-permissions --no-same-owner --file=- < {ARCHIVE}
found=$(find . -mindepth 1 ! -type d -printf x | wc -c)
[ "$found" = "$files" ] || {{ echo "$found of $files files arrived" >&2; exit 3; }}
{shlex.join(LIST_COMMAND)} > {PLACE}/filled
"""
"""Complete or not at all: a missing file would look like a deletion."""

OPEN = f'rm -rf -- "$1"; mkdir -p -- "$1"; chown {ACCOUNT}: "$1"'
"""A directory for a set-up to fill."""

_SEALED = f"""
chown -hR root:root {{paths}}
chmod -R a+rX,go-w {{paths}}
find /tmp /var/tmp /dev/shm -xdev -mindepth 1 -user {ACCOUNT} -prune -exec rm -rf -- '{{{{}}}}' + 2> /dev/null || true
"""
"""What a set-up filled belongs to root from now on, and everything else of it is removed."""

SEAL = _SEALED.format(paths='"$1"')

COLLECT = f"""
rm -rf {_LAYER}
mkdir -p {_LAYER}
{_LAYER_FILES} keep {WORKSPACE} {HOME} {PLACE}/filled {_LAYER} > {_CREATED}
{_SEALED.format(paths=f"{ENV} {_LAYER}")}
"""

CLEAR = f"rm -rf {WORKSPACE} {HOME} {ARCHIVE} {PLACE}/orders {PLACE}/filled /run/agent-fix-files"
"""Removes the temporary tree; a machine that starts from what is left is prepared and filled again."""

_SYSTEM = " -o ".join(f"-path /usr/{name}" for name in ("bin", "include", "lib", "lib64", "sbin", "share", "src"))
NOTHING_ELSE = (
    f"find / -xdev \\( {_SYSTEM} \\) -prune -o -user {ACCOUNT} -prune -exec rm -rf -- '{{}}' + 2> /dev/null || true"
)
"""Deletes the account's files in other writable places, so that root never executes any of them."""

FINISH = f"""
[ ! -d {_LAYER} ] || {_AS_ACCOUNT} {_LAYER_FILES} put {_LAYER} {WORKSPACE} {HOME}
rm -f {ARCHIVE}
install -m 644 {PLACE}/filled {BASE_LISTING}
echo done > {PLACE}/ready
{RESULT}
"""
"""The last step, which prints what is known of the set-up: only a machine that reached it is ever opened again.

The account copies what the set-up has created, so it gets nothing that it could not read.
"""

_UNREADY = "unready"
_REOPEN = f"""
[ -s {PLACE}/ready ] && [ -d {WORKSPACE} ] && install -m 644 {PLACE}/filled {BASE_LISTING} || {{
  echo {_UNREADY}
  exit 0
}}
{RESULT}
"""


def prepare_arguments(number: int, files: int, *target: str) -> list[str]:
    """Arguments of PREPARE and what follows it: the uid of commands, the number of files, what a set-up fills."""
    return [str(number), base64.b64encode(SUPERVISOR.read_bytes()).decode(), str(files), *target]


async def step(machine: Machine, script: str, *arguments: str) -> str:
    """A script's output. Raises SandboxError if it fails or does not end in time."""
    output = bytearray()
    late = LostSandboxError(f"Preparing the sandbox took longer than {SECONDS:.0f} s.", hint=AGAIN)
    argv = ["bash", "-euo", "pipefail", "-c", script, "step", *arguments]
    async with limited(SECONDS, late), started(machine, argv) as program:
        while chunk := await program.read():
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise LostSandboxError("The sandbox sent an invalid message: too much output.", hint=AGAIN)
        await program.ended()
    return output.decode(errors="replace")


async def keep_result(machine: Machine, target: str, failed: Sequence[str]) -> tuple[str, ...]:
    """After a set-up: nothing else that its code may have written stays. `failed` is noted with the project's (ENV).

    Returns it, with a sentence if too much was created.
    """
    if target != ENV:
        await step(machine, f"{SEAL}\n{CLEAR}\n{NOTHING_ELSE}", target)
        return tuple(failed)
    await step(machine, f"{COLLECT}\n{CLEAR}\n{NOTHING_ELSE}")
    await step(machine, f'printf %s "$1" > {_LEFT_OUT}', json.dumps(list(failed)))
    return parse_result(await step(machine, RESULT)).left_out


async def reopen(machine: Machine, before: str = "") -> SetupResult | None:
    """What is known of the set-up of a machine that was finished; None for another one. `before` is a script."""
    output = await step(machine, f"{before}\n{_REOPEN}")
    return None if output.strip() == _UNREADY else parse_result(output)


def parse_result(output: str) -> SetupResult:
    """What RESULT prints. Raises SandboxError if it is anything else."""
    try:
        left_out, (created, too_much) = json.loads(output)
        return SetupResult.parse(json.dumps([[*left_out, *([too_much] if too_much else [])], created]))
    except (ValueError, TypeError, RecursionError) as error:
        message = "The sandbox sent an invalid message: what it says of the set-up cannot be parsed."
        raise LostSandboxError(message, hint=AGAIN) from error
