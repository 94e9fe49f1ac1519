"""The port to a sandbox, where every tool and every line of project code is executed.

provider.open(spec) ─► Sandbox ─► exec(argv) … ─► close() | destroy()
                          └► /workspace (the tree)  /env (set-up's programs)  /tmp  /home/agent

What the set-up has created in the tree and in the home directory is there too: each sandbox may change its own copy.

A sandbox holds the repository's files and nothing else: no token, no key, no host path, no network.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.core.errors import SandboxError

WORKSPACE = "/workspace"
ENV = "/env"
HOME = "/home/agent"
BASE_LISTING = "/run/filled"
"""Inside, read-only: the output of LIST_COMMAND right after `fill`, to find changes without reading files."""
LIST_COMMAND = ("/usr/bin/find", ".", "-mindepth", "1", "!", "-type", "d", "-printf", r"%i %C@ %m %s %y %P\0")
"""The command that lists /workspace: inode, change time, mode (octal), size, kind, path, each ended by NUL."""

TOOLS = "/opt/agent"
"""Inside, read-only: the programs of `SandboxSpec.tools`."""
MODEL_SOCKET = "/run/way-out.sock"
FORWARDER = "/run/forwarder.py"
FORWARDER_PROGRAM = Path(__file__).parent / "egress" / "forwarder.py"
MODEL_PORT = 8787

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
WORK_ENVIRONMENT: Mapping[str, str] = {
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "npm_config_offline": "true",
    "npm_config_update_notifier": "false",
}
"""For every command after set-up, over `SetupPlan.environment`: clients then fail at once without network."""

CANNOT_EXECUTE = 126

OnOutput = Callable[[bytes], None]


def base_variables(*path: str) -> dict[str, str]:
    """The variables of every command inside; the set-up's programs come before those of `path`."""
    return {"PATH": ":".join((f"{ENV}/bin", *path)), "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one command. Of its output, `output` bytes are kept; the rest is dropped from the middle and
    counted."""

    memory: int = 4 * 1024**3
    cpus: int = 4
    """Processors, of the machine or E2B template that may have fewer."""
    processes: int = 512
    file_size: int = 2 * 1024**3
    disk: int = 4 * 1024**3
    """All files of the sandbox together, set-up's result apart."""
    files: int = 400_000
    """Files and directories, likewise: a file system has a number of inodes of its own."""
    output: int = 10 * 1024**2


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """The result of a command. `output` is stdout and stderr interleaved, unless they were requested separately.

    `exit_code` is 128+signal for a killed process; `dropped` counts output bytes not kept (between head and tail).
    """

    exit_code: int
    output: bytes
    stderr: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    dropped: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    """The options of `Sandbox.exec` as one value, which sandboxes pass on."""

    argv: Sequence[str]
    timeout: float = 120.0
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = WORKSPACE
    separate_stderr: bool = False
    on_output: OnOutput | None = None

    def problem(self) -> str:
        """Why the kernel could not run this; empty if it can."""
        if not self.argv or not self.argv[0]:
            return "there is no command"
        if "=" in self.argv[0]:
            return "a command's name must not contain ="
        for text in (*self.argv, self.cwd, *self.env.keys(), *self.env.values()):
            if "\0" in text:
                return "a command's arguments must not contain NUL bytes"
            try:
                os.fsencode(text)
            except UnicodeEncodeError:
                return "a command's arguments must be text or bytes"
        return ""


def cannot_execute(reason: str) -> CompletedCommand:
    return CompletedCommand(CANNOT_EXECUTE, f"{reason}\n".encode())


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """How to install a repository's dependencies; the only phase that may reach `hosts` (package indexes).

    `key` is a hash over commands, files that decide, and tool versions: an equal key means a reusable result.
    `readable` are host paths that are mounted read-only at the same path while the commands run (a local package index,
    a certificate file). `notes` tell people what was not prepared, and why. `groups` are the commands by downloading
    client, if there are several: one may fail with a note as long as another succeeds (a Python project's browser tests
    need npm, its suite does not). `short` is what a person would write instead of `commands`: the first attempt only.
    """

    commands: tuple[str, ...] = ()
    key: str = ""
    hosts: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    readable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    short: tuple[str, ...] = ()


NO_SETUP = SetupPlan()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What to open. Opening the same `key` again gives the same tree as it was left, for example after a crash.

    `fill` writes the base tree into an empty directory; it is called once per key, and again only if the first call did
    not finish. Set-up sees the base tree.
    """

    key: str
    fill: Callable[[Path], None]
    setup: SetupPlan = NO_SETUP
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    tools: SetupPlan = NO_SETUP
    """Programs that the sandbox has at `TOOLS`: another coding agent, prepared separately from the project."""
    model_socket: Path | None = None
    """A unix socket of the host that only commands started `with_forwarder` can reach; it may be created later."""
    fill_work: Callable[[Path], None] | None = None
    """Writes the work tree, if it differs from the base."""

    @property
    def begin_work(self) -> Callable[[Path], None]:
        return self.fill_work or self.fill


def with_forwarder(argv: Sequence[str]) -> list[str]:
    """The command, with `SandboxSpec.model_socket` at 127.0.0.1:MODEL_PORT while it runs."""
    return ["python3", "-I", FORWARDER, MODEL_SOCKET, str(MODEL_PORT), "--", *argv]


class Sandbox(Protocol):
    """One isolated machine with the tree at `/workspace`; every exec is a fresh process namespace over its files."""

    @property
    def key(self) -> str: ...

    @property
    def isolated(self) -> bool:
        """False only for `--sandbox none`, which the output and the pull request state."""
        ...

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parts of the set-up that failed while another part succeeded: sentences, each with the end of its output."""
        ...

    @property
    def created(self) -> tuple[str, ...]:
        """What the set-up has created in the tree: files, and whole directories with a slash at the end."""
        ...

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
        """Run one command to its end; after `timeout` seconds everything it started is killed.

        Raises SandboxError if the sandbox itself is lost; a failing command is a result, not an error. Cancelling the
        task kills the command and everything it started.
        """
        ...

    async def close(self) -> None:
        """End everything that runs inside; the tree stays for the next `open` of the same key."""
        ...

    async def destroy(self) -> None:
        """Close, and remove the tree. Idempotent."""
        ...


class Executor(ABC):
    """Whatever has the port's `exec`, and takes commands as values."""

    _closed = False

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
        self.refuse_if_closed()
        command = SandboxCommand(argv, timeout, stdin, env or {}, cwd, separate_stderr, on_output)
        if problem := command.problem():
            return cannot_execute(problem)
        return await self.execute(command)

    def refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxError("The sandbox is closed.")

    @abstractmethod
    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        """Run a command that the kernel can run."""
        ...


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One property that `agent-fix doctor` checks: its name, whether it holds, and the exact repair if it does not."""

    name: str
    ok: bool
    detail: str
    repair: str = ""


class SandboxProvider(Protocol):
    """Opens sandboxes on this machine or in a cloud."""

    @property
    def name(self) -> str: ...

    async def check(self) -> tuple[DoctorCheck, ...]:
        """Check each promised property by trying to break it."""
        ...

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Create or re-attach. Runs the set-up if its result is not cached. Raises SetupError if that fails."""
        ...
