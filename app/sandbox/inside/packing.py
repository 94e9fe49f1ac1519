"""The base tree as one archive: made on this machine in a directory of its own, which is gone afterwards."""

import asyncio
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.scratch import scratch


@dataclass(frozen=True, slots=True)
class Packed:
    """`files` counts whatever is no directory."""

    archive: BinaryIO
    files: int


@contextmanager
def packed(fill: Callable[[Path], None]) -> Iterator[Packed]:
    """Blocking. Of the host's files nothing else can come along: links are packed as links."""
    with scratch("packing") as private:
        tree = private / "tree"
        tree.mkdir()
        fill(tree)
        count = 0

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            nonlocal count
            count += not member.isdir()
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        with (private / "tree.tar.gz").open("w+b") as archive:
            with tarfile.open(
                fileobj=archive,
                mode="w:gz",
                compresslevel=1,
                format=tarfile.GNU_FORMAT,
                encoding="utf-8",
                errors="surrogateescape",
            ) as tar:
                for path in sorted(tree.iterdir()):
                    tar.add(path, path.name, filter=plain)
            yield Packed(archive, count)


@asynccontextmanager
async def packing(fill: Callable[[Path], None]) -> AsyncIterator[Packed]:
    """The same for who must not be blocked."""
    making = packed(fill)
    tree = await asyncio.to_thread(making.__enter__)
    try:
        yield tree
    finally:
        await asyncio.to_thread(making.__exit__, None, None, None)
