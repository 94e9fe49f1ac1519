"""The host directories of one key: filled once despite crashes, and removed whatever is in them.

root/<key>/tree   the work tree (/workspace)       root/<key>/tmp    /tmp     root/<key>/home   /home/agent
root/<key>/filled the tree's listing right after `fill`

Nothing here follows a link that project code may have made.
"""

import asyncio
import fcntl
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app.core.errors import SandboxError
from app.sandbox.base import LIST_COMMAND, SYSTEM_PATH

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@=+-]{0,127}")


def check_key(key: str) -> None:
    """Raises SandboxError for a sandbox's key that could not be a directory's name."""
    if not KEY.fullmatch(key):
        raise SandboxError(f"A sandbox key may only contain letters, digits and ._:@=+-, not {key!r}.")


@dataclass(frozen=True, slots=True)
class HostDirectory:
    """`owner` is the host uid that the sandbox runs as; None if it is the caller's own."""

    root: Path
    key: str
    owner: int | None = None

    def __post_init__(self) -> None:
        check_key(self.key)

    @property
    def path(self) -> Path:
        return self.root / self.key

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    @property
    def base_listing(self) -> Path:
        return self.path / "filled"

    def prepare(self, fill: Callable[[Path], None]) -> None:
        """Blocking. Afterwards all directories exist; `fill` is called only if it has not finished before."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("tmp", "home"):
            self.own(self.path / name)
        if self.tree.exists():
            return
        partial = self.path / "tree.partial"
        if partial.exists():
            remove_tree(partial)
        self.own(partial)
        fill(partial)
        if self.owner is not None:
            for path in (str(partial), *(entry.path for entry in entries_below(partial))):
                os.chown(path, self.owner, self.owner, follow_symlinks=False)
        partial.rename(self.tree)

    def write_base_listing(self) -> None:
        """List the tree as `fill` left it, once, so that later changes can be found. Raises SandboxError if it cannot
        be listed. Blocking.

        No program of the project has run yet, so a program of the host makes it, and after a crash it is made again. It
        is the one of later listings inside, so an untouched file has the same line in both.
        """
        if self.base_listing.exists():
            return
        listed = subprocess.run(LIST_COMMAND, cwd=self.tree, env={}, capture_output=True, check=False)
        if listed.returncode:
            raise SandboxError(f"The new work tree could not be listed: {listed.stderr.decode(errors='replace')}")
        partial = self.base_listing.with_suffix(".partial")
        partial.write_bytes(listed.stdout)
        partial.chmod(0o644)
        partial.rename(self.base_listing)

    def remove(self) -> None:
        """Blocking. Renames first, so that a crash never leaves half a tree to be opened again."""
        if self.path.exists():
            self.path.rename(self.root / f".gone-{secrets.token_hex(8)}")
        for gone in self.root.glob(".gone-*"):
            remove_tree(gone)

    def own(self, directory: Path) -> None:
        directory.mkdir(mode=0o755, exist_ok=True)
        if self.owner is not None:
            os.chown(directory, self.owner, self.owner, follow_symlinks=False)


def entries_below(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Everything in a tree that only trusted code has written: directories before their contents, at any depth.

    By name, because the kernel records the order of changes.
    """
    waiting = _last_first(str(directory))
    while waiting:
        entry = waiting.pop()
        yield entry
        if entry.is_dir(follow_symlinks=False):
            waiting += _last_first(entry.path)


def _last_first(directory: str) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name, reverse=True)


def remove_tree(directory: Path) -> None:
    """Remove what a hostile program may have left: unreadable directories, thousands of levels, links to anywhere.

    `rm` and `chmod` walk by descriptor and follow no link; `shutil.rmtree` fails at a depth of a thousand.
    """
    if not directory.exists():
        return
    remove = [system_program("rm"), "-rf", "--", str(directory)]
    if _quietly(remove):
        return
    _quietly([system_program("chmod"), "-R", "u+rwX", "--", str(directory)])
    if not _quietly(remove) and directory.exists():
        raise SandboxError(f"{directory} could not be removed.", hint="Check its owner and remove it by hand.")


class DiskUse(NamedTuple):
    """What files take on disk; `hidden` if a part could not be read."""

    size: int
    entries: int
    hidden: bool = False


def disk_use(paths: Sequence[Path]) -> DiskUse:
    """`du` walks by descriptor and follows no link. Blocking."""
    counted = []
    for unit in ("--block-size=1", "--inodes"):
        du = [system_program("du"), "-s", "-c", unit, "--", *map(str, paths)]
        done = subprocess.run(du, env={"LC_ALL": "C"}, cwd="/", capture_output=True, check=False)
        counted.append(int(done.stdout.splitlines()[-1].split()[0]))
    return DiskUse(counted[0], counted[1], hidden=b"Permission denied" in done.stderr)


def _quietly(argv: list[str]) -> bool:
    return subprocess.run(argv, env={}, cwd="/", capture_output=True, check=False).returncode == 0


def system_program(name: str) -> str:
    found = shutil.which(name, path=":".join(SYSTEM_PATH))
    if found is None:
        raise SandboxError(
            f"The sandbox needs the program {name}.", hint="Install the packages util-linux and coreutils."
        )
    return found


def plain_path(base: Path, relative: str) -> Path | None:
    """`base/relative` if it exists and is reached through real directories only: no link, `..` or absolute part."""
    at = base
    for part in relative.split("/"):
        if part in {"", ".", ".."} or at.is_symlink() or not at.is_dir():
            return None
        at /= part
    return at if at.exists() and not at.is_symlink() else None


def make_mount_point(base: Path, relative: str, like: Path, owner: int | None) -> None:
    """Create an empty directory or file in a tree in which nothing runs now; does nothing if a link is in the way."""
    parent, _, name = relative.rpartition("/")
    directory = plain_path(base, parent) if parent else base
    if directory is None or (directory / name).is_symlink() or (directory / name).exists():
        return
    point, before = directory / name, directory.stat()
    if like.is_dir():
        point.mkdir()
    else:
        point.touch()
    if owner is not None:
        os.chown(point, owner, owner, follow_symlinks=False)
    os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))


LOCK_SECONDS = 0.1


@asynccontextmanager
async def exclusive_lock(lock: Path) -> AsyncIterator[None]:
    """One builder per key at a time on this machine. Polls, because a waiting flock could not be cancelled."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)
