"""The options of `Sandbox.exec` as one value, which sandboxes pass on."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.sandbox.base import WORKSPACE, CompletedCommand, OnOutput

CANNOT_EXECUTE = 126


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    """The options have the meaning that `Sandbox.exec` documents."""

    argv: Sequence[str]
    timeout: float = 120.0
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = WORKSPACE
    separate_stderr: bool = False
    on_output: OnOutput | None = None

    def with_defaults(self, variables: Mapping[str, str]) -> "SandboxCommand":
        """The same with these variables too, unless it sets them itself."""
        return replace(self, env={**variables, **self.env})

    @property
    def unusable(self) -> str:
        """Why the kernel could not run this; empty if it can."""
        return unusable(self.argv, (self.cwd, *self.env.keys(), *self.env.values()))


class Executor(ABC):
    """Whatever has the port's `exec`, and takes commands as values."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 120.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        separate_stderr: bool = False,
        on_output: OnOutput | None = None,
    ) -> CompletedCommand:
        return await self.execute(SandboxCommand(argv, timeout, stdin, env or {}, cwd, separate_stderr, on_output))

    @abstractmethod
    async def execute(self, command: SandboxCommand) -> CompletedCommand: ...


def cannot_execute(reason: str) -> CompletedCommand:
    return CompletedCommand(CANNOT_EXECUTE, f"{reason}\n".encode())


def unusable(argv: Sequence[str], others: Iterable[str]) -> str:
    """Why the kernel could not accept these arguments; empty if it can."""
    if not argv or not argv[0]:
        return "there is no command"
    if "=" in argv[0]:
        return "a command's name must not contain ="
    for text in (*argv, *others):
        if "\0" in text:
            return "a command's arguments must not contain NUL bytes"
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            return "a command's arguments must be text or bytes"
    return ""
