"""Reads and writes sandbox files as a tar stream in memory; nothing is ever unpacked on the host."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.core.errors import SandboxError
from app.core.patch import Mode
from app.sandbox.base import Sandbox

SECONDS = 120.0
PACK = ("/usr/bin/tar", "--create", "--format=gnu", "--no-recursion", "--hard-dereference", "--null")
FROM_LIST = ("--verbatim-files-from", "--no-unquote", "--files-from=-")
UNPACK = ("/usr/bin/tar", "--extract", "--touch", "--no-same-owner", "--preserve-permissions", "--absolute-names")


class ArchiveItem(NamedTuple):
    """A file, or (mode 120000) a link whose `content` is its target."""

    path: str
    mode: Mode
    content: bytes


async def read_files(sandbox: Sandbox, paths: Sequence[str], *, max_bytes: int) -> dict[str, ArchiveItem]:
    """Files by path, without those that are gone, unreadable, or no longer a plain file or link.

    Accepts at most `max_bytes` bytes in all; the caller knows the sizes.
    """
    received = bytearray()
    space = max_bytes + (len(paths) + 20) * 8 * tarfile.BLOCKSIZE  # heads, long names and padding

    def receive(chunk: bytes) -> None:
        if len(received) < space:
            received.extend(chunk)

    names = b"".join(_bytes(path) + b"\0" for path in paths)
    # Errors about single files must not get into the stream; those files are simply missing.
    script = ["/bin/sh", "-c", 'exec 2> /dev/null; exec "$@"', "sh", *PACK, "--file=-", *FROM_LIST]
    done = await sandbox.exec(script, stdin=names, timeout=SECONDS, on_output=receive)
    if done.timed_out or len(received) >= space:
        raise SandboxError("Files of the work tree changed while they were read.")
    return {item.path: item for item in _unpack(bytes(received))}


def _unpack(stream: bytes) -> Iterable[ArchiveItem]:
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                if member.issym():
                    yield ArchiveItem(member.name, "120000", _bytes(member.linkname))
                elif member.isreg():
                    body = archive.extractfile(member)
                    mode: Mode = "100755" if member.mode & 0o111 else "100644"
                    yield ArchiveItem(member.name, mode, body.read() if body is not None else b"")
    except tarfile.ReadError as error:
        if stream.strip(b"\0"):
            raise SandboxError("Files of the work tree could not be read.") from error


async def write_files(sandbox: Sandbox, items: Iterable[ArchiveItem]) -> None:
    """Create the files in the work tree with the current time. Existing paths must have been removed."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w:", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for item in items:
            member = tarfile.TarInfo(item.path)
            if item.mode == "120000":
                member.type, member.linkname = tarfile.SYMTYPE, item.content.decode("utf-8", "surrogateescape")
                archive.addfile(member)
            else:
                member.mode, member.size = int(item.mode[-3:], 8), len(item.content)
                archive.addfile(member, io.BytesIO(item.content))
    done = await sandbox.exec([*UNPACK, "--file=-"], stdin=buffer.getvalue(), timeout=SECONDS)
    if not done.ok:
        raise SandboxError(f"The work tree could not be written: {done.output.decode(errors='replace')[-500:].strip()}")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
