"""Packs the base tree into one archive, from a temporary directory on this machine."""

import asyncio
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.core.scratch import scratch


@dataclass(frozen=True, slots=True)
class PackedTree:
    """`files` counts everything that is not a directory."""

    archive: BinaryIO
    files: int


@contextmanager
def pack_tree(fill: Callable[[Path], None]) -> Iterator[PackedTree]:
    """Blocking. No other host files can be included: links are packed as links."""
    with scratch("packing") as private:
        tree = private / "tree"
        tree.mkdir()
        fill(tree)
        with (private / "tree.tar.gz").open("w+b") as archive:
            with tarfile.open(
                fileobj=archive,
                mode="w:gz",
                compresslevel=1,
                format=tarfile.GNU_FORMAT,
                encoding="utf-8",
                errors="surrogateescape",
            ) as tar:
                count = sum(_add(tar, entry, name) for entry, name in _below(tree))
            yield PackedTree(archive, count)


NamedFiles = tuple[os.DirEntry[str], str]


def _below(tree: Path) -> Iterator[NamedFiles]:
    """Directories before their contents, at any depth."""
    waiting = _entries(str(tree), "")
    while waiting:
        entry, name = waiting.pop()
        yield entry, name
        if entry.is_dir(follow_symlinks=False):
            waiting += _entries(entry.path, f"{name}/")


def _entries(directory: str, before: str) -> list[NamedFiles]:
    """The entries of a directory, sorted by name, the last one first."""
    with os.scandir(directory) as entries:
        return sorted(((entry, before + entry.name) for entry in entries), key=lambda named: named[1], reverse=True)


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


@asynccontextmanager
async def packing_tree(fill: Callable[[Path], None]) -> AsyncIterator[PackedTree]:
    """`pack_tree` without blocking."""
    making = pack_tree(fill)
    tree = await asyncio.to_thread(making.__enter__)
    try:
        yield tree
    finally:
        await asyncio.to_thread(making.__exit__, None, None, None)
