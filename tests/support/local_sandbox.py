"""The Sandbox port over plain subprocesses in a temporary directory: no isolation, for tests of trusted commands."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import WORKSPACE, CompletedCommand, Executor, SandboxCommand

_BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class LocalSandbox(Executor):
    """`/workspace` and `/tmp` in arguments and `cwd` mean directories below `root`; scripts are not looked into.

    The command number `lost_at` finds the sandbox gone. What `clock` says is how long a command took.
    """

    isolated = False
    left_out = ()
    created = ()

    def __init__(self, root: Path, files: Mapping[str, bytes] | None = None) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.tmp = root / "tmp"
        self.commands: list[list[str]] = []
        self.lost_at: int | None = None
        self.clock: Callable[[], float] = time.monotonic
        for directory in (self.workspace, self.tmp):
            directory.mkdir(parents=True, exist_ok=True)
        for path, content in (files or {}).items():
            target = self.workspace / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    @property
    def key(self) -> str:
        return self.root.name

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        self.commands.append(list(command.argv))
        if len(self.commands) == self.lost_at:
            raise SandboxError("The sandbox is gone.")
        begun = self.clock()
        process = await asyncio.create_subprocess_exec(
            *(self._mapped(argument) for argument in command.argv),
            cwd=self._mapped(command.cwd),
            env={**_BASE, "HOME": str(self.root), "TMPDIR": str(self.tmp), **command.env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if command.separate_stderr else asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        work = asyncio.ensure_future(process.communicate(command.stdin))
        done, _ = await asyncio.wait({work}, timeout=command.timeout)
        timed_out = not done
        _end_group(process.pid)
        output, errors = await work
        if command.on_output is not None and output:
            command.on_output(output)
        code = await process.wait()
        seconds = self.clock() - begun
        return CompletedCommand(code if code >= 0 else 128 - code, output, errors or b"", seconds, timed_out)

    async def close(self) -> None:
        """Nothing outlives a command."""

    async def destroy(self) -> None:
        """The temporary directory is the test's."""

    def _mapped(self, argument: str) -> str:
        if argument.startswith(str(self.root)):
            return argument
        for prefix, directory in ((WORKSPACE, self.workspace), ("/tmp", self.tmp)):
            if argument == prefix or argument.startswith(f"{prefix}/"):
                return str(directory / argument.removeprefix(prefix).lstrip("/"))
        return argument


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
