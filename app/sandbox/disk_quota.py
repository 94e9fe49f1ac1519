"""Ends a command when the files of its sandbox take more of the disk than they may."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.host_directories import system_program

INTERVAL = 0.25
"""Seconds between two looks at how full the file system is, which cost nothing."""
STEPS = 16
"""The files are counted when the file system has filled by this part of the limit since the last time."""
UNPROMPTED = 10.0
"""Seconds after which they are counted anyway: not every file system says at once how full it is."""
SHARE = 20
"""Counting takes this part of the time at most, unless the disk fills."""


@dataclass(slots=True)
class DiskQuota:
    """The most bytes that all of `directories` may come to. One for the whole life of a sandbox."""

    directories: Sequence[Path]
    limit: int
    _at_first: int = -1
    _when_counted: int = -1
    """Bytes in use on the file system, before the first command and when the files were last counted."""
    _due: float = 0.0
    """When they are counted in any case, also across short commands (monotonic clock)."""

    async def watch(self, exceeded: Callable[[], None]) -> None:
        """Call `exceeded` as soon as there is too much. Cancel it when the command is over."""
        if self._at_first < 0:
            self._at_first = self._when_counted = self._in_use()
            self._due = time.monotonic() + UNPROMPTED
        while True:
            await asyncio.sleep(INTERVAL)
            if self._in_use() - self._when_counted < self.limit / STEPS and time.monotonic() < self._due:
                continue
            self._when_counted, started = self._in_use(), time.monotonic()
            if await asyncio.to_thread(self._count) > self.limit:
                self._due = 0.0  # the next command is counted at once
                exceeded()
                return
            self._due = time.monotonic() + max(UNPROMPTED, SHARE * (time.monotonic() - started))

    @property
    def note(self) -> bytes:
        return f"\n[ended: the sandbox's files take more than {self.limit // 1024**2} MiB of disk]\n".encode()

    def _in_use(self) -> int:
        about = os.statvfs(self.directories[0])
        return (about.f_blocks - about.f_bfree) * about.f_frsize

    def _count(self) -> int:
        """The bytes that the directories take on disk."""
        counted, hidden = disk_use(self.directories)
        # If not all of it may be read, all that has come to the file system since may be in there.
        return max(counted, self._in_use() - self._at_first) if hidden else counted


def disk_use(paths: Sequence[Path]) -> tuple[int, bool]:
    """Bytes on disk, and whether a part could not be read. `du` walks by descriptor and follows no link. Blocking."""
    du = [system_program("du"), "-s", "-c", "--block-size=1", "--", *map(str, paths)]
    done = subprocess.run(du, env={"LC_ALL": "C"}, cwd="/", capture_output=True, check=False)
    return int(done.stdout.splitlines()[-1].split()[0]), b"Permission denied" in done.stderr
