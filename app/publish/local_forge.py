"""A forge without an account: a branch in the user's repository, and a folder of files."""

import asyncio
import errno
import os
import shutil
from pathlib import Path
from uuid import uuid4

from app.core.errors import ExitCode, OutputError
from app.github.base import NewPullRequest
from app.repo.git_store import GitStore

PULL_REQUEST = "pull-request.md"
MIN_FREE = 1024 * 1024
"""Bytes; a job writes less than this into the folder."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class OutputFolder:
    """A job's output directory. Each file is written atomically."""

    def __init__(self, path: Path, option: str = "--out") -> None:
        self.path = path
        self.option = option
        """The command-line option that sets this directory."""

    def prepare(self, *names: str) -> None:
        """Create the directory and try to write. Raises OutputError with the reason.

        `names` are files that will be written; a directory with such a name is an error.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._put(probe := f".agent-fix-{uuid4().hex}", b"\0" * 4_096)
            (self.path / probe).unlink()
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise self._failure(error) from error
        if free < MIN_FREE:
            raise self._failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        for name in (PULL_REQUEST, *names):
            if (self.path / name).is_dir():
                raise OutputError(
                    f"{self.path / name} is a directory, but a file will be written there.",
                    hint=f"Choose another one with {self.option} DIR.",
                )

    def write(self, name: str, content: str | bytes) -> Path:
        """Replace a file atomically; characters that UTF-8 cannot encode are escaped."""
        data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
        try:
            return self._put(name, data)
        except OSError as error:
            raise self._failure(error) from error

    def _put(self, name: str, data: bytes) -> Path:
        fresh = self.path / f".{name}.new"
        fresh.unlink(missing_ok=True)
        try:
            with fresh.open("xb") as file:  # never through a symbolic link
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path / name)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return self.path / name

    def _failure(self, error: OSError) -> OutputError:
        if error.errno in _FULL:
            return OutputError(
                f"{self.path} cannot be written: the disk is full.",
                code=ExitCode.DISK_FULL,
                hint="Free some disk space and run the same command again; it continues where it stopped.",
            )
        reason = (error.strerror or "unknown reason").lower()
        return OutputError(
            f"{self.path} cannot be written: {reason}.", hint=f"Choose another directory with {self.option} DIR."
        )


class LocalForge:
    """A user's own repository and a folder, as a forge (`app.github.base.Forge`)."""

    def __init__(self, repository: Path, store: GitStore, folder: OutputFolder) -> None:
        self._repository = repository
        self._store = store
        self._folder = folder

    async def ensure_branch(self, name: str, commit: str) -> str:
        return await asyncio.to_thread(self._store.deliver, self._repository, name, commit)

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        text = f"# {wanted.title}\n\n{wanted.body}"
        return str(await asyncio.to_thread(self._folder.write, PULL_REQUEST, text))
